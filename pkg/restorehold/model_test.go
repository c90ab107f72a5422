// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package restorehold_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/restorehold"
)

// world is a cluster: its store, and what really runs on its machines. Each step of a component reads only
// what the component can know. The rules are those of package restorehold; everything else is as simple as
// possible.
type world struct {
	*rand.Rand
	store    history
	backup   history
	lost     *history // the history that machines that are cut off may still see; nil if there is none
	machines map[string]*machine
	uids     int
	clock    int64
	log      []string
}

// history is the content of a store. Its revision tells histories apart, as the bump at a restore does.
type history struct {
	number int
	nodes  map[string]*v1.Node
	pods   map[string]*v1.Pod // by name
}

// machine is what really happens on a node.
type machine struct {
	running map[types.UID]string // names of the pods that have a running container
	alive   map[types.UID]bool   // what the workers of the kubelet remember of held pods
	known   map[types.UID]*v1.Pod
	history int  // number of the history that known is from
	cutOff  bool // the kubelet reaches only the control plane with the lost history
	off     bool
}

func (h history) copy() history {
	out := history{h.number, map[string]*v1.Node{}, map[string]*v1.Pod{}}
	for name, n := range h.nodes {
		out.nodes[name] = n.DeepCopy()
	}
	for name, p := range h.pods {
		out.pods[name] = p.DeepCopy()
	}
	return out
}

func (h history) waiting() bool {
	for _, n := range h.nodes {
		if restorehold.Waiting(n) {
			return true
		}
	}
	return false
}

func (w *world) notef(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), machines: map[string]*machine{},
		store: history{1, map[string]*v1.Node{}, map[string]*v1.Pod{}}}
	for i := range 2 + w.IntN(3) {
		w.join(fmt.Sprint("n", i))
	}
	return w
}

// join adds a machine, whose kubelet registers its Node.
func (w *world) join(name string) {
	w.machines[name] = &machine{running: map[types.UID]string{}, alive: map[types.UID]bool{},
		known: map[types.UID]*v1.Pod{}, history: w.store.number}
	w.register(name)
}

// register creates the Node of a machine. The API server marks it if the cluster waits for another node.
func (w *world) register(name string) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if w.store.waiting() {
		metav1.SetMetaDataLabel(&n.ObjectMeta, restorehold.Unreported, "1")
	}
	w.store.nodes[name] = n
}

// keys returns the keys of a map in order, so that a seed always gives the same history.
func keys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// anyMachine returns the name of a random machine.
func (w *world) anyMachine() string {
	names := keys(w.machines)
	return names[w.IntN(len(names))]
}

// createPods is the StatefulSet controller. The API server holds the pods.
func (w *world) createPods(h *history) {
	for _, name := range []string{"db-0", "db-1"} {
		if h.pods[name] != nil {
			continue
		}
		w.uids++
		yes := true
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint("u", w.uids)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Controller: &yes}}}}
		if restorehold.HasIdentity(p) && h.waiting() {
			metav1.SetMetaDataLabel(&p.ObjectMeta, restorehold.Held, "1")
		}
		if w.IntN(4) == 0 {
			p.Spec.NodeName = w.anyMachine() // the template names a node
		}
		h.pods[name] = p
	}
}

// bind is the scheduler.
func (w *world) bind(h *history) {
	for _, pod := range keys(h.pods) {
		p := h.pods[pod]
		if p.Spec.NodeName != "" || restorehold.IsHeld(p) {
			continue
		}
		node := w.anyMachine()
		if n := h.nodes[node]; n != nil && !restorehold.IsFenced(n) {
			p.Spec.NodeName = node
		}
	}
}

// release is the controller.
func (w *world) release(h *history) {
	if h.waiting() {
		return
	}
	for _, p := range h.pods {
		delete(p.Labels, restorehold.Held)
	}
}

// deletePod deletes a pod gracefully: its kubelet has to end it first. Without a node that is immediate.
func (w *world) deletePod(h *history) {
	for _, pod := range keys(h.pods) {
		if p := h.pods[pod]; w.IntN(2) == 0 {
			now := metav1.Now()
			p.DeletionTimestamp = &now
			if p.Spec.NodeName == "" {
				delete(h.pods, p.Name)
			}
		}
	}
}

// removeFenced is the taint manager together with the collector of pods: it deletes the pods of fenced
// nodes by force.
func (w *world) removeFenced(h *history) {
	for _, p := range h.pods {
		if n := h.nodes[p.Spec.NodeName]; n != nil && restorehold.IsFenced(n) {
			delete(h.pods, p.Name)
		}
	}
}

// view returns the history that a machine's kubelet sees, or nil.
func (w *world) view(m *machine) *history {
	if m.cutOff {
		return w.lost
	}
	return &w.store
}

// follow makes a kubelet list its pods. A kubelet that has seen a newer history rejects an older one.
func (w *world) follow(name string) {
	m := w.machines[name]
	h := w.view(m)
	if m.off || h == nil || h.number < m.history {
		return
	}
	if h.nodes[name] == nil && h == &w.store {
		w.register(name) // before a list, as kubelets do
	}
	m.history, m.known = h.number, map[types.UID]*v1.Pod{}
	for _, p := range h.pods {
		if p.Spec.NodeName == name {
			m.known[p.UID] = p.DeepCopy()
		}
	}
	for uid := range m.alive {
		if m.known[uid] == nil {
			delete(m.alive, uid) // its worker ends
		}
	}
}

// work makes the workers of a kubelet do one step for each pod, with what the kubelet knows.
func (w *world) work(name string) {
	m := w.machines[name]
	if m.off {
		return
	}
	for _, uid := range keys(m.running) {
		if m.known[uid] == nil && w.IntN(2) == 0 {
			delete(m.running, uid)
		}
	}
	h := w.view(m)
	for _, uid := range keys(m.known) {
		p := m.known[uid]
		_, runs := m.running[uid]
		switch {
		case p.DeletionTimestamp != nil && runs:
			delete(m.running, uid)
		case p.DeletionTimestamp != nil:
			// The API server denies the writes of a fenced node.
			if h != nil && h.number == m.history && h.pods[p.Name] != nil && h.pods[p.Name].UID == uid &&
				(h.nodes[name] == nil || !restorehold.IsFenced(h.nodes[name])) {
				delete(h.pods, p.Name)
			}
		case runs:
			m.alive[uid] = m.alive[uid] || restorehold.IsHeld(p)
			if w.IntN(5) == 0 {
				delete(m.running, uid) // the container exits
			}
		case restorehold.MayRun(p, m.alive[uid]):
			m.running[uid] = p.Name
		}
	}
}

// report makes a kubelet report its node, if all pods that it does not know have ended.
func (w *world) report(name string) {
	m := w.machines[name]
	h := w.view(m)
	if m.off || h == nil || h.number != m.history || h.nodes[name] == nil || !restorehold.Waiting(h.nodes[name]) {
		return
	}
	w.follow(name)
	for uid := range m.running {
		if m.known[uid] == nil {
			return
		}
	}
	w.notef("%s reports", name)
	delete(h.nodes[name].Labels, restorehold.Unreported)
}

// fence turns a machine off, and fences its node.
func (w *world) fence(name string) {
	m := w.machines[name]
	w.turnOff(m)
	if n := w.store.nodes[name]; n != nil {
		w.notef("fence %s", name)
		w.clock++
		restorehold.Fence(n, time.Unix(w.clock, 0))
	}
}

// turnOff turns a machine off. Its kubelet forgets everything.
func (w *world) turnOff(m *machine) {
	m.off = true
	m.running, m.alive, m.known = map[types.UID]string{}, map[types.UID]bool{}, map[types.UID]*v1.Pod{}
}

// unfence ends the fence of a node, and turns its machine on.
func (w *world) unfence(name string) {
	m := w.machines[name]
	if n := w.store.nodes[name]; n != nil {
		w.notef("unfence %s", name)
		restorehold.EndFence(n)
	}
	m.off, m.cutOff = false, false
}

// restore restores the backup. Some machines remain cut off with the lost history.
func (w *world) restore() {
	w.notef("restore")
	lost := w.store
	w.lost = &lost
	number := w.store.number + 1
	w.store = w.backup.copy()
	w.store.number = number
	for _, name := range keys(w.machines) {
		w.machines[name].cutOff = w.IntN(3) == 0
		if w.store.nodes[name] == nil { // from the file of known machines
			w.store.nodes[name] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
	}
	w.clock++
	for _, n := range w.store.nodes {
		restorehold.EndFence(n)
		metav1.SetMetaDataLabel(&n.ObjectMeta, restorehold.Unreported, restorehold.Value(w.clock))
	}
	for _, p := range w.store.pods {
		if restorehold.HasIdentity(p) {
			metav1.SetMetaDataLabel(&p.ObjectMeta, restorehold.Held, restorehold.Value(w.clock))
		}
	}
}

// step is one step of one component, at random.
func (w *world) step() {
	h, name := &w.store, w.anyMachine()
	if w.lost != nil && w.IntN(4) == 0 {
		h = w.lost // the control plane with the lost history goes on
	}
	switch w.IntN(16) {
	case 0, 1:
		w.createPods(h)
	case 2, 3:
		w.bind(h)
	case 4:
		w.release(h)
	case 5:
		w.deletePod(h)
	case 6:
		w.removeFenced(h)
	case 7, 8:
		w.follow(name)
	case 9, 10, 11:
		w.work(name)
	case 12, 13:
		w.report(name)
	case 14:
		w.rare(name)
	case 15:
		w.machines[name].cutOff = false
	}
}

// rare is one of the rare steps.
func (w *world) rare(name string) {
	switch w.IntN(9) {
	case 0, 1:
		w.fence(name)
	case 2, 3:
		w.unfence(name)
	case 4:
		w.backup = w.store.copy()
	case 5:
		w.restore()
	case 6:
		clear(w.machines[name].alive) // the kubelet restarts
	case 7:
		if len(w.machines) < 5 {
			w.join(fmt.Sprint("n", len(w.machines)))
		}
	case 8:
		w.machines[name].cutOff = true
	}
}

// twice returns the name of a pod that runs twice, or "".
func (w *world) twice() string {
	count := map[string]int{}
	for _, m := range w.machines {
		for _, name := range m.running {
			if count[name]++; count[name] > 1 {
				return name
			}
		}
	}
	return ""
}

// TestNoIdentityRunsTwice runs many random histories with restores, and checks after each step that no
// two pods with one identity run.
func TestNoIdentityRunsTwice(t *testing.T) {
	const histories = 5000
	ran := 0
	for seed := range uint64(histories) {
		w := newWorld(seed)
		w.backup = w.store.copy()
		for range 150 {
			w.step()
			if name := w.twice(); name != "" {
				t.Fatalf("seed %d: %s runs twice; %s", seed, name, strings.Join(w.log, ", "))
			}
		}
		// When all machines are on and see the restored store, everything starts again.
		for range 200 {
			name := w.anyMachine()
			w.unfence(name)
			w.createPods(&w.store)
			w.bind(&w.store)
			w.release(&w.store)
			w.follow(name)
			w.work(name)
			w.report(name)
		}
		for _, m := range w.machines {
			ran += len(m.running)
		}
		if w.store.waiting() {
			t.Fatalf("seed %d: the cluster waits forever; %s", seed, strings.Join(w.log, ", "))
		}
	}
	if ran < histories {
		t.Errorf("%d pods ran at the end of %d histories", ran, histories)
	}
}
