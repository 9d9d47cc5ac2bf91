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

	"github.com/seed-126c5d8a/fini/e2e/rig"
	"github.com/seed-126c5d8a/fini/e2e/rig/clients"
	"github.com/seed-126c5d8a/fini/e2e/rig/columns"
	"github.com/seed-126c5d8a/fini/internal/tests/need"
	"github.com/seed-126c5d8a/fini/internal/tests/procfs"
)

// A browserServer is one of them, as npx is told to run it. CHROMIUM stands for the browser, ARGS for what it is told, as
// JSON, and CONFIG for a file.
type browserServer struct {
	args   []string
	env    clients.Variables
	config string
	open   [2]string // the tool that opens the page at URL, and its arguments
	read   [2]string // the tool whose answer holds the page's text
}

// Nothing of these talks to anybody but the test.
var chromiumArgs = []string{"--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
	"--disable-background-networking", "--disable-component-update", "--disable-sync"}

var (
	puppeteer = browserServer{
		args: []string{"@modelcontextprotocol/server-puppeteer"},
		env: clients.Variables{"ALLOW_DANGEROUS": "true",
			"PUPPETEER_LAUNCH_OPTIONS": `{"headless": true, "executablePath": "CHROMIUM", "args": ARGS}`},
		open: [2]string{"puppeteer_navigate", `{"url": "URL"}`},
		read: [2]string{"puppeteer_evaluate", `{"script": "document.body.textContent"}`},
	}
	playwright = browserServer{
		args:   []string{"@playwright/mcp", "--headless", "--no-sandbox", "--config", "CONFIG", "--executable-path", "CHROMIUM", "--output-dir", "TMPDIR"},
		config: `{"browser": {"launchOptions": {"args": ARGS}}}`,
		open:   [2]string{"browser_navigate", `{"url": "URL"}`},
		read:   [2]string{"browser_evaluate", `{"function": "() => document.body.textContent"}`},
	}
	devtools = browserServer{
		args: append([]string{"chrome-devtools-mcp", "--headless", "--executablePath", "CHROMIUM", "--no-usage-statistics", "--no-performance-crux"},
			strings.Split("--chromeArg="+strings.Join(chromiumArgs, " --chromeArg="), " ")...),
		env:  clients.Variables{"CHROME_DEVTOOLS_MCP_NO_UPDATE_CHECKS": "1"},
		open: [2]string{"navigate_page", `{"url": "URL", "pageId": 1}`},
		read: [2]string{"evaluate_script", `{"function": "() => document.body.textContent", "pageId": 1}`},
	}
)

func needBrowserServers(t *testing.T) {
	t.Helper()
	need.Program(t, "node", "npx", "chromium")
	for _, program := range []string{"mcp-server-puppeteer", "playwright-mcp", "chrome-devtools-mcp"} {
		need.Module(t, ".bin/"+program)
	}
}

// A browserSession is a host whose server has a page open in its browser.
type browserSession struct {
	*clients.Host
	stderr *rig.Lines // the server's, of which the host keeps no copy
	Npx    int
	Finis  []int  // the outer and the inner one
	Tmp    string // TMPDIR
}

// browsers is how many browsers may run at a time, beside which a small machine has time
// for everything else.
var browsers = make(chan struct{}, 2)

// startBrowser starts a host whose server runs behind wrap, with further arguments, and opens a page.
func startBrowser(t *testing.T, server browserServer, wrap []string, args ...string) *browserSession {
	t.Helper()
	browsers <- struct{}{}
	t.Cleanup(func() { <-browsers })

	text := clients.LargeText(1 << 17) // a pipe or a socket holds less
	var requests atomic.Int64
	url := clients.Serve(t, func(path string) []byte {
		if path != "/page" {
			return nil
		}
		requests.Add(1)
		return []byte(text)
	})

	s := &browserSession{Tmp: rig.ShortTempDir(t)}
	list, err := json.Marshal(chromiumArgs)
	rig.NoError(t, err)
	fill := strings.NewReplacer("CHROMIUM", need.Program(t, "chromium"), "ARGS", string(list),
		"CONFIG", filepath.Join(s.Tmp, "config.json"), "TMPDIR", s.Tmp, "URL", url+"/page").Replace
	rig.Put(t, filepath.Join(s.Tmp, "config.json"), fill(server.config), 0o600)
	env := clients.Offline(t)
	maps.Copy(env, clients.Variables{"HOME": s.Tmp, "TMPDIR": s.Tmp})
	for name, value := range server.env {
		env[name] = fill(value)
	}
	argv := append(slices.Clone(wrap), "npx", "-y")
	for _, arg := range append(slices.Clone(server.args), args...) {
		argv = append(argv, fill(arg))
	}
	errR, errW := rig.Pipe(t)
	s.stderr = rig.NewLines(t, errR)
	s.Host = clients.Way{Program: clients.NodeHost, Env: env, Stderr: errW}.Open(t, argv...)
	_ = errW.Close()

	s.Call(server.open[0], json.RawMessage(fill(server.open[1])))
	answer := s.Call(server.read[0], json.RawMessage(server.read[1]))
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
	for program(s.Npx) != "node" {
		if program(s.Npx) == "fini" {
			s.Finis = append(s.Finis, s.Npx)
		}
		// An init has the browser's crash handlers for children too.
		below := slices.DeleteFunc(procfs.ChildrenOf(s.T, s.Npx), func(pid int) bool { return program(pid) != "node" && program(pid) != "fini" })
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
func program(pid int) string {
	name, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return name[strings.LastIndex(name, "/")+1:]
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
	for _, pid := range s.Finis {
		rig.Until(s.T, "fini is gone", func() bool { return procfs.StatOf(pid).Gone() })
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
func (s *browserSession) Said() []string {
	return slices.DeleteFunc(strings.SplitAfter(s.stderr.Text(), "\n"), func(line string) bool { return !strings.HasPrefix(line, "fini: ") })
}
