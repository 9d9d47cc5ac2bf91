package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"golang.org/x/sys/unix"
)

// MCP servers that drive a browser, with the real client of the SDK in front of npx. The
// browser is in sessions of its own and holds none of the client's descriptors: only the
// cgroup tells what is left of it.

// A browserServer is one of them, as npx is told to run it.
type browserServer struct {
	args  []string
	env   map[string]string
	calls func(url string) []toolCall // the last one's answer holds the page's text
}

type toolCall struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// Nothing of these talks to anybody but the test.
var chromiumArgs = []string{"--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
	"--disable-background-networking", "--disable-component-update", "--disable-sync"}

func puppeteerServer(t *testing.T) browserServer {
	options, err := json.Marshal(map[string]any{
		"headless": true, "executablePath": need.Program(t, "chromium"), "args": chromiumArgs,
	})
	if err != nil {
		t.Fatal(err)
	}
	return browserServer{
		args: []string{"@modelcontextprotocol/server-puppeteer"},
		env:  map[string]string{"PUPPETEER_LAUNCH_OPTIONS": string(options), "ALLOW_DANGEROUS": "true"},
		calls: func(url string) []toolCall {
			return []toolCall{
				{"puppeteer_navigate", map[string]any{"url": url}},
				{"puppeteer_evaluate", map[string]any{"script": "document.body.textContent"}},
			}
		},
	}
}

func playwrightServer(t *testing.T, args ...string) browserServer {
	options, err := json.Marshal(map[string]any{
		"browser": map[string]any{"launchOptions": map[string]any{"args": chromiumArgs}},
	})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(config, options, 0o600); err != nil {
		t.Fatal(err)
	}
	return browserServer{
		args: append([]string{"@playwright/mcp", "--headless", "--no-sandbox", "--config", config,
			"--executable-path", need.Program(t, "chromium"), "--output-dir", t.TempDir()}, args...),
		calls: func(url string) []toolCall {
			return []toolCall{
				{"browser_navigate", map[string]any{"url": url}},
				{"browser_evaluate", map[string]any{"function": "() => document.body.textContent"}},
			}
		},
	}
}

func devtoolsServer(t *testing.T, args ...string) browserServer {
	args = append([]string{"chrome-devtools-mcp", "--headless", "--executablePath", need.Program(t, "chromium"),
		"--no-usage-statistics", "--no-performance-crux"}, args...)
	for _, arg := range chromiumArgs {
		args = append(args, "--chromeArg="+arg)
	}
	return browserServer{
		args: args,
		env:  map[string]string{"CHROME_DEVTOOLS_MCP_NO_UPDATE_CHECKS": "1"},
		calls: func(url string) []toolCall {
			return []toolCall{
				{"navigate_page", map[string]any{"url": url, "pageId": 1}},
				{"evaluate_script", map[string]any{"function": "() => document.body.textContent", "pageId": 1}},
			}
		},
	}
}

func needBrowserServers(t *testing.T) {
	t.Helper()
	need.Program(t, "node")
	need.Program(t, "npx")
	need.Program(t, "chromium")
	for _, program := range []string{"mcp-server-puppeteer", "playwright-mcp", "chrome-devtools-mcp"} {
		_, err := os.Stat(filepath.Join("node_modules/.bin", program))
		need.That(t, err == nil, "e2e/node_modules/.bin/"+program)
	}
}

// However the client of a browser's server ends, or npx, or a fini, nothing is left of it.
func TestBrowserLeavesNothing(t *testing.T) {
	t.Parallel()
	needBrowserServers(t)
	server := puppeteerServer(t)
	flags := []string{"-i"}
	rows := []struct {
		row   string
		fault func(*browserSession)
		end   browserEnd // under fini
	}{
		{"`npx` browser server, `close()`", tells("close"), browserEnd{exited: "SIGTERM or 1"}}, // npm reports its server's end, if that is faster
		{"`npx` browser server, client killed", signals(syscall.SIGKILL), browserEnd{client: 137}},
		{"`npx` browser server, TERM to client", signals(syscall.SIGTERM), browserEnd{client: 143}},
		{"`npx` browser server, TERM to `npx`", signalsNpx(syscall.SIGTERM), browserEnd{exited: "SIGTERM", stops: true}},
		{"`npx` browser server, `npx` killed", signalsNpx(syscall.SIGKILL), browserEnd{exited: "SIGKILL", stops: true}},
	}
	for _, tt := range rows { // which run at once
		addRow(tt.row)
	}
	for i, tt := range rows {
		if i%2 != 0 && !asInCI() {
			continue
		}
		t.Run(tt.row, func(t *testing.T) {
			t.Parallel()
			inColumns(t, tt.row, flags, func(t *testing.T, wrap []string) outcome {
				t.Parallel()
				s := startBrowser(t, server, wrap)
				tt.fault(s)
				if len(s.finis) == 0 {
					return s.watch()
				}
				return s.mustLeaveNothing(tt.end)
			})
		})
	}
	for i, tt := range []struct {
		name  string
		fault func(*browserSession)
		end   browserEnd
	}{
		{"client exits", tells("exit"), browserEnd{}},
		{"outer fini killed", killsFini(0), browserEnd{exited: "SIGKILL"}},
		{"inner fini killed", killsFini(1), browserEnd{exited: "SIGKILL"}},
	} {
		if i%2 != 1 && !asInCI() {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startBrowser(t, server, append(append([]string{finiPath}, flags...), "--"))
			tt.fault(s)
			s.mustLeaveNothing(tt.end)
		})
	}
}

// A server that ends its browser by itself, at the end of its stdin, does so under fini as
// it does without: with the same status, its own clean-up done, and nothing for fini to say.
func TestBrowserEndsByItself(t *testing.T) {
	t.Parallel()
	needBrowserServers(t)
	tests := []struct {
		name   string
		server func(t *testing.T, profile string) browserServer
		// What is there while the browser runs and gone after a clean end: what the server
		// made in its TMPDIR, or the browser's lock of the profile that it was given.
		trace string
	}{
		{"playwright, isolated", func(t *testing.T, _ string) browserServer {
			return playwrightServer(t, "--isolated")
		}, "TMPDIR/playwright_chromiumdev_profile-*"},
		{"playwright, profile", func(t *testing.T, profile string) browserServer {
			return playwrightServer(t, "--user-data-dir", profile)
		}, "TMPDIR/playwright-artifacts-*"},
		{"devtools, isolated", func(t *testing.T, _ string) browserServer {
			return devtoolsServer(t, "--isolated")
		}, "TMPDIR/puppeteer_dev_chrome_profile-*"},
		{"devtools, profile", func(t *testing.T, profile string) browserServer {
			return devtoolsServer(t, "--userDataDir", profile)
		}, "PROFILE/SingletonLock"},
	}
	for i, tt := range tests {
		if i%2 != 0 && !asInCI() {
			continue // of each server one
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, column := range []string{"without", "fini"} {
				t.Run(column, func(t *testing.T) {
					t.Parallel()
					var wrap []string
					if column == "fini" {
						// However slow the machine, fini leaves the server its time.
						wrap = []string{finiPath, "-i", "--grace", patience.String(), "--linger", patience.String(), "--"}
					}
					profile := filepath.Join(shortTempDir(t), "profile")
					s := startBrowser(t, tt.server(t, profile), wrap)
					trace := strings.NewReplacer("TMPDIR", s.tmp, "PROFILE", profile).Replace(tt.trace)
					if !matches(t, trace) {
						t.Fatalf("no %s beside a running browser", tt.trace)
					}

					s.tell("end")
					if column == "fini" {
						s.mustLeaveNothing(browserEnd{exited: "0"})
					} else {
						s.mustHaveExited("0")
						until(t, "the browser is gone", func() bool { return len(s.cgroup.alive()) == 0 })
					}
					if matches(t, trace) {
						t.Errorf("the server has left %s", tt.trace)
					}
					if said := s.said(); len(said) > 0 {
						t.Errorf("fini had to do something: %q", said)
					}
				})
			}
		})
	}
}

// matches reports whether there is a file of this pattern. A browser's lock is a symbolic
// link to nowhere, which Glob sees.
func matches(t *testing.T, pattern string) bool {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return len(found) > 0
}

// A browserSession is the life of a client whose server has a page open in its browser.
type browserSession struct {
	*life
	cgroup *cgroup // everything but the client
	stderr *lines  // the server's, of which the client keeps no copy
	server int     // the client's child
	npx    int
	finis  []int  // pidfds of the outer and the inner one
	tmp    string // TMPDIR
}

// browsers is how many browsers may run at a time, beside which a small machine has time
// for everything else.
var browsers = make(chan struct{}, 2)

// startBrowser starts a client whose server runs behind wrap, and opens a page.
func startBrowser(t *testing.T, server browserServer, wrap []string) *browserSession {
	t.Helper()
	browsers <- struct{}{}
	t.Cleanup(func() { <-browsers })

	text := largeText(1 << 17) // a pipe or a socket holds less
	var requests atomic.Int64
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/page" {
			http.NotFound(w, r)
			return
		}
		requests.Add(1)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff") // or it is taken for a download
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(page.Close)

	s := &browserSession{tmp: shortTempDir(t)}
	env := map[string]string{"HOME": s.tmp, "TMPDIR": s.tmp,
		// With nothing in the cache and no network, npx has only what is installed here.
		"npm_config_offline": "true", "npm_config_cache": filepath.Join(s.tmp, "npm")}
	for name, value := range server.env {
		env[name] = value
	}
	s.cgroup = newCgroup(t)
	config, err := json.Marshal(map[string]any{
		"argv":  s.cgroup.wrap(append(append(slices.Clone(wrap), "npx", "-y"), server.args...)...),
		"env":   env,
		"calls": server.calls(page.URL + "/page"),
	})
	if err != nil {
		t.Fatal(err)
	}
	errR, errW := pipe(t)
	cmd := exec.Command("node", "testdata/browser-client.mjs", string(config))
	cmd.ExtraFiles = []*os.File{errW} // descriptor 4, behind the witness
	s.life = startCmd(t, cmd)
	_ = errW.Close()
	s.stderr = newLines(t, errR)

	s.server = s.Out.wantPid("connected ")
	s.Out.want("answered ")
	if requests.Load() == 0 {
		t.Fatal("the server says that it has opened the page, which nobody has asked for")
	}
	s.mustHaveAnswered(text, s.Out.want("answered "))
	s.Out.want("ready")
	s.findProcesses()
	return s
}

// mustHaveAnswered asserts that the page's text has come through browser, server and npx
// as it was. answer is JSON that holds what the tool returned, which is words around the
// JSON of the text.
func (s *browserSession) mustHaveAnswered(want, answer string) {
	s.t.Helper()
	var words, got string
	if err := json.Unmarshal([]byte(answer), &words); err != nil {
		s.t.Fatalf("%v: %.200q", err, answer)
	}
	_, rest, _ := strings.Cut(words, `"`)
	if err := json.NewDecoder(strings.NewReader(`"` + rest)).Decode(&got); err != nil {
		s.t.Fatalf("no text in the answer (%v): %.200q", err, words)
	}
	if got != want {
		s.t.Fatalf("%d bytes came back, want %d; they differ from byte %d on",
			len(got), len(want), differAt(got, want))
	}
}

// findProcesses looks for the finis and for npx, which is the first node below the client,
// and sees to it that the cgroup holds the browser, without which its end proves nothing.
func (s *browserSession) findProcesses() {
	s.t.Helper()
	s.npx = s.server
	for s.program(s.npx) != "node" {
		if s.program(s.npx) == filepath.Base(finiPath) {
			pidfd, err := unix.PidfdOpen(s.npx, 0)
			if err != nil {
				s.t.Fatalf("cannot open a pidfd of %d: %v", s.npx, err)
			}
			s.t.Cleanup(func() { _ = unix.Close(pidfd) })
			s.finis = append(s.finis, pidfd)
		}
		// An init has the browser's crash handlers for children too.
		below := slices.DeleteFunc(childrenOf(s.t, s.npx), func(pid int) bool {
			name := s.program(pid)
			return name != "node" && name != filepath.Base(finiPath)
		})
		if len(below) != 1 {
			s.t.Fatalf("%d has children %v, want one: %q", s.npx, below, s.cgroup.names())
		}
		s.npx = below[0]
	}
	alive := strings.Join(s.cgroup.names(), "\n")
	if strings.Count(alive, " chromium") < 2 || !strings.Contains(alive, " chrome_crashpad") {
		s.t.Fatalf("no browser in the cgroup:\n%s", alive)
	}
}

// program is the name of the file that a process runs; empty for one that is gone.
func (s *browserSession) program(pid int) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	return filepath.Base(name)
}

// shortTempDir is for sockets, whose names must be shorter than most of t.TempDir's.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fini-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (s *browserSession) tell(what string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.Stdin, what); err != nil {
		s.t.Fatalf("cannot tell the client to %s: %v", what, err)
	}
}

func tells(what string) func(*browserSession) {
	return func(s *browserSession) { s.t.Helper(); s.tell(what) }
}

func signals(sig syscall.Signal) func(*browserSession) {
	return func(s *browserSession) { s.t.Helper(); s.signal(sig) }
}

// signalsNpx is safe from recycled pids: nobody has waited for npx yet.
func signalsNpx(sig syscall.Signal) func(*browserSession) {
	return func(s *browserSession) {
		s.t.Helper()
		if err := syscall.Kill(s.npx, sig); err != nil {
			s.t.Fatalf("cannot send %v to npx, %d: %v", sig, s.npx, err)
		}
	}
}

func killsFini(which int) func(*browserSession) {
	return func(s *browserSession) {
		s.t.Helper()
		if len(s.finis) != 2 {
			s.t.Fatalf("%d finis, want a pair", len(s.finis))
		}
		if err := unix.PidfdSendSignal(s.finis[which], unix.SIGKILL, nil, 0); err != nil {
			s.t.Fatalf("cannot kill fini: %v", err)
		}
	}
}

// watch is the outcome where no fini is in front: what is left at the window's end.
func (s *browserSession) watch() (o outcome) {
	start := time.Now()
	deadline := time.After(window)
	for open := true; open; {
		select {
		case _, open = <-s.stderr.c:
		case <-deadline:
			return outcome{survivors: len(s.cgroup.alive()), never: true}
		}
	}
	o.eof = time.Since(start)
	o.survivors = s.cgroup.survivors()
	return o
}

// A browserEnd is what is seen of a session's end beside that nothing is left.
type browserEnd struct {
	exited string // the status or signal that the client sees of its fini; empty if it is gone
	client int    // the client's own status
	stops  bool   // the server and its browser have outlived npx: fini names what it stops
}

// mustLeaveNothing waits for the end of the finis, when nothing may be alive any more, and
// for the client's.
func (s *browserSession) mustLeaveNothing(end browserEnd) (o outcome) {
	s.t.Helper()
	start := time.Now()
	s.stderr.rest() // to EOF
	o.eof = time.Since(start)
	for _, pidfd := range s.finis {
		s.mustBeGone(pidfd)
	}
	if left := s.cgroup.names(); len(left) > 0 {
		s.t.Errorf("fini is gone and these are alive: %q; it said %q", left, s.said())
		o.survivors = len(left)
	}
	if end.stops {
		said := strings.Join(s.said(), "")
		for _, want := range []string{`mcp-server-puppeteer\).* which holds stdout and stderr`, "chromium"} {
			if !regexp.MustCompile(want).MatchString(said) {
				s.t.Errorf("fini does not name %q: %q", want, said)
			}
		}
	}
	if end.exited != "" {
		s.mustHaveExited(end.exited)
		s.tell("exit")
	}
	s.mustEnd(end.client)
	return o
}

// mustBeGone waits for the end of a process that is no child of the test's.
func (s *browserSession) mustBeGone(pidfd int) {
	s.t.Helper()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	until(s.t, "fini is gone", func() bool {
		_, err := unix.Poll(fds, 0)
		return err == nil && fds[0].Revents != 0
	})
}

// mustHaveExited waits until the client has seen its child's end, and that of its output,
// without which the client of a user's would wait on.
func (s *browserSession) mustHaveExited(want string) {
	s.t.Helper()
	killed := false
	for {
		line, ok := s.Out.next()
		if !ok {
			s.t.Fatalf("the client has not seen its server's end: %q", s.Err.text())
		}
		killed = killed || line == "sent SIGKILL"
		if got, ok := strings.CutPrefix(line, "exited "); ok {
			// On a slow machine the SDK may have lost its patience.
			if !slices.Contains(strings.Split(want, " or "), got) && !(killed && got == "SIGKILL") {
				s.t.Errorf("the client's child ended with %s, want %s; it said %q", got, want, s.said())
			}
			break
		}
	}
	s.Out.want("hung up")
}

// said is what fini has written to the server's stderr.
func (s *browserSession) said() (said []string) {
	for line := range strings.Lines(s.stderr.text()) {
		if strings.HasPrefix(line, "fini: ") {
			said = append(said, line)
		}
	}
	return said
}
