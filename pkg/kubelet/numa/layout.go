// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// CPU describes one logical CPU: its ID and the numbers of its core, socket, NUMA node and
// last-level cache. These numbers are unique on the machine.
type CPU struct{ ID, Core, Socket, Node, Cache int }

// Node is a NUMA node.
type Node struct {
	ID int
	// Memory is the size of the memory in bytes. HugePages is how many bytes are set aside for huge
	// pages, by page size in bytes.
	Memory    uint64
	HugePages map[uint64]uint64
	// Distances are the distances to all nodes, in the order of Layout.Nodes.
	Distances []int
}

// Layout describes the CPUs and NUMA nodes of a machine.
type Layout struct {
	CPUs  []CPU  // online CPUs, sorted by ID
	Nodes []Node // sorted by ID
}

// All returns the machine's CPUs.
func (l *Layout) All() cpuset.CPUSet { return l.Select(func(CPU) bool { return true }) }

// Select returns the CPUs for which f returns true.
func (l *Layout) Select(f func(CPU) bool) cpuset.CPUSet {
	var ids []int
	for _, c := range l.CPUs {
		if f(c) {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.New(ids...)
}

// CPUsOf returns the CPUs of NUMA nodes.
func (l *Layout) CPUsOf(nodes Mask) cpuset.CPUSet {
	return l.Select(func(c CPU) bool { return nodes.Has(c.Node) })
}

// NodeIDs returns the numbers of the machine's NUMA nodes.
func (l *Layout) NodeIDs() []int {
	out := make([]int, 0, len(l.Nodes))
	for _, n := range l.Nodes {
		out = append(out, n.ID)
	}
	return out
}

func (l *Layout) mask() Mask { return MaskOf(l.NodeIDs()...) }

// Count returns how many different values f returns for the CPUs. For example, it counts sockets if
// f returns the socket.
func (l *Layout) Count(f func(CPU) int) int {
	seen := map[int]bool{}
	for _, c := range l.CPUs {
		seen[f(c)] = true
	}
	return len(seen)
}

// distance returns the mean distance between all pairs of NUMA nodes of a set.
func (l *Layout) distance(m Mask) float64 {
	sum, n := 0, 0
	for _, a := range l.Nodes {
		for i, b := range l.Nodes {
			if m.Has(a.ID) && m.Has(b.ID) && i < len(a.Distances) {
				sum += a.Distances[i]
				n++
			}
		}
	}
	if n == 0 {
		return 0
	}
	return float64(sum) / float64(n)
}

// Read reads the machine's layout from the directory sys, normally /sys. If it lists no NUMA nodes,
// the layout has one node with the given memory in bytes.
func Read(sys string, memory int64) (*Layout, error) {
	l := &Layout{}
	if err := l.readNodes(filepath.Join(sys, "devices/system/node"), memory); err != nil {
		return nil, fmt.Errorf("NUMA nodes: %w", err)
	}
	if err := l.readCPUs(filepath.Join(sys, "devices/system"), l.NodeIDs()); err != nil {
		return nil, fmt.Errorf("CPUs: %w", err)
	}
	return l, nil
}

func (l *Layout) readNodes(dir string, memory int64) error {
	ids, err := numbered(dir, "node")
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		l.Nodes = []Node{{Memory: uint64(memory), HugePages: map[uint64]uint64{}, Distances: []int{10}}}
		return nil
	}
	for _, id := range ids {
		n := Node{ID: id, HugePages: map[uint64]uint64{}}
		at := filepath.Join(dir, "node"+strconv.Itoa(id))
		info := readText(filepath.Join(at, "meminfo"))
		if found := regexp.MustCompile(`MemTotal:\s+(\d+) kB`).FindStringSubmatch(info); found != nil {
			kib, _ := strconv.ParseUint(found[1], 10, 54) // no error is possible, because the expression matches only digits
			n.Memory = kib << 10
		}
		for word := range strings.FieldsSeq(readText(filepath.Join(at, "distance"))) {
			d, _ := strconv.Atoi(word) // no error is possible, because the kernel writes numbers
			n.Distances = append(n.Distances, d)
		}
		sizes, err := filepath.Glob(filepath.Join(at, "hugepages", "hugepages-*kB"))
		if err != nil {
			return err
		}
		for _, s := range sizes {
			kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(s), "hugepages-"), "kB"), 10, 54)
			pages, _ := strconv.ParseUint(readText(filepath.Join(s, "nr_hugepages")), 10, 54)
			n.HugePages[kib<<10] = pages * kib << 10
		}
		l.Nodes = append(l.Nodes, n)
	}
	return nil
}

func (l *Layout) readCPUs(dir string, nodes []int) error {
	online, err := cpuset.Parse(readText(filepath.Join(dir, "cpu/online")))
	if err != nil {
		return err
	}
	of := map[int]int{} // the NUMA node of each CPU, by the CPU's ID
	for _, n := range nodes {
		list, err := cpuset.Parse(readText(filepath.Join(dir, "node", "node"+strconv.Itoa(n), "cpulist")))
		if err != nil {
			return err
		}
		for _, id := range list.UnsortedList() {
			of[id] = n
		}
	}
	for _, id := range online.List() {
		at := filepath.Join(dir, "cpu", "cpu"+strconv.Itoa(id))
		c := CPU{ID: id, Core: id, Node: of[id]}
		// The core number of a core is the ID of its first thread, because the kernel's core
		// numbers are unique only within a socket.
		if threads, err := cpuset.Parse(
			readText(filepath.Join(at, "topology/thread_siblings_list"))); err == nil && threads.Size() > 0 {
			c.Core = slices.Min(threads.UnsortedList())
		}
		if s, err := strconv.Atoi(readText(filepath.Join(at, "topology/physical_package_id"))); err == nil && s > 0 {
			c.Socket = s
		}
		c.Cache = lastCache(filepath.Join(at, "cache"), c.Socket)
		l.CPUs = append(l.CPUs, c)
	}
	if len(l.CPUs) == 0 {
		return errors.New("no CPU is online")
	}
	return nil
}

// lastCache identifies a CPU's third-level cache by the ID of the first CPU that uses it. If the
// machine has no such caches, lastCache returns a negative number that identifies the socket.
func lastCache(dir string, socket int) int {
	indices, err := numbered(dir, "index")
	if err != nil {
		return -1 - socket
	}
	for _, i := range indices {
		at := filepath.Join(dir, "index"+strconv.Itoa(i))
		if readText(filepath.Join(at, "level")) != "3" {
			continue
		}
		if shared, err := cpuset.Parse(readText(filepath.Join(at, "shared_cpu_list"))); err == nil && shared.Size() > 0 {
			return slices.Min(shared.UnsortedList())
		}
	}
	return -1 - socket
}

// numbered returns, sorted, the numbers that follow the prefix in the names of a directory's
// entries.
func numbered(dir, prefix string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), prefix); ok {
			if n, err := strconv.Atoi(rest); err == nil && n >= 0 {
				out = append(out, n)
			}
		}
	}
	slices.SortFunc(out, cmp.Compare)
	return out, nil
}

// readText returns the content of a small file, or "" if it cannot be read.
func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
