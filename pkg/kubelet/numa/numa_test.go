// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

func layoutOf(nodes int) *Layout {
	l := &Layout{}
	for i := range nodes {
		n := Node{ID: i}
		for j := range nodes {
			n.Distances = append(n.Distances, 10+10*max(i-j, j-i))
		}
		l.Nodes = append(l.Nodes, n)
	}
	return l
}

func yes(nodes ...int) Hint { return Hint{Nodes: MaskOf(nodes...), Preferred: true} }
func no(nodes ...int) Hint  { return Hint{Nodes: MaskOf(nodes...)} }

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		nodes    int // number of nodes of the machine; 2 if not set
		hints    []Hints
		want     Hint
		ok       map[string]bool // policies that admit the pod
		closest  bool
		ofSingle *Hint // result with the policy single-numa-node, if it differs
	}{
		"no preferences": {hints: []Hints{nil, {"a": nil}}, want: yes(0, 1),
			ok: map[string]bool{PolicyRestricted: true, PolicySingleNode: true}, ofSingle: &Hint{Preferred: true}},
		"both on one node": {
			hints: []Hints{{"a": {yes(0), yes(1), no(0, 1)}}, {"b": {yes(1), no(0, 1)}}}, want: yes(1),
			ok: map[string]bool{PolicyRestricted: true, PolicySingleNode: true},
		},
		"different nodes": {
			hints: []Hints{{"a": {yes(0), no(0, 1)}}, {"b": {yes(1), no(0, 1)}}}, want: no(0),
			ofSingle: &Hint{}, // empty, because all nodes are the same as no preference
		},
		"not available": {hints: []Hints{{"a": {}}, {"b": {yes(1)}}}, want: no(1), ofSingle: &Hint{}},
		"needs two nodes": {hints: []Hints{{"a": {yes(0, 1)}}}, want: yes(0, 1),
			ok: map[string]bool{PolicyRestricted: true}, ofSingle: &Hint{}},
		"two of four nodes": {nodes: 4, hints: []Hints{{"a": {yes(0, 3), yes(1, 2)}}}, want: yes(1, 2),
			ok: map[string]bool{PolicyRestricted: true}, ofSingle: &Hint{}},
		"closest nodes": {nodes: 4, closest: true, hints: []Hints{{"a": {yes(0, 2), yes(2, 3)}}},
			want: yes(2, 3), ok: map[string]bool{PolicyRestricted: true}, ofSingle: &Hint{}},
		"lowest numbers": {nodes: 4, hints: []Hints{{"a": {yes(0, 2), yes(2, 3)}}}, want: yes(0, 2),
			ok: map[string]bool{PolicyRestricted: true}, ofSingle: &Hint{}},
		"largest demand": {nodes: 4, hints: []Hints{{"a": {no(0), no(0, 1), no(0, 1, 2)}},
			{"b": {no(0, 1), no(0, 1, 2)}}}, want: no(0, 1), ofSingle: &Hint{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := layoutOf(max(c.nodes, 2))
			for _, policy := range []string{PolicyBestEffort, PolicyRestricted, PolicySingleNode} {
				m := &Manager{cfg: Config{Layout: l, Policy: policy}, closest: c.closest}
				want := c.want
				if policy == PolicySingleNode && c.ofSingle != nil {
					want = *c.ofSingle
				}
				got, ok := m.decide(c.hints)
				if got != want || ok != (policy == PolicyBestEffort || c.ok[policy]) {
					t.Errorf("%s: %v %v %v, want %v %v", policy, got.Nodes.Nodes(), got.Preferred, ok,
						want.Nodes.Nodes(), want.Preferred)
				}
			}
		})
	}
}

// TestMergeProperties checks three properties of merging: the result is a combination of one hint
// from each list, it is preferred if a preferred combination exists, and it does not depend on the
// order of the providers.
func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layoutOf(rapid.IntRange(1, 4).Draw(t, "nodes"))
		sets := Subsets(l.NodeIDs())
		var all [][]Hint
		for range rapid.IntRange(0, 4).Draw(t, "lists") {
			all = append(all, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Hint {
				return Hint{rapid.SampledFrom(append(sets, 0)).Draw(t, "set"), rapid.Bool().Draw(t, "preferred")}
			}), 0, 4).Draw(t, "list"))
		}
		got := merge(l, false, all)
		possible := []Hint{yes(l.NodeIDs()...)}
		for _, list := range all {
			var next []Hint
			for _, p := range possible {
				for _, h := range list {
					q := Hint{p.Nodes, p.Preferred && h.Preferred}
					if h.Nodes != 0 {
						q.Nodes &= h.Nodes
					}
					next = append(next, q)
				}
			}
			possible = next
		}
		possible = slices.DeleteFunc(possible, func(h Hint) bool { return h.Nodes == 0 })
		switch {
		case len(possible) == 0:
			if got != no(l.NodeIDs()...) {
				t.Fatalf("%v from no hints", got)
			}
		case !slices.ContainsFunc(possible, func(h Hint) bool {
			return h.Nodes == got.Nodes &&
				(h.Preferred || !got.Preferred)
		}):
			t.Fatalf("%v is none of %v", got, possible)
		}
		slices.Reverse(all)
		if again := merge(l, false, all); again.Preferred != got.Preferred || again.Nodes.Count() != got.Nodes.Count() {
			t.Fatalf("%v, the other way round %v", got, again)
		}
	})
}

// player is a provider with fixed hints (sets of NUMA nodes). It records which hints Allocate gets.
type player struct {
	hints Hints
	given []string
	err   error
}

func (p *player) Hints(*v1.Pod, *v1.Container) Hints { return p.hints }
func (p *player) PodHints(*v1.Pod) Hints             { return p.hints }

func (p *player) Allocate(_ context.Context, _ *v1.Pod, c *v1.Container, near Hint) error {
	p.given = append(p.given, fmt.Sprint(c.Name, near.Nodes.Nodes()))
	return p.err
}

func TestAdmit(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}}, Containers: []v1.Container{{Name: "c"}}}}
	for name, c := range map[string]struct {
		policy, scope string
		hints         Hints
		err           error
		given, want   string
	}{
		"none":      {policy: "", hints: Hints{"a": {}}, given: "[i[] c[]]"},
		"container": {policy: PolicyRestricted, hints: Hints{"a": {yes(1)}}, given: "[i[1] c[1]]"},
		"pod": {policy: PolicySingleNode, scope: ScopePod,
			hints: Hints{"a": {yes(1)}}, given: "[i[1] c[1]]"},
		"container scope, different nodes": {policy: PolicyRestricted, hints: Hints{"a": {}}, given: "[]",
			want: messageAffinity},
		"pod scope, different nodes": {policy: PolicySingleNode, scope: ScopePod,
			hints: Hints{"a": {yes(0, 1)}}, given: "[]", want: messagePod},
		"cannot": {policy: PolicyBestEffort, hints: Hints{"a": {}},
			err: errors.New("no"), given: "[i[0 1]]", want: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &player{hints: c.hints, err: c.err}
			m, err := New(Config{Layout: layoutOf(2), Policy: c.policy, Scope: c.scope, Providers: []Provider{p}})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := m.Admit(t.Context(), pod); err != nil {
				got = err.Error()
			}
			if got != c.want || fmt.Sprint(p.given) != c.given {
				t.Errorf("%q, given %v", got, p.given)
			}
		})
	}
}

func TestConfiguration(t *testing.T) {
	for name, c := range map[string]Config{
		"policy":                    {Policy: "x"},
		"scope":                     {Scope: "x"},
		"option":                    {Options: map[string]string{"x": "true"}},
		"value":                     {Options: map[string]string{optionClosest: "x"}},
		"maximum below the minimum": {Options: map[string]string{optionMaximum: "7"}},
		"too many nodes":            {Policy: PolicyRestricted, Layout: layoutOf(9)},
	} {
		if c.Layout == nil {
			c.Layout = layoutOf(1)
		}
		if _, err := New(c); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := New(Config{Layout: layoutOf(9), Policy: PolicyRestricted,
		Options: map[string]string{optionMaximum: "9", optionClosest: "true"}}); err != nil {
		t.Error(err)
	}
}

func TestRead(t *testing.T) {
	sys := t.TempDir()
	put := func(path, content string) {
		path = filepath.Join(sys, "devices/system", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("cpu/online", "0-3")
	for i := range 4 { // two sockets, each with one NUMA node and one core with two threads
		at := fmt.Sprintf("cpu/cpu%d/", i)
		put(at+"topology/thread_siblings_list", fmt.Sprintf("%d,%d", i%2, i%2+2))
		put(at+"topology/physical_package_id", fmt.Sprint(i%2))
		put(at+"cache/index2/level", "2")
		put(at+"cache/index3/level", "3")
		put(at+"cache/index3/shared_cpu_list", fmt.Sprintf("%d,%d", i%2, i%2+2))
	}
	for i := range 2 {
		at := fmt.Sprintf("node/node%d/", i)
		put(at+"cpulist", fmt.Sprintf("%d,%d", i, i+2))
		put(at+"meminfo", fmt.Sprintf("Node %d MemTotal:       1024 kB\nNode %d MemFree: 1 kB", i, i))
		put(at+"distance", []string{"10 21", "21 10"}[i])
		put(at+"hugepages/hugepages-2048kB/nr_hugepages", "3")
	}
	l, err := Read(sys, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := (CPU{ID: 3, Core: 1, Socket: 1, Node: 1, Cache: 1}); l.CPUs[3] != want || len(l.CPUs) != 4 {
		t.Errorf("CPUs %v", l.CPUs)
	}
	if n := l.Nodes[1]; n.Memory != 1<<20 || n.HugePages[2<<20] != 6<<20 || !slices.Equal(n.Distances, []int{21, 10}) {
		t.Errorf("node %v", n)
	}
	if got := l.CPUsOf(MaskOf(1)).String(); got != "1,3" {
		t.Errorf("CPUs of node 1: %s", got)
	}
	own, err := Read("/sys", 1<<30)
	if err != nil || len(own.CPUs) == 0 || own.Nodes[0].Memory == 0 {
		t.Errorf("this machine: %+v, %v", own, err)
	}
	bare := t.TempDir()
	sys = bare
	put("cpu/online", "0")
	if l, err := Read(bare, 5); err != nil || l.Nodes[0].Memory != 5 || len(l.CPUs) != 1 {
		t.Errorf("without nodes: %+v, %v", l, err)
	}
}
