// Package ci is fini in front of a step of CI: what the runners of GitHub, GitLab and Buildkite do to it, and npm, bash scripts,
// timeout(1) and PostgreSQL below it.
package ci
