# Tests as a CI job runs them: with one server in their background and one in a session of
# its own. They say that they got SIGTERM, and end on it.
trap 'echo "tests got TERM"; exit 1' TERM
python3 -u -m http.server --bind 127.0.0.1 0 &
setsid python3 -u -m http.server --bind 127.0.0.1 0 &
echo "tests ready"
while :; do wait; done
