// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	modelHard = 12
	// In the model, requestLife is the maximum duration of a request, and eventLife the maximum
	// delay of an event.
	requestLife, eventLife = 60 * time.Second, 30 * time.Second
)

// world is a simple model of API servers, their store with one quota, and a controller that sees
// the objects and the quota with a delay. Each step is one action of one process.
type world struct {
	*testing.T
	random   *rand.Rand
	now      time.Time
	revision int64
	stored   map[types.UID]modelObject
	writing  []modelWrite
	quota    *v1.ResourceQuota
	events   []modelEvent        // all events, in order; see the field seen
	quotas   []*v1.ResourceQuota // versions of the quota that the controller's cache does not show yet

	seen   int // number of events that the controller has seen
	cached *v1.ResourceQuota
	tally  *tally
	begun  *modelStatusWrite
	ids    int
}

type modelObject struct {
	usage   int64
	created time.Time
}

// modelWrite is a request that has charged the quota but whose object is not stored yet.
type modelWrite struct {
	uid    types.UID
	add    int64
	begun  time.Time
	create bool
}

type modelEvent struct {
	uid      types.UID
	revision int64
	object   modelObject // state of the object; usage is 0 if it was deleted
	at       time.Time
}

type modelStatusWrite struct {
	base *v1.ResourceQuota
	plan plan
}

func amount(n int64) v1.ResourceList {
	if n == 0 {
		return nil
	}
	return v1.ResourceList{"pods": *resource.NewQuantity(n, resource.DecimalSI)}
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{T: t, random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0),
		stored: map[types.UID]modelObject{}}
	w.quota = &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{UID: "q"}}
	w.quota.Status.Hard = amount(modelHard)
	w.setUsed(0)
	w.quotas = nil
	w.cached = w.quota
	w.restart()
	return w
}

func (w *world) used() int64 { return ptr.To(w.quota.Status.Used["pods"]).Value() }

func (w *world) setUsed(n int64) {
	w.revision++
	next := w.quota.DeepCopy()
	next.ResourceVersion = strconv.FormatInt(w.revision, 10)
	next.Status.Used = v1.ResourceList{"pods": *resource.NewQuantity(n, resource.DecimalSI)}
	w.quota, w.quotas = next, append(w.quotas, next)
}

// charge models admission: if the quota has room for n more, it charges n for a create or an update
// of an object.
func (w *world) charge(uid types.UID, n int64, create bool) {
	if w.used()+n > modelHard {
		return
	}
	w.setUsed(w.used() + n)
	w.writing = append(w.writing, modelWrite{uid, n, w.now, create})
}

func (w *world) put(uid types.UID, o modelObject) {
	w.revision++
	if o.usage == 0 {
		delete(w.stored, uid)
	} else {
		w.stored[uid] = o
	}
	w.events = append(w.events, modelEvent{uid, w.revision, o, w.now})
}

// finish ends the write with the given index. If ok is true, the object is stored; otherwise the
// write fails.
func (w *world) finish(at int, ok bool) {
	f := w.writing[at]
	w.writing = slices.Delete(w.writing, at, at+1)
	o, exists := w.stored[f.uid]
	if !ok || f.create == exists {
		return
	}
	if !exists {
		o.created = f.begun.Truncate(time.Second)
	}
	o.usage += f.add
	w.put(f.uid, o)
}

func (w *world) anyStored() types.UID {
	uids := slices.Sorted(maps.Keys(w.stored))
	if len(uids) == 0 {
		return ""
	}
	return uids[w.random.IntN(len(uids))]
}

// deliver passes the next event to the controller.
func (w *world) deliver() {
	if w.seen == len(w.events) {
		return
	}
	e := w.events[w.seen]
	w.seen++
	w.tally.set(&metav1.ObjectMeta{UID: e.uid, CreationTimestamp: metav1.Time{Time: e.object.created}},
		e.revision, amount(e.object.usage))
}

func (w *world) deliverQuota() {
	if len(w.quotas) > 0 {
		w.cached, w.quotas = w.quotas[0], w.quotas[1:]
		w.tally.observe(w.cached)
	}
}

// restart replaces the controller by a new one. The first list of the new controller may be older
// than the last event that the old controller has seen.
func (w *world) restart() {
	w.begun = nil
	w.seen = max(0, w.seen-w.random.IntN(5))
	listed := map[types.UID]modelObject{}
	for _, e := range w.events[:w.seen] {
		listed[e.uid] = e.object
	}
	w.tally = newTally(w.quota)
	w.tally.limit([]v1.ResourceName{"pods"})
	for uid, o := range listed {
		w.tally.set(&metav1.ObjectMeta{UID: uid, CreationTimestamp: metav1.Time{Time: o.created}},
			math.MaxInt64, amount(o.usage))
	}
}

// begin makes the controller compute a new status, and end makes it write this status.
func (w *world) begin(q *v1.ResourceQuota) {
	w.begun = &modelStatusWrite{q, w.tally.next(q, w.now)}
}

func (w *world) end(answered bool) {
	b := w.begun
	w.begun = nil
	n := ptr.To(b.plan.used["pods"]).Value()
	if n == ptr.To(b.base.Status.Used["pods"]).Value() {
		return
	}
	if b.base.ResourceVersion != w.quota.ResourceVersion {
		return
	}
	w.setUsed(n)
	if answered {
		w.tally.wrote(b.plan, w.revision)
	} else {
		w.tally.wrote(b.plan, 0)
	}
}

func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for i := len(w.writing) - 1; i >= 0; i-- {
		if w.now.Sub(w.writing[i].begun) >= requestLife {
			w.finish(i, false)
		}
	}
	for w.seen < len(w.events) && w.now.Sub(w.events[w.seen].at) >= eventLife {
		w.deliver()
	}
}

func (w *world) step() {
	switch n := w.random.IntN(100); {
	case n < 25:
		w.ids++
		w.charge(types.UID(fmt.Sprintf("n%d", w.ids)), 1+w.random.Int64N(3), true)
	case n < 30:
		if uid := w.anyStored(); uid != "" {
			w.charge(uid, 1, false)
		}
	case n < 50:
		if len(w.writing) > 0 {
			w.finish(w.random.IntN(len(w.writing)), w.random.IntN(10) > 0)
		}
	case n < 62:
		if uid := w.anyStored(); uid != "" {
			w.put(uid, modelObject{})
		}
	case n < 65:
		if uid := w.anyStored(); uid != "" {
			o := w.stored[uid]
			w.put(uid, modelObject{max(1, o.usage-1), o.created})
		}
	case n < 78:
		w.deliver()
	case n < 85:
		w.deliverQuota()
	case n < 90:
		if w.begun == nil {
			w.begin(w.cached)
		}
	case n < 93:
		if w.begun == nil {
			w.begin(w.quota)
		}
	case n < 97:
		if w.begun != nil {
			w.end(w.random.IntN(20) > 0)
		}
	case n < 99:
		w.pass(time.Duration(w.random.IntN(20000)) * time.Millisecond)
	default:
		if w.random.IntN(5) == 0 {
			w.restart()
		}
	}
}

func (w *world) check(step int) {
	w.Helper()
	stored, writing := int64(0), int64(0)
	for _, o := range w.stored {
		stored += o.usage
	}
	for _, f := range w.writing {
		writing += f.add
	}
	if used := w.used(); stored > modelHard || stored+writing > used {
		w.Fatalf("step %d: %d stored and %d being written, status.used is %d of %d", step, stored, writing, used, modelHard)
	}
}

// TestTallyModel checks that with any order of events status.used is at least the usage of stored
// objects and of objects that are being written, and at the end equals the usage of stored objects.
func TestTallyModel(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := newWorld(t, seed)
			for step := range 1500 {
				w.step()
				w.check(step)
			}
			for range 4 {
				w.pass(chargeLife)
				for len(w.quotas) > 0 {
					w.deliverQuota()
				}
				w.begin(w.quota)
				w.end(true)
				w.check(-1)
			}
			stored := int64(0)
			for _, o := range w.stored {
				stored += o.usage
			}
			if w.used() != stored {
				t.Fatalf("at the end status.used is %d, and %d are stored", w.used(), stored)
			}
		})
	}
}

// TestTallyUnderChurn checks that an excess is removed even if objects are created and deleted all
// the time.
func TestTallyUnderChurn(t *testing.T) {
	w := newWorld(t, 1)
	w.charge("n0", 9, true)
	w.finish(0, false)
	for i := range 600 {
		uid := types.UID(fmt.Sprintf("n%d", i+1))
		w.charge(uid, 1, true)
		w.pass(time.Second)
		w.finish(0, true)
		w.put(uid, modelObject{})
		for w.seen < len(w.events) {
			w.deliver()
		}
		w.begin(w.quota)
		w.end(true)
		w.check(i)
	}
	if w.used() > 3 {
		t.Errorf("status.used is still %d", w.used())
	}
}
