package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The names of the measures.
const (
	wall           = "wall time of `true`"
	cpu            = "CPU time of `true`"
	end            = "main child's end to the init's end"
	latency        = "forwarded signal"
	orphanCPU      = "CPU for each orphan"
	orphanSwitches = "context switches for each orphan"
	idle           = "context switches while idle"
	memory         = "private dirty memory"
	size           = "binary"
	left1          = "end with 1 leftover"
	left1000       = "end with 1,000 leftovers among 3,000 processes"
	sweepEach      = "cost of a sweep for each other process"
)

type measure struct{ name, unit string }

var measures = []measure{
	{wall, "ms"}, {cpu, "ms"}, {end, "ms"}, {latency, "µs"}, {orphanCPU, "µs"}, {orphanSwitches, "number"},
	{idle, "number"}, {memory, "kB"}, {size, "MB"}, {left1, "ms"}, {left1000, "ms"}, {sweepEach, "µs"},
}

// The spread is from the 10th to the 90th percentile. Of signals the slowest are of interest.
func (m measure) low() float64 { return 0.1 }

func (m measure) high() float64 {
	if m.name == latency {
		return 0.99
	}
	return 0.9
}

func (m measure) spreadName() string {
	return fmt.Sprintf("p%.0f to p%.0f", 100*m.low(), 100*m.high())
}

// base is what the ratio is to.
func (m measure) base(variant string) string {
	switch m.name {
	case orphanCPU, orphanSwitches:
		if strings.HasSuffix(variant, ", PID 1") {
			return staticPID1
		}
		return tiniStatic
	case left1000:
		return killLoop
	case wall, cpu:
		return against(variant)
	}
	if variant == finiPair {
		return tini
	}
	return against(variant)
}

// measure takes all measures.
func (b *bench) measure() error {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"start-up", b.startUp},
		{"idleness, memory, signals", b.together},
		{"orphans", b.manyOrphans},
		{"leftovers", b.leftovers},
	} {
		began := time.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s: %.0f s\n", step.what, time.Since(began).Seconds())
	}
	for _, v := range b.variants {
		if len(v.argv) > 0 && v.argv[0] != b.self {
			b.add(size, v.name, sizeOf(v.argv[0]))
		}
	}
	return nil
}

// startUp runs `true` and the clock. The CPU time is that of the init and of all that it has
// waited for, the command too.
func (b *bench) startUp() error {
	for range b.rounds {
		for _, v := range shuffled(b.variants) {
			before := monotonic()
			usage, err := b.run(v, nil, b.truePath)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			b.add(wall, v.name, float64(monotonic()-before)/1e6)
			b.add(cpu, v.name, float64(usage.Utime.Nano()+usage.Stime.Nano())/1e6)
		}
		for _, v := range shuffled(b.variants) {
			took, err := b.ending(v, b.self, "@clock")
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			b.add(end, v.name, took)
		}
	}
	return nil
}

// shuffled is in another order each time: in one order each would run behind the same other one, which is still
// being taken away then, and by which processor it leaves free it changes times by a fifth or more.
func shuffled(variants []variant) []variant {
	order := slices.Clone(variants)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// ending runs a command that says the clock when it ends, and returns how many milliseconds
// later the variant has ended.
func (b *bench) ending(v variant, command ...string) (float64, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	if _, err := b.run(v, w, command...); err != nil {
		return 0, err
	}
	after := monotonic()
	before, err := clock(r)
	return float64(after-before) / 1e6, err
}

// clock reads what a command has said.
func clock(r io.Reader) (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	return int64(binary.NativeEndian.Uint64(b[:])), err
}

// ready reads one line, which must be this.
func (l *life) await(line string) error {
	got := make([]byte, len(line)+1)
	if _, err := io.ReadFull(l.out, got); err != nil || string(got) != line+"\n" {
		return fmt.Errorf("the command said %q and not %q: %w", got, line, err)
	}
	return nil
}

// stop ends a life at once.
func (l *life) stop() {
	_, _ = l.stdin.Close(), l.out.Close()
	// The command ends with the init that it is bound to, or by what it reads.
	for _, child := range childrenOf(l.pid) {
		for _, below := range childrenOf(child) {
			_ = syscall.Kill(below, syscall.SIGKILL)
		}
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = syscall.Kill(l.pid, syscall.SIGKILL)
	_ = wait(l.pid, nil)
}

// together measures what needs a process that goes on: all of them at the same time.
func (b *bench) together() error {
	lives := map[string]*life{}
	defer func() {
		for _, l := range lives {
			l.stop()
		}
	}()
	for _, v := range b.variants {
		if !v.lives {
			continue
		}
		l, err := b.start(v, b.self, "@latency")
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		lives[v.name] = l
		if err := l.await("ready"); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	pids := map[string][]int{}
	before := map[string]cost{}
	for name, l := range lives {
		pids[name] = same(l.pid)
		settle(pids[name])
	}
	for name := range lives {
		before[name] = costOf(pids[name])
	}
	time.Sleep(b.idle)
	for name := range lives {
		b.add(idle, name, costOf(pids[name]).switches-before[name].switches)
		dirty := 0.0
		for _, pid := range pids[name] {
			dirty += field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Private_Dirty:")
		}
		b.add(memory, name, dirty)
	}
	for range 500 {
		for _, v := range shuffled(b.variants) {
			l, ok := lives[v.name]
			if !ok {
				continue
			}
			sent := monotonic()
			if err := syscall.Kill(l.pid, syscall.SIGUSR1); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			came, err := clock(l.out)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			b.add(latency, v.name, float64(came-sent)/1e3)
		}
	}
	return nil
}

// settle waits until processes have nothing more to do: no switch in a tenth of a second.
func settle(pids []int) {
	for last := -1.0; ; time.Sleep(100 * time.Millisecond) {
		now := costOf(pids).switches
		if now == last {
			return
		}
		last = now
	}
}

// manyOrphans leaves orphans to each in turn.
func (b *bench) manyOrphans() error {
	const rounds = 5 // that share the orphans
	for range rounds {
		for _, v := range b.variants {
			if !v.adopts {
				continue
			}
			c, err := b.reaping(v, b.orphans/rounds)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			b.add(orphanCPU, v.name, c.cpu/float64(b.orphans/rounds))
			b.add(orphanSwitches, v.name, c.switches/float64(b.orphans/rounds))
		}
	}
	return nil
}

// reaping is what an init uses to reap n orphans.
func (b *bench) reaping(v variant, n int) (c cost, err error) {
	l, err := b.start(v, b.self, "@orphans", strconv.Itoa(n))
	if err != nil {
		return c, err
	}
	defer l.stop()
	if err := l.await("ready"); err != nil {
		return c, err
	}
	pids := same(l.pid)
	settle(pids)
	before := costOf(pids)
	if _, err := l.stdin.WriteString("x"); err != nil {
		return c, err
	}
	if err := l.await("made"); err != nil {
		return c, err
	}
	// All are reaped when the command alone is left to the one that adopts them.
	for len(childrenOf(pids[len(pids)-1])) > 1 {
		time.Sleep(10 * time.Millisecond)
	}
	after := costOf(pids)
	return cost{after.cpu - before.cpu, after.switches - before.switches}, nil
}

// leftovers measures the end of a command that leaves others running.
func (b *bench) leftovers() error {
	var finis []variant
	for _, v := range b.variants {
		if v.leftover {
			v.argv = append(slices.Clone(v.argv), "-q", "--linger=0")
			if v.pid1 {
				v.argv = append([]string{b.self, "@proc"}, v.argv...)
			}
			finis = append(finis, v)
		}
	}
	hidden := finis[0]
	hidden.name = withoutList
	hidden.argv = append([]string{b.self, "@nochildren"}, hidden.argv...)
	if _, err := b.run(hidden, nil, b.truePath); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s can't be measured here: %v\n", hidden.name, err)
	} else {
		finis = append(finis, hidden)
	}

	few, many := map[string][]float64{}, map[string][]float64{}
	each := func(rounds, leftovers int, note func(name string, took float64)) error {
		for range rounds {
			for _, v := range shuffled(finis) {
				if leftovers > 1 && v.pid1 {
					continue // the others are not in its namespace
				}
				took, err := b.ending(v, b.self, "@leave", strconv.Itoa(leftovers), b.sleepPath)
				if err != nil {
					return fmt.Errorf("%s: %w", v.name, err)
				}
				note(v.name, took)
			}
			if leftovers > 1 {
				took, err := b.killLoop(leftovers)
				if err != nil {
					return err
				}
				note(killLoop, took)
			}
		}
		return nil
	}
	const others = 2000
	var sleeping []int
	defer func() { _ = stopAll(sleeping) }()
	for i := range 3 {
		if i > 0 {
			if err := stopAll(sleeping); err != nil {
				return err
			}
			sleeping = nil
		}
		err := each(10, 1, func(name string, took float64) {
			few[name] = append(few[name], took)
			b.add(left1, name, took)
		})
		if err == nil {
			sleeping, err = b.sleepers(others)
		}
		if err == nil {
			err = each(10, 1, func(name string, took float64) { many[name] = append(many[name], took) })
		}
		if err != nil {
			return err
		}
	}
	for _, v := range finis {
		if !v.pid1 {
			b.add(sweepEach, v.name, max(0, quantile(many[v.name], 0.5)-quantile(few[v.name], 0.5))*1000/others)
		}
	}
	return each(5, 1000, func(name string, took float64) { b.add(left1000, name, took) })
}

// sleepers starts processes that are nobody's leftovers. They end with this one.
func (b *bench) sleepers(n int) (pids []int, err error) {
	for range n {
		pid, err := b.fork(variant{argv: []string{b.sleepPath, "1000"}}, null.Fd(), null.Fd(), nil)
		if err != nil {
			return pids, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// stopAll asks processes to end and waits for all of them.
func stopAll(pids []int) error {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	var failed error
	for _, pid := range pids {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// killLoop is how many milliseconds it takes to end processes whose pids are known.
func (b *bench) killLoop(n int) (float64, error) {
	pids, err := b.sleepers(n)
	before := monotonic()
	err = errors.Join(err, stopAll(pids))
	return float64(monotonic()-before) / 1e6, err
}
