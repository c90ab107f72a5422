// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
	"keelson.dev/keelson/pkg/kubelet/numa"
)

const gi = 1 << 30

// configOf returns a configuration for a machine whose nodes have 10 GiB of memory and 2 GiB of
// huge pages each. On the first node 1 GiB is reserved.
func configOf(file string, nodes int) Config {
	l := &numa.Layout{}
	for i := range nodes {
		l.Nodes = append(l.Nodes, numa.Node{ID: i, Memory: 10 * gi, HugePages: map[uint64]uint64{2 << 20: 2 * gi}})
	}
	one := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	return Config{
		Layout: l, Policy: PolicyStatic, NodeReserved: one,
		Reserved: []kubeletconfig.MemoryReservation{{NumaNode: 0, Limits: one}},
		File:     file, Log: slog.New(slog.DiscardHandler),
	}
}

func newManager(t *testing.T, cfg Config) *Manager {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// podOf returns a pod with one container for each amount in GiB. The prefix i makes it an init
// container, and the prefix h adds huge pages.
func podOf(uid string, amounts ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	for i, text := range amounts {
		q := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"),
			v1.ResourceMemory: resource.MustParse(strings.Trim(text, "ih") + "i")}
		if strings.HasSuffix(text, "h") {
			q["hugepages-2Mi"] = resource.MustParse("2Gi")
		}
		c := v1.Container{Name: fmt.Sprint("c", i), Resources: v1.ResourceRequirements{Requests: q, Limits: q}}
		if strings.HasPrefix(text, "i") {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	pod.Status.QOSClass = v1.PodQOSGuaranteed
	return pod
}

func admit(t *testing.T, m *Manager, policy, scope string, pod *v1.Pod) error {
	t.Helper()
	align, err := numa.New(numa.Config{Layout: m.cfg.Layout, Policy: policy, Scope: scope, Providers: []numa.Provider{m}})
	if err != nil {
		t.Fatal(err)
	}
	return align.Admit(t.Context(), pod)
}

func TestManager(t *testing.T) {
	type step struct {
		pod     *v1.Pod
		policy  string
		scope   string
		free    types.UID
		restart bool
		on      string // nodes of each container
		err     string
		all     string // free memory of each node in GiB after the step; empty to skip the check
	}
	for name, steps := range map[string][]step{
		"nodes in order": {
			{pod: podOf("a", "7G"), on: "[[0]]", all: "0 8"},
			{pod: podOf("b", "7G"), on: "[[1]]", all: "0 1"},
			{pod: podOf("c", "7G"),
				err: "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"},
			{free: "a", all: "7 1"},
			{restart: true, all: "7 1"},
			{pod: podOf("c", "7G"), on: "[[0]]", all: "0 1"},
		},
		"more than one node has": {
			{pod: podOf("a", "9G"), on: "[[0 1]]", all: "0 6"},
			{pod: podOf("b", "1G"), on: "[[0 1]]", all: "0 5"},
			{pod: podOf("b2", "1G"), policy: numa.PolicyRestricted, err: "Resources cannot be allocated with Topology locality"},
			{pod: podOf("c", "9G"),
				err: "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"},
			{restart: true, all: "0 5"},
			{free: "a"},
			{free: "b", all: "7 8"},
			{pod: podOf("b", "1G"), on: "[[0]]", all: "6 8"},
		},
		"reuse from an init container": {
			{pod: podOf("a", "i5G", "6G"), on: "[[0] [0]]", all: "1 8"},
			{restart: true, all: "1 8"},
			{free: "a", all: "7 8"},
		},
		"huge pages": {
			{pod: podOf("a", "1Gh"), on: "[[0]]", all: "6 8"},
			{pod: podOf("b", "1Gh"), on: "[[1]]", all: "6 7"},
		},
		"aligned": {
			{pod: podOf("a", "6G", "6G"), policy: numa.PolicySingleNode, on: "[[0] [1]]", all: "1 2"},
			{free: "a"},
			{pod: podOf("b", "6G", "6G"), policy: numa.PolicySingleNode, scope: numa.ScopePod,
				err: "Pod Scope Resources cannot be allocated with Topology locality"},
			{pod: podOf("c", "6G", "1G"), policy: numa.PolicySingleNode, scope: numa.ScopePod, on: "[[0] [0]]", all: "0 8"},
			{pod: podOf("d", "9G"), policy: numa.PolicySingleNode, err: "Resources cannot be allocated with Topology locality"},
			{pod: podOf("c", "6G", "1G"), policy: numa.PolicySingleNode, scope: numa.ScopePod, on: "[[0] [0]]", all: "0 8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configOf(filepath.Join(t.TempDir(), "state"), 2)
			m := newManager(t, cfg)
			for i, s := range steps {
				switch {
				case s.restart:
					m = newManager(t, cfg)
				case s.free != "":
					m.Free(s.free)
				default:
					got := ""
					if err := admit(t, m, s.policy, s.scope, s.pod); err != nil {
						got = err.Error()
						m.Free(s.pod.UID)
					}
					var on [][]int
					for _, list := range [][]v1.Container{s.pod.Spec.InitContainers, s.pod.Spec.Containers} {
						for _, c := range list {
							on = append(on, m.AllowedNodes(s.pod.UID, c.Name).Nodes())
						}
					}
					if got != s.err || s.err == "" && fmt.Sprint(on) != s.on {
						t.Errorf("step %d: %q, on %v", i, got, on)
					}
				}
				if got := fmt.Sprint(m.nodes.free(1, v1.ResourceMemory)/gi,
					m.nodes.free(2, v1.ResourceMemory)/gi); s.all != "" && got != s.all {
					t.Errorf("step %d: free %s, want %s", i, got, s.all)
				}
			}
		})
	}
}

func TestConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *Config)
		err    string
	}{
		"nothing reserved": {func(c *Config) { c.Reserved, c.NodeReserved = nil, nil },
			"[memorymanager] you should specify the system reserved memory"},
		"another amount": {func(c *Config) { c.NodeReserved = v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Gi")} },
			`the total amount "1Gi" of type "memory" is not equal to the value "2Gi" determined by Node Allocatable feature`},
		"no such node": {func(c *Config) { c.Reserved[0].NumaNode = 7 },
			"the reserved memory configuration references a NUMA node 7 that does not exist on this machine"},
		"unknown policy": {func(c *Config) { c.Policy = "x" }, `unknown policy: "x"`},
	} {
		cfg := configOf(filepath.Join(t.TempDir(), "state"), 2)
		c.change(&cfg)
		if _, err := New(cfg); err == nil || err.Error() != c.err {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "state")
	m := newManager(t, configOf(file, 2))
	if err := admit(t, m, "", "", podOf("a", "9G")); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{"another machine": configOf(file, 1),
		"another policy": {Layout: &numa.Layout{}, Policy: PolicyNone, File: file}} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "please drain this node and delete") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAccount admits and removes random pods. It checks that the amount assigned on each node is
// that of its pods, and that each node is used either alone or in one set of nodes.
func TestAccount(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		f, err := os.CreateTemp(dir, "state")
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		_ = os.Remove(f.Name())
		cfg := configOf(f.Name(), 3)
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rapid.IntRange(1, 5).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				if pods := m.Pods(); len(pods) > 0 {
					slices.Sort(pods)
					m.Free(rapid.SampledFrom(pods).Draw(t, "pod"))
				}
			case 1:
				if m, err = New(cfg); err != nil {
					t.Fatal(err)
				}
			default:
				amount := rapid.Custom(func(t *rapid.T) string {
					return rapid.SampledFrom([]string{"", "i"}).Draw(t, "kind") +
						fmt.Sprint(rapid.IntRange(1, 20).Draw(t, "size"), "G")
				})
				pod := podOf(fmt.Sprint(i), rapid.SliceOfN(amount, 1, 3).Draw(t, "containers")...)
				near := numa.Hint{Nodes: rapid.SampledFrom(append(numa.Subsets(cfg.Layout.NodeIDs()), 0)).Draw(t, "near")}
				for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
					for j := range list {
						if m.Allocate(t.Context(), pod, &list[j], near) != nil {
							break
						}
					}
				}
			}
			given, with := map[numa.Mask]uint64{}, map[int]numa.Mask{}
			for _, containers := range m.given {
				for _, blocks := range containers {
					for _, b := range blocks {
						nodes := numa.MaskOf(b.NUMAAffinity...)
						given[nodes] += b.Size
						for _, id := range b.NUMAAffinity {
							if w := with[id]; w != 0 && w != nodes {
								t.Fatalf("node %d gives with %v and %v", id, w.Nodes(), nodes.Nodes())
							}
							with[id] = nodes
						}
					}
				}
			}
			for nodes := range maps.Keys(given) {
				if m.nodes.free(nodes, v1.ResourceMemory)+given[nodes] != m.nodes.allocatable(nodes, v1.ResourceMemory) {
					t.Fatalf("nodes %v: %d free, %d given", nodes.Nodes(), m.nodes.free(nodes, v1.ResourceMemory), given[nodes])
				}
			}
		}
	})
}

// TestChecksum compares the checksum with the one that Kubernetes' kubelet writes for the same
// content.
func TestChecksum(t *testing.T) {
	s := MemoryManagerCheckpoint{PolicyName: "static",
		MachineState: NUMANodeMap{
			0: {MemoryMap: map[v1.ResourceName]*MemoryTable{v1.ResourceMemory: {Allocatable: 1536, Free: 1024,
				Reserved: 512, SystemReserved: 512, TotalMemSize: 2048}}, Cells: []int{}}},
		Entries: ContainerMemoryAssignments{
			"pod": {"container1": {{NUMAAffinity: []int{0}, Type: v1.ResourceMemory, Size: 512}}}},
	}
	if got := checkpoint.Sum(&s); got != 4215593881 {
		t.Errorf("%d", got)
	}
}
