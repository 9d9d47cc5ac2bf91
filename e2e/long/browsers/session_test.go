package browsers

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-126c5d8a/fini/e2e/need"
	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"github.com/seed-126c5d8a/fini/e2e/rig/procfs"
	"golang.org/x/sys/unix"
)

// A browserServer is one of them, as npx is told to run it.
type browserServer struct {
	args  []string
	env   clients.Variables
	calls func(url string) []toolCall // the last one's answer holds the page's text
}

type toolCall struct {
	Name      string
	Arguments map[string]any
}

// Nothing of these talks to anybody but the test.
var chromiumArgs = []string{"--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
	"--disable-background-networking", "--disable-component-update", "--disable-sync"}

func puppeteerServer(t *testing.T) browserServer {
	options, err := json.Marshal(map[string]any{
		"headless": true, "executablePath": need.Program(t, "chromium"), "args": chromiumArgs,
	})
	rig.NoError(t, err)
	return browserServer{
		args: []string{"@modelcontextprotocol/server-puppeteer"},
		env:  clients.Variables{"PUPPETEER_LAUNCH_OPTIONS": string(options), "ALLOW_DANGEROUS": "true"},
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
	rig.NoError(t, err)
	config := filepath.Join(t.TempDir(), "config.json")
	rig.NoError(t, os.WriteFile(config, options, 0o600))
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
		env:  clients.Variables{"CHROME_DEVTOOLS_MCP_NO_UPDATE_CHECKS": "1"},
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
		need.Module(t, ".bin/"+program)
	}
}

// A browserSession is a host whose server has a page open in its browser.
type browserSession struct {
	*clients.Host
	stderr *rig.Lines // the server's, of which the host keeps no copy
	Npx    int
	Finis  []int  // pidfds of the outer and the inner one
	Tmp    string // TMPDIR
}

// browsers is how many browsers may run at a time, beside which a small machine has time
// for everything else.
var browsers = make(chan struct{}, 2)

// startBrowser starts a host whose server runs behind wrap, and opens a page.
func startBrowser(t *testing.T, server browserServer, wrap []string) *browserSession {
	t.Helper()
	browsers <- struct{}{}
	t.Cleanup(func() { <-browsers })

	text := clients.LargeText(1 << 17) // a pipe or a socket holds less
	var requests atomic.Int64
	url := clients.Serve(t, func(path string, _ <-chan struct{}) (kind string, body []byte) {
		if path != "/page" {
			return "", nil
		}
		requests.Add(1)
		return "text/plain; charset=utf-8", []byte(text)
	})

	s := &browserSession{Tmp: rig.ShortTempDir(t)}
	env := clients.Offline(t)
	env["HOME"], env["TMPDIR"] = s.Tmp, s.Tmp
	maps.Copy(env, server.env)
	errR, errW := rig.Pipe(t)
	s.stderr = rig.NewLines(t, errR)
	s.Host = clients.Way{Program: clients.NodeHost, Env: env, Stderr: errW}.Open(t, append(append(slices.Clone(wrap), "npx", "-y"), server.args...)...)
	_ = errW.Close()

	var answer string
	for _, call := range server.calls(url + "/page") {
		answer = s.Call(call.Name, call.Arguments)
	}
	if requests.Load() == 0 {
		t.Fatal("the server says that it has opened the page, which nobody has asked for")
	}
	// The page's text has come through browser, server and npx as it was, in JSON with words around it.
	_, rest, _ := strings.Cut(answer, `"`)
	var got string
	if err := json.NewDecoder(strings.NewReader(`"` + rest)).Decode(&got); err != nil {
		t.Fatalf("no text in the answer (%v): %.200q", err, answer)
	}
	clients.MustBeSame(t, got, text)
	s.findProcesses()
	return s
}

// findProcesses looks for the finis and for npx, which is the first node below the client,
// and sees to it that the cgroup holds the browser, without which its end proves nothing.
func (s *browserSession) findProcesses() {
	s.T.Helper()
	s.Npx = s.Started
	for s.program(s.Npx) != "node" {
		if s.program(s.Npx) == filepath.Base(rig.Fini) {
			pidfd, err := unix.PidfdOpen(s.Npx, 0)
			if err != nil {
				s.T.Fatalf("cannot open a pidfd of %d: %v", s.Npx, err)
			}
			s.T.Cleanup(func() { _ = unix.Close(pidfd) })
			s.Finis = append(s.Finis, pidfd)
		}
		// An init has the browser's crash handlers for children too.
		below := slices.DeleteFunc(procfs.ChildrenOf(s.T, s.Npx), func(pid int) bool {
			name := s.program(pid)
			return name != "node" && name != filepath.Base(rig.Fini)
		})
		if len(below) != 1 {
			s.T.Fatalf("%d has children %v, want one: %q", s.Npx, below, s.Cgroup.Names())
		}
		s.Npx = below[0]
	}
	alive := strings.Join(s.Cgroup.Names(), "\n")
	if strings.Count(alive, " chromium") < 2 || !strings.Contains(alive, " chrome_crashpad") {
		s.T.Fatalf("no browser in the cgroup:\n%s", alive)
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

// Watch is the outcome where no fini is in front: what is left at the window's end.
func (s *browserSession) Watch() columns.Outcome {
	return columns.Watch(columns.Window, s.stderr, s.Cgroup.Count)
}

// A browserEnd is what is seen of a session's end beside that nothing is left.
type browserEnd struct {
	Exited string // the status or signal that the host sees of its fini; empty if the host is gone
	Client int    // the host's own status
	Stops  bool   // the server and its browser have outlived npx: fini names what it stops
}

// MustLeaveNothing waits for the end of the finis, when nothing may be alive any more, and
// for the client's.
func (s *browserSession) MustLeaveNothing(end browserEnd) (o columns.Outcome) {
	s.T.Helper()
	start := time.Now()
	s.stderr.Rest() // to EOF
	o.Eof = time.Since(start)
	for _, pidfd := range s.Finis {
		s.mustBeGone(pidfd)
	}
	if left := s.Cgroup.Names(); len(left) > 0 {
		s.T.Errorf("fini is gone and these are alive: %q; it said %q", left, s.Said())
		o.Survivors = len(left)
	}
	if end.Stops {
		said := strings.Join(s.Said(), "")
		for _, want := range []string{`(mcp-server-puppeteer|node|MainThread)\).* which holds stdout and stderr`, "chromium"} {
			if !regexp.MustCompile(want).MatchString(said) {
				s.T.Errorf("fini does not name %q: %q", want, said)
			}
		}
	}
	if end.Exited != "" {
		s.MustHaveExited(end.Exited)
	}
	s.MustEnd(end.Client)
	return o
}

// mustBeGone waits for the end of a process that is no child of the test's.
func (s *browserSession) mustBeGone(pidfd int) {
	s.T.Helper()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	rig.Until(s.T, "fini is gone", func() bool {
		_, err := unix.Poll(fds, 0)
		return err == nil && fds[0].Revents != 0
	})
}

// MustHaveExited waits until the host has seen its child's end, and that of its output, without which a user's host would
// wait on.
func (s *browserSession) MustHaveExited(want string) {
	s.T.Helper()
	killed := strings.Contains(s.Out.Whole(), "sent SIGKILL\n") // on a slow machine the SDK may have lost its patience
	if got := s.Fact("ended"); !slices.Contains(strings.Split(want, " or "), got) && !(killed && got == "SIGKILL") {
		s.T.Errorf("the host's child ended with %q, want %s; it said %q; the host says %s", got, want, s.Said(), s.Err.Text())
	}
}

// Said is what fini has written to the server's stderr.
func (s *browserSession) Said() (said []string) {
	for line := range strings.Lines(s.stderr.Text()) {
		if strings.HasPrefix(line, "fini: ") {
			said = append(said, line)
		}
	}
	return said
}
