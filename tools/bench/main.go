// Command bench measures fini beside the programs that it replaces, and the pair beside the
// others that survive a SIGKILL. What is compared runs interleaved, so that a busy moment of
// the machine hits all of them, and a ratio is the median of the ratios of single rounds.
//
//	go run ./tools/bench [-fini bin/fini] [-csv FILE] [-rounds N] [-long]
//
// It prints Markdown. As root it measures PID 1 too.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// The children's parent death signal is bound to the thread that forked, so all work is done
// on the first, which lives as long as the process.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "@") {
		os.Exit(program(os.Args[1], os.Args[2:]))
	}
	b := &bench{samples: map[string]map[string][]float64{}}
	fini := flag.String("fini", "bin/fini", "the binary to measure")
	out := flag.String("csv", "", "write all medians to this file")
	flag.IntVar(&b.rounds, "rounds", 150, "runs of what is fast")
	flag.IntVar(&b.orphans, "orphans", 20000, "orphans to reap")
	long := flag.Bool("long", false, "watch idle processes for 60 seconds, not 10")
	flag.Parse()
	if b.idle = 10 * time.Second; *long {
		b.idle = time.Minute
	}
	debug.SetGCPercent(-1) // a collection would be taken for the measured program's time
	path, err := filepath.Abs(*fini)
	if err == nil {
		err = b.find(path)
	}
	if err == nil {
		err = b.measure()
	}
	b.printGoals(os.Stdout)
	b.printAll(os.Stdout)
	if err == nil && *out != "" {
		err = b.write(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	rounds, orphans int
	idle            time.Duration
	self, truePath  string
	sleepPath       string
	variants        []variant
	samples         map[string]map[string][]float64 // by measure and variant; one per round
}

// A variant is one program in one place.
type variant struct {
	name     string
	argv     []string // what goes before the command
	pid1     bool     // the first process of a PID namespace
	adopts   bool     // orphans come to it, and are counted: the static tini stands for both
	lives    bool     // it stays beside the command, and passes signals on
	leftover bool     // it stops leftovers
}

// The names that the goals speak of.
const (
	bare        = "no init"
	finiAlone   = "fini --no-shield"
	finiPair    = "fini"
	finiPID1    = "fini, PID 1"
	tini        = "tini -s -g"
	tiniStatic  = "tini-static -s -g"
	tiniPID1    = "tini -g, PID 1"
	staticPID1  = "tini-static -g, PID 1"
	bubblewrap  = "bwrap --die-with-parent --unshare-pid"
	killLoop    = "kill in a loop"
	withoutList = "fini --no-shield, no children files"
)

// find makes the list of variants from the programs that are installed.
func (b *bench) find(fini string) error {
	var err error
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.truePath, err = exec.LookPath("true"); err != nil {
		return err
	}
	if b.sleepPath, err = exec.LookPath("sleep"); err != nil {
		return err
	}
	if _, err := os.Stat(fini); err != nil {
		return err
	}
	b.variants = []variant{
		{name: bare},
		{name: finiAlone, argv: []string{fini, "--no-shield"}, adopts: true, lives: true, leftover: true},
		{name: finiPair, argv: []string{fini}, adopts: true, lives: true, leftover: true},
		{name: tini, argv: []string{"tini", "-s", "-g"}, lives: true},
		{name: tiniStatic, argv: []string{"tini-static", "-s", "-g"}, adopts: true, lives: true},
		{name: "dumb-init", argv: []string{"dumb-init"}, lives: true},
		{name: "catatonit -g", argv: []string{"catatonit", "-g"}, lives: true},
		{name: bubblewrap, argv: []string{"bwrap", "--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/"}},
		{name: "unshare --fork --pid --kill-child", argv: []string{"unshare", "--fork", "--pid", "--kill-child"}},
		{name: "a bare Go program", argv: []string{b.self, "@floor"}},
		{name: finiPID1, argv: []string{fini}, pid1: true, adopts: true, lives: true, leftover: true},
		{name: tiniPID1, argv: []string{"tini", "-g"}, pid1: true, lives: true},
		{name: staticPID1, argv: []string{"tini-static", "-g"}, pid1: true, adopts: true, lives: true},
		{name: "dumb-init, PID 1", argv: []string{"dumb-init"}, pid1: true, adopts: true, lives: true},
		{name: "catatonit -g, PID 1", argv: []string{"catatonit", "-g"}, pid1: true, adopts: true, lives: true},
	}
	b.variants = slices.DeleteFunc(b.variants, func(v variant) bool {
		if len(v.argv) > 0 {
			path, err := exec.LookPath(v.argv[0])
			if err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s is missing: going on without it\n", v.argv[0])
				return true
			}
			v.argv[0] = path
		}
		// The first run also brings the program into the page cache.
		if _, err := b.run(v, nil, b.truePath); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s can't be measured here: %v\n", v.name, err)
			return v.name != finiPair && v.name != finiAlone
		}
		return false
	})
	return nil
}

// add notes one sample of a measure.
func (b *bench) add(measure, variant string, value float64) {
	if b.samples[measure] == nil {
		b.samples[measure] = map[string][]float64{}
	}
	b.samples[measure][variant] = append(b.samples[measure][variant], value)
}

func (b *bench) median(measure, variant string) (float64, bool) {
	s := b.samples[measure][variant]
	return quantile(s, 0.5), len(s) > 0
}

// ratio is the median of the rounds' ratios.
func (b *bench) ratio(measure, variant, against string) (float64, bool) {
	a, base := b.samples[measure][variant], b.samples[measure][against]
	var ratios []float64
	for i := range min(len(a), len(base)) {
		if base[i] != 0 {
			ratios = append(ratios, a[i]/base[i])
		}
	}
	return quantile(ratios, 0.5), len(ratios) > 0
}

func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// against is what a variant's ratio is to: its like.
func against(variant string) string {
	switch {
	case variant == finiPair || strings.HasPrefix(variant, "unshare"):
		return bubblewrap
	case strings.HasSuffix(variant, ", PID 1"):
		return tiniPID1
	}
	return tini
}

// A goal is a line of the table of what was asked for.
type goal struct {
	what, measure, variant string
	against                string // "" for a goal that is no ratio
	most                   float64
	quantile               float64
}

func (b *bench) goals() []goal {
	return []goal{
		{"wall of `true`, no shield, against tini -s", wall, finiAlone, tini, 1.4, 0},
		{"wall of `true`, PID 1, against tini", wall, finiPID1, tiniPID1, 1.4, 0},
		{"CPU of `true`, no shield, against tini -s", cpu, finiAlone, tini, 1.5, 0},
		{"CPU of `true`, PID 1, against tini", cpu, finiPID1, tiniPID1, 1.5, 0},
		{"wall of `true`, pair, against bwrap", wall, finiPair, bubblewrap, 1.25, 0},
		{"CPU for each reaped orphan, against tini-static", orphanCPU, finiAlone, tiniStatic, 1.3, 0},
		{"the same as PID 1", orphanCPU, finiPID1, staticPID1, 1.3, 0},
		{"context switches for each reaped orphan, against tini-static", orphanSwitches, finiAlone, tiniStatic, 1, 0},
		{"the same as PID 1", orphanSwitches, finiPID1, staticPID1, 1, 0},
		{fmt.Sprintf("context switches in %v of idleness, pair", b.idle), idle, finiPair, "", 0, 0},
		{"main child's end to fini's end, no shield, against tini -s", end, finiAlone, tini, 1.5, 0},
		{"the same for the pair", end, finiPair, tini, 1.5, 0},
		{"the same as PID 1, against tini", end, finiPID1, tiniPID1, 1.5, 0},
		{"forwarded signal, p50, no shield, against tini -g", latency, finiAlone, tini, 1.5, 0.5},
		{"forwarded signal, p99, no shield, against tini -g", latency, finiAlone, tini, 1.5, 0.99},
		{"forwarded signal, p50, pair, against tini -g", latency, finiPair, tini, 1.5, 0.5},
		{"forwarded signal, p99, pair, against tini -g", latency, finiPair, tini, 1.5, 0.99},
		{"private dirty memory of one fini, kB", memory, finiAlone, "", 800, 0},
		{"private dirty memory of a pair, kB", memory, finiPair, "", 1600, 0},
		{"binary, MB", size, finiAlone, "", 4, 0},
		{"main's end to fini's end with 1 leftover, no shield, ms", left1, finiAlone, "", 10, 0},
		{"the same for the pair, ms", left1, finiPair, "", 10, 0},
		{"with 1,000 leftovers among 3,000 processes, against a loop of kill and wait", left1000, finiAlone, killLoop, 10, 0},
		{"the same for the pair", left1000, finiPair, killLoop, 10, 0},
		{"cost of a sweep for each other process, µs", sweepEach, finiAlone, "", 0.5, 0},
		{"the same where the kernel lists no children, µs", sweepEach, withoutList, "", 10, 0},
	}
}

// printGoals is the table of what was asked for and what was reached.
func (b *bench) printGoals(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(out, "| what\t| goal\t| reached\t|\n| ---\t| ---\t| ---\t|\n")
	for _, g := range b.goals() {
		value, ok := b.median(g.measure, g.variant)
		switch {
		case g.quantile > 0: // of the measure, not of the ratios
			base := quantile(b.samples[g.measure][g.against], g.quantile)
			if ok = ok && base > 0; ok {
				value = quantile(b.samples[g.measure][g.variant], g.quantile) / base
			}
		case g.against != "":
			value, ok = b.ratio(g.measure, g.variant, g.against)
		}
		reached := "not measured"
		if ok {
			reached = number(value)
			if value > g.most {
				reached += " (missed)"
			}
		}
		fmt.Fprintf(out, "| %s\t| at most %s\t| %s\t|\n", g.what, number(g.most), reached)
	}
	_ = out.Flush()
}

// number has three digits that matter.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v < 0.01:
		return "< 0.01"
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// printAll is a table for each measure: median, spread and ratio.
func (b *bench) printAll(w io.Writer) {
	for _, m := range measures {
		if len(b.samples[m.name]) == 0 {
			continue
		}
		out := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
		fmt.Fprintf(out, "\n| %s, %s\t| median\t| %s\t| ratio\t|\n| ---\t| ---\t| ---\t| ---\t|\n", m.name, m.unit, m.spreadName())
		for _, name := range b.names(m.name) {
			r, low, high := b.row(m, name)
			fmt.Fprintf(out, "| %s\t| %s\t| %s to %s\t| %s\t|\n", name, number(quantile(b.samples[m.name][name], 0.5)),
				number(low), number(high), r)
		}
		_ = out.Flush()
	}
}

// row is the ratio, as text, and the spread.
func (b *bench) row(m measure, name string) (ratio string, low, high float64) {
	s := b.samples[m.name][name]
	if r, ok := b.ratio(m.name, name, m.base(name)); ok {
		ratio = number(r)
	}
	return ratio, quantile(s, m.low()), quantile(s, m.high())
}

// names are the variants that a measure has, in order.
func (b *bench) names(measure string) (names []string) {
	for _, v := range b.variants {
		if len(b.samples[measure][v.name]) > 0 {
			names = append(names, v.name)
		}
	}
	for name := range b.samples[measure] {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// write puts every median into a CSV file.
func (b *bench) write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := csv.NewWriter(file)
	_ = out.Write([]string{"measure", "unit", "program", "median", "low", "high", "against", "ratio", "samples"})
	for _, m := range measures {
		for _, name := range b.names(m.name) {
			s := b.samples[m.name][name]
			ratio, low, high := b.row(m, name)
			_ = out.Write([]string{
				m.name, m.unit, name, exact(quantile(s, 0.5)), exact(low), exact(high),
				m.base(name), ratio, strconv.Itoa(len(s)),
			})
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

func exact(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

// A life is a started variant.
type life struct {
	pid   int
	stdin *os.File
	out   *os.File
}

// start starts a variant around a command, with pipes for stdin and stdout.
func (b *bench) start(v variant, command ...string) (*life, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	pid, err := b.fork(v, inR.Fd(), outW.Fd(), command)
	_, _ = inR.Close(), outW.Close()
	if err != nil {
		return nil, err
	}
	return &life{pid, inW, outR}, nil
}

func (b *bench) fork(v variant, stdin, stdout uintptr, command []string) (int, error) {
	argv := append(slices.Clone(v.argv), command...)
	attr := &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{stdin, stdout, 2},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	if v.pid1 {
		attr.Sys.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
	}
	return syscall.ForkExec(argv[0], argv, attr)
}

// run runs a variant around a command to its end, without pipes where out is nil.
func (b *bench) run(v variant, out *os.File, command ...string) (usage syscall.Rusage, err error) {
	stdout := null.Fd()
	if out != nil {
		stdout = out.Fd()
	}
	pid, err := b.fork(v, null.Fd(), stdout, command)
	if err != nil {
		return usage, err
	}
	return usage, wait(pid, &usage)
}

// wait reaps one process, which must have ended with status 0.
func wait(pid int, usage *syscall.Rusage) error {
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, 0, usage)
	for err == syscall.EINTR {
		_, err = syscall.Wait4(pid, &status, 0, usage)
	}
	if err == nil && status != 0 {
		err = fmt.Errorf("process %d ended with wait status %#x", pid, int(status))
	}
	return err
}

var null = func() *os.File {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	return f
}()
