package life

import (
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// epoch is when worlds begin. So a Duration that is longer than half of that is an instant, and any other is a span of time.
const epoch = 1000 * time.Second

// A handle is a process's own for good, as a pidfd is; 0 is init, which is no part of a world.
type handle int

// A digest is the hash of a world: worlds with the same digest have the same future. Every field counts, also of the product's
// machines, except that
//   - an instant counts by how far from now it is, up to a second ago, and by who lived then
//   - a handle counts by its process's place in the world
//   - of the rules only what a machine may overrule counts, because the rest never changes
//   - what the loop no longer counts makes no difference: see standstill
type digest struct {
	maphash.Hash
	w *world
}

func (w *world) digest(seed maphash.Seed) uint64 {
	d := &digest{w: w}
	d.SetSeed(seed)
	for _, p := range w.procs() {
		is := *p
		is.id, is.parent = d.place(p.id), d.place(p.parent)
		is.start = max(p.start/tick*tick+tick-w.now, 0) // or any time ago: instants know who lived
		is.mark.orphanedAt, is.mark.askedAt = w.age(p.mark.orphanedAt), w.age(p.mark.askedAt)
		maphash.WriteComparable(&d.Hash, is)
	}
	d.number(uint64(w.now % tick))
	for _, value := range []any{&w.cast, &w.recent, &w.stdin, &w.traffic, &w.supply.left, &w.supply.used, &w.ghost} {
		d.add(reflect.ValueOf(value).Elem())
	}
	for i := range w.finis {
		if p := w.get(w.finis[i].id); p != nil && p.state != 'Z' {
			d.add(reflect.ValueOf(&w.finis[i]).Elem())
		}
	}
	return d.Sum64()
}

// TestCopiesShareNothing lets a copy go on, and looks whether that has changed what it is a copy of: see clone.
func TestCopiesShareNothing(t *testing.T) {
	random, seed := rand.New(rand.NewPCG(1, 1)), maphash.MakeSeed()
	for i, s := range scenarios(false, 6) {
		if i%7 != 0 {
			continue
		}
		w := s.start()
		for list := w.choices(nil); len(list) > 0 && w.now < epoch+time.Second; list = w.choices(nil) {
			before, next := w.digest(seed), w.clone()
			if next.take(list[random.IntN(len(list))]); w.digest(seed) != before {
				t.Fatalf("%s: a copy has changed the world that it is a copy of", s.name)
			}
			if w = next; w.broken != "" {
				t.Fatal(s.tell(w)) // it would go on and on
			}
		}
	}
}

// age is how long ago an instant of --orphan-timeout was, up to what matters.
func (w *world) age(at time.Duration) time.Duration {
	if at == 0 {
		return 0
	}
	return 1 + min(w.now-at, 2*w.rules.OrphanTimeout+2*w.rules.OrphansGrace+2*w.rules.Grace+lateness)
}

func (d *digest) number(n uint64) { maphash.WriteComparable(&d.Hash, n) }

// place is where a process stands in the world, from 1 on, or 0 if it is gone.
func (d *digest) place(id handle) handle {
	return handle(slices.IndexFunc(d.w.all[:], func(p proc) bool { return p.state != 0 && p.id == id }) + 1)
}

func (d *digest) instant(at time.Duration) {
	age := d.w.now - at
	d.number(uint64(min(age, sameEnd+ms)))
	if age <= 0 {
		return
	}
	lived := uint64(0)
	for i, p := range d.w.procs() {
		switch {
		case p.lived(at):
			lived |= 1 << (2 * i)
		case p.start/tick*tick == at: // that is this process's start
			lived |= 2 << (2 * i)
		}
	}
	d.number(lived)
}

// varies are the fields of Rules that a machine may change.
var varies = slices.DeleteFunc(reflect.VisibleFields(reflect.TypeFor[Rules]()), func(f reflect.StructField) bool {
	return f.Name != "Orphans" && f.Name != "Allow"
})

func (d *digest) add(v reflect.Value) {
	switch is, kind := v.Type(), v.Kind(); {
	case v.CanInt() && v.Int() > int64(epoch/2):
		d.instant(time.Duration(v.Int()))
	case is == reflect.TypeFor[handle]():
		d.number(uint64(d.place(handle(v.Int()))))
	case v.CanInt():
		d.number(uint64(v.Int()))
	case v.CanUint():
		d.number(v.Uint())
	case kind == reflect.Bool:
		d.number(uint64(boolToInt(v.Bool())))
	case kind == reflect.String:
		maphash.WriteComparable(&d.Hash, v.String())
	case kind == reflect.Array, kind == reflect.Slice:
		d.number(uint64(v.Len()))
		for i := range v.Len() {
			d.add(v.Index(i))
		}
	case kind == reflect.Map: // by pids
		d.number(uint64(v.Len()))
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return int(a.Int() - b.Int()) })
		for _, key := range keys {
			d.add(key)
			d.add(v.MapIndex(key))
		}
	case is == reflect.TypeFor[Kernel](), kind == reflect.Pointer && v.IsNil(), kind == reflect.Interface && v.IsNil():
		d.number(0)
	case kind == reflect.Interface:
		maphash.WriteComparable(&d.Hash, v.Elem().Type())
		d.add(v.Elem())
	case kind == reflect.Pointer:
		d.add(v.Elem())
	case is == reflect.TypeFor[Rules]():
		for _, field := range varies {
			d.add(v.FieldByIndex(field.Index))
		}
	case is == reflect.TypeFor[standstill]():
		d.number(uint64(min(v.Field(1).Int(), idleLooks)))
		d.add(v.Field(0))
		d.add(v.Field(2))
	case kind == reflect.Struct:
		for i := range v.NumField() {
			d.add(v.Field(i))
		}
	default:
		panic("a field of another kind: " + is.String())
	}
}
