// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
	"keelson.dev/keelson/pkg/kubelet/numa"
)

// machineOf returns the layout of a machine. The arguments are the numbers of sockets, of nodes in
// a socket, of cores in a node and of threads in a core. As on real machines, the first threads of
// all cores have lower numbers than all second threads.
func machineOf(sockets, nodes, cores, threads int) *numa.Layout {
	l := &numa.Layout{}
	total := sockets * nodes * cores
	for i := range sockets * nodes {
		l.Nodes = append(l.Nodes, numa.Node{ID: i})
	}
	for id := range total * threads {
		core := id % total
		node := core / cores
		l.CPUs = append(l.CPUs, numa.CPU{ID: id, Core: core, Node: node, Socket: node / nodes,
			Cache: node*cores + core%cores/2*2})
	}
	return l
}

func parse(t interface{ Fatal(args ...any) }, text string) cpuset.CPUSet {
	set, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestTake(t *testing.T) {
	small, two, four := machineOf(1, 1, 4, 2), machineOf(2, 1, 4, 2), machineOf(2, 2, 2, 2)
	for name, c := range map[string]struct {
		layout  *numa.Layout
		options Options
		free    string // free CPUs; empty for all
		needed  int
		want    string
		err     bool
	}{
		"one":                             {layout: small, needed: 1, want: "0"},
		"a core":                          {layout: small, needed: 2, want: "0,4"},
		"a core and a half":               {layout: small, needed: 3, want: "0-1,4"},
		"the half core":                   {layout: small, free: "1-7", needed: 1, want: "4"},
		"everything":                      {layout: small, needed: 8, want: "0-7"},
		"more than free":                  {layout: small, needed: 9, err: true},
		"a socket":                        {layout: two, needed: 8, want: "0-3,8-11"},
		"free socket preferred":           {layout: two, free: "1-15", needed: 8, want: "4-7,12-15"},
		"socket with fewer free CPUs":     {layout: two, free: "0-5,8-11", needed: 2, want: "0,8"},
		"single CPU on the fuller socket": {layout: two, free: "0-5,8-11", needed: 1, want: "4"},
		"a node of two in a socket":       {layout: four, needed: 4, want: "0-1,8-9"},
		"three nodes":                     {layout: four, needed: 12, want: "0-5,8-13"},
		"spread over two": {layout: two, options: Options{AcrossNodes: true}, needed: 10,
			want: "0-2,4-6,8-9,12-13"},
		"fits on one node": {layout: two, options: Options{AcrossNodes: true}, needed: 8, want: "0-3,8-11"},
		"spread, whole cores": {layout: two, options: Options{AcrossNodes: true, FullCores: true},
			needed: 12, want: "0-2,4-6,8-10,12-14"},
		"spread with a remainder": {layout: two, options: Options{AcrossNodes: true, FullCores: true},
			needed: 10, want: "0-2,4-5,8-10,12-13"},
		"spread over fuller nodes": {layout: two, free: "0-3,4", options: Options{AcrossNodes: true},
			needed: 5, want: "0-4"},
		"threads of different cores": {layout: small, options: Options{AcrossCores: true}, needed: 3, want: "0-2"},
		"behind one cache": {layout: small, options: Options{ByCache: true}, free: "1-7",
			needed: 4, want: "2-3,6-7"},
		"behind one cache with a remainder": {layout: small, options: Options{ByCache: true}, free: "1-7",
			needed: 2, want: "1,5"},
		"no cache large enough": {layout: small, options: Options{ByCache: true}, free: "0,2,4,6",
			needed: 4, want: "0,2,4,6"},
		"spread, not enough in total": {layout: two, options: Options{AcrossNodes: true}, free: "0-3",
			needed: 5, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			free := c.layout.All()
			if c.free != "" {
				free = parse(t, c.free)
			}
			got, err := take(c.layout, c.options, free, c.needed)
			if got.String() != c.want || (err != nil) != c.err {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
}

// TestTakeReturnsFreeCPUs checks with random machines and all options that take returns the
// requested number of CPUs and that all of them were free.
func TestTakeReturnsFreeCPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3)
		l := machineOf(n.Draw(t, "sockets"), n.Draw(t, "nodes"), n.Draw(t, "cores"), rapid.IntRange(1, 2).Draw(t, "threads"))
		free := l.Select(func(numa.CPU) bool { return rapid.IntRange(0, 3).Draw(t, "taken") > 0 })
		needed := rapid.IntRange(0, len(l.CPUs)+1).Draw(t, "needed")
		o := rapid.SampledFrom([]Options{{}, {AcrossNodes: true}, {AcrossNodes: true, FullCores: true},
			{AcrossCores: true}, {ByCache: true}, {FullCores: true}}).Draw(t, "options")
		got, err := take(l, o, free, needed)
		if (err != nil) != (needed > free.Size()) {
			t.Fatalf("%d of %s: %v", needed, free, err)
		}
		if err == nil && (got.Size() != needed || !got.IsSubsetOf(free)) {
			t.Fatalf("%d of %s are %s", needed, free, got)
		}
	})
}

func podOf(uid string, counts ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	always := v1.ContainerRestartPolicyAlways
	for i, text := range counts {
		kind := strings.TrimRight(text, "0123456789.")
		q := v1.ResourceList{v1.ResourceCPU: resource.MustParse(strings.TrimPrefix(text, kind)),
			v1.ResourceMemory: resource.MustParse("1Mi")}
		c := v1.Container{Name: fmt.Sprint("c", i), Resources: v1.ResourceRequirements{Requests: q, Limits: q}}
		switch kind {
		case "i":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case "s":
			c.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

type world struct {
	cfg     Config
	changes int
}

func newWorld(t *testing.T, l *numa.Layout, o Options, reserved string) *world {
	w := &world{}
	w.cfg = Config{Layout: l, Policy: PolicyStatic, Options: o, Reserved: parse(t, reserved),
		File: filepath.Join(t.TempDir(), "state"), Log: slog.New(slog.DiscardHandler)}
	w.cfg.Changed = func() { w.changes++ }
	return w
}

func (w *world) start(t *testing.T) *Manager {
	t.Helper()
	m, err := New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func admit(t *testing.T, m *Manager, policy string, pod *v1.Pod) error {
	t.Helper()
	align, err := numa.New(numa.Config{Layout: m.cfg.Layout, Policy: policy, Providers: []numa.Provider{m}})
	if err != nil {
		t.Fatal(err)
	}
	return align.Admit(t.Context(), pod)
}

func TestManager(t *testing.T) {
	w := newWorld(t, machineOf(2, 1, 4, 2), Options{}, "0,8")
	m := w.start(t)
	on := func(m *Manager, uid types.UID, container, want string) {
		t.Helper()
		if got := m.AllowedCPUs(uid, container).String(); got != want {
			t.Errorf("%s of %s runs on %s, want %s", container, uid, got, want)
		}
	}
	if err := admit(t, m, "", podOf("u", "i4", "2", "s1", "1.5")); err != nil {
		t.Fatal(err)
	}
	on(m, "u", "c0", "1-2,9-10")
	on(m, "u", "c2", "1") // the sidecar c2 keeps this CPU, so no main container can use it
	on(m, "u", "c1", "2,10")
	on(m, "u", "c3", "0,3-8,11-15")
	if w.changes != 1 {
		t.Errorf("%d changes of the shared CPUs", w.changes)
	}
	burstable := podOf("b", "2")
	burstable.Status.QOSClass = v1.PodQOSBurstable
	if err := admit(t, m, "", burstable); err != nil {
		t.Fatal(err)
	}
	on(m, "b", "c0", "0,3-8,11-15")
	err := admit(t, m, "", podOf("v", "11"))
	if want := "not enough cpus available to satisfy request: requested=11, available=10"; err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := admit(t, m, numa.PolicySingleNode, podOf("v", "8")); err != nil {
		t.Errorf("a whole node: %v", err)
	}
	on(m, "v", "c0", "4-7,12-15")
	var far *numa.AffinityError
	m.Free("v")
	if err := admit(t, m, numa.PolicySingleNode, podOf("w", "9")); !errors.As(err, &far) {
		t.Errorf("more than a node: %v", err)
	}

	// A restarted manager keeps all assignments. It fails to start if they do not fit its
	// configuration.
	m = w.start(t)
	on(m, "u", "c1", "2,10")
	if err := admit(t, m, numa.PolicyRestricted, podOf("u", "i4", "2", "s1", "1.5")); err != nil {
		t.Errorf("admitted again: %v", err)
	}
	for name, change := range map[string]func(c *Config){
		"another machine":     func(c *Config) { c.Layout = machineOf(2, 1, 5, 2) },
		"another policy":      func(c *Config) { c.Policy = PolicyNone },
		"other reserved CPUs": func(c *Config) { c.Reserved = parse(t, "1") },
		"strictly reserved":   func(c *Config) { c.Options.StrictReserved = true },
	} {
		cfg := w.cfg
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "please drain this node and delete") {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.Free("u")
	if got := m.AllowedCPUs("x", "c").String(); got != "0-15" || len(m.Pods()) != 0 {
		t.Errorf("shared CPUs without pods: %s", got)
	}
}

func TestFullCores(t *testing.T) {
	w := newWorld(t, machineOf(1, 1, 4, 2), Options{FullCores: true, StrictReserved: true}, "0")
	m := w.start(t)
	for _, c := range []struct{ needed, want string }{
		{"3", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"},
		{"8", "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested " +
			"CPUs = 8, CPUs per core = 2"},
		{"6", "<nil>"},
	} {
		if got := fmt.Sprint(admit(t, m, "", podOf("u"+c.needed, c.needed))); got != c.want {
			t.Errorf("%s: %s", c.needed, got)
		}
	}
	if got := m.AllowedCPUs("x", "c").String(); got != "4" {
		t.Errorf("shared are %s", got)
	}
}

func TestBySocket(t *testing.T) {
	w := newWorld(t, machineOf(2, 2, 2, 1), Options{BySocket: true}, "0")
	m := w.start(t)
	// The request of 3 CPUs needs both nodes of a socket, which have 2 CPUs each. With the option
	// BySocket, the CPUs of one socket count as aligned.
	if err := admit(t, m, numa.PolicyRestricted, podOf("u", "3")); err != nil ||
		m.AllowedCPUs("u", "c0").String() != "1-3" {
		t.Errorf("%s, %v", m.AllowedCPUs("u", "c0"), err)
	}
	w.cfg.TopologyPolicy = numa.PolicySingleNode
	if _, err := New(w.cfg); err == nil {
		t.Error("aligned to sockets and to nodes")
	}
}

func TestOptions(t *testing.T) {
	on := func(names ...string) map[string]string {
		out := map[string]string{}
		for _, n := range names {
			out[n] = "true"
		}
		return out
	}
	alpha := map[string]bool{gateAlpha: true}
	for _, c := range []struct {
		options map[string]string
		gates   map[string]bool
		err     string
	}{
		{options: on(optionFullCores, optionAcrossNodes, optionStrictReserved)},
		{options: on(optionBySocket), gates: alpha},
		{options: on(optionBySocket),
			err: `CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided`},
		{options: on(optionAcrossNodes), gates: map[string]bool{gateBeta: false},
			err: `CPU Manager Policy Beta-level Options not enabled, but option "distribute-cpus-across-numa" provided`},
		{options: on("x"), err: `unknown CPU Manager Policy option: "x"`},
		{options: map[string]string{optionByCache: "x"},
			err: `bad value for option "prefer-align-cpus-by-uncorecache": strconv.ParseBool: parsing "x": invalid syntax`},
		{options: on(optionFullCores, optionAcrossCores), gates: alpha,
			err: "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time"},
		{options: on(optionByCache, optionAcrossNodes), err: "static policy options " +
			"prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa can not be used at the same time"},
	} {
		_, err := ParseOptions(c.options, c.gates)
		if got := fmt.Sprint(err); c.err != "" && got != c.err || c.err == "" && err != nil {
			t.Errorf("%v: %s", c.options, got)
		}
	}
}

// TestNoCPUIsAssignedTwice checks with random sequences of pods and restarts that the manager never
// assigns a CPU to two containers at the same time.
func TestNoCPUIsAssignedTwice(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		l := machineOf(2, 2, 2, 2)
		o := rapid.SampledFrom([]Options{{}, {FullCores: true}, {AcrossNodes: true},
			{StrictReserved: true}}).Draw(t, "options")
		f, err := os.CreateTemp(dir, "state")
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		_ = os.Remove(f.Name())
		cfg := Config{Layout: l, Policy: PolicyStatic, Options: o, Count: 1, File: f.Name(), Changed: func() {},
			Log: slog.New(slog.DiscardHandler)}
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		asked := map[types.UID]int{}
		for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				for uid := range asked {
					m.Free(uid)
					delete(asked, uid)
					break
				}
			case 1:
				if m, err = New(cfg); err != nil {
					t.Fatal(err)
				}
			default:
				n := rapid.IntRange(1, 6).Draw(t, "CPUs")
				pod := podOf(fmt.Sprint(i), fmt.Sprint(n))
				near := rapid.SampledFrom(append(numa.Subsets(l.NodeIDs()), 0)).Draw(t, "near")
				if m.Allocate(t.Context(), pod, &pod.Spec.Containers[0], numa.Hint{Nodes: near}) == nil {
					asked[pod.UID] = n
				}
			}
			all := cpuset.New()
			for uid, n := range asked {
				set := m.AllowedCPUs(uid, "c0")
				if set.Size() != n || !set.Intersection(all).IsEmpty() || !set.Intersection(m.reserved).IsEmpty() {
					t.Fatalf("%s has %s, others %s, reserved %s", uid, set, all, m.reserved)
				}
				all = all.Union(set)
			}
			if shared := m.AllowedCPUs("x", "c"); !shared.Intersection(all).IsEmpty() ||
				shared.Size()+all.Size() < len(l.CPUs)-1 {
				t.Fatalf("shared %s, given %s", shared, all)
			}
		}
	})
}

// TestChecksum checks that the checksums are those that Kubernetes' kubelet writes for the same
// content.
func TestChecksum(t *testing.T) {
	for want, s := range map[checkpoint.Checksum]CPUManagerCheckpoint{
		354655845: {PolicyName: "none", DefaultCPUSet: "4-6", Entries: map[string]map[string]string{}},
		3610638499: {PolicyName: "none", DefaultCPUSet: "1-3", Entries: map[string]map[string]string{
			"pod": {"container1": "4-6", "container2": "1-3"}}},
	} {
		if got := checkpoint.Sum(&s); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
}
