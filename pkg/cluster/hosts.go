// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/loopdev"
	"keelson.dev/keelson/pkg/provision"
)

// nodeHost is what the supervisor knows about a node.
type nodeHost struct {
	Node
	host *kept // the process of the node host; nil if the node is stopped
}

func (h *nodeHost) pid() int {
	if h.host == nil {
		return 0
	}
	return h.host.Pid()
}

var (
	errNodeExists  = errors.New("the node exists already")
	errNoNode      = errors.New("no such node")
	errNodeRunning = errors.New("the node is running")
	errNodeStopped = errors.New("the node is not running")
	errNodesFull   = errors.New("the cluster has the maximum number of nodes")
)

// resumeNodes starts the nodes whose files are in the data directory, except stopped nodes.
func (s *supervisor) resumeNodes() error {
	entries, err := os.ReadDir(s.cfg.dirs().nodes())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		n := Node{}
		if err := readJSON(s.cfg.dirs().node(e.Name()).spec(), &n); err != nil {
			s.deps.Log.Error("Failed to start node", "node", e.Name(), "err", err)
			continue
		}
		h := &nodeHost{Node: n}
		s.nodes[n.Name] = h
		if !n.Stopped {
			if err := s.startNode(h); err != nil {
				return err
			}
		}
	}
	return nil
}

// addNode creates a node. If name is empty, it uses the next free name. If bootstrap is not empty,
// it is the kubeconfig with a join token, with which the node's kubelet requests its certificates.
func (s *supervisor) addNode(name, bootstrap string) (Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := map[int]bool{}
	for _, h := range s.nodes {
		taken[h.Index] = true
	}
	n := Node{Name: name, Index: 1, IPFamily: s.cfg.IPFamily, Joins: bootstrap != ""}
	for taken[n.Index] {
		n.Index++
	}
	if n.Index > maxNodes {
		return n, errNodesFull
	}
	if n.Name == "" {
		n.Name = fmt.Sprintf("n%d", n.Index)
	}
	if s.nodes[n.Name] != nil {
		return n, fmt.Errorf("%s: %w", n.Name, errNodeExists)
	}
	if n.Joins {
		file := s.cfg.dirs().node(n.Name).path(provision.BootstrapKubeconfig)
		if err := atomicfile.WriteDurably(file, []byte(bootstrap), 0o600); err != nil {
			return n, err
		}
	}
	h := &nodeHost{Node: n}
	if err := s.startNode(h); err != nil {
		return n, err
	}
	s.nodes[n.Name] = h
	return n, nil
}

// switchNode starts a stopped node (running is true), or kills all processes of a running node.
func (s *supervisor) switchNode(name string, running bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.nodes[name]
	switch {
	case h == nil:
		return fmt.Errorf("%s: %w", name, errNoNode)
	case running && h.host != nil:
		return fmt.Errorf("%s: %w", name, errNodeRunning)
	case running:
		h.Stopped = false
		return s.startNode(h)
	case h.host == nil:
		return fmt.Errorf("%s: %w", name, errNodeStopped)
	}
	h.host.end()
	h.host, h.Stopped = nil, true
	return writeJSON(s.cfg.dirs().node(name).spec(), h.Node)
}

// removeNode stops a node permanently and removes its files.
func (s *supervisor) removeNode(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.nodes[name]
	if h == nil {
		return fmt.Errorf("%s: %w", name, errNoNode)
	}
	if h.host != nil {
		h.host.end()
	}
	delete(s.nodes, name)
	// Loop devices belong to the kernel, so they remain when the node's processes are killed.
	if err := loopdev.DetachBelow(s.cfg.dirs().node(name).root); err != nil {
		return fmt.Errorf("disks of node %s: %w", name, err)
	}
	if err := os.RemoveAll(s.cfg.dirs().node(name).root); err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	return nil
}

// startNode writes the node's files and starts a keeper, which keeps the process of the node's host
// running.
func (s *supervisor) startNode(h *nodeHost) error {
	if err := seedNode(s.cfg, h.Node); err != nil {
		return fmt.Errorf("node %s: images: %w", h.Name, err)
	}
	if err := makeNode(s.cfg, h.Node, s.deps.Clock); err != nil {
		return fmt.Errorf("node %s: %w", h.Name, err)
	}
	h.host = s.keep(s.nodeProcess(h))
	return nil
}

// nodeProcess returns the process of a node host. The process starts in new namespaces, and waits
// there until the supervisor has moved it into its cgroup and connected its network link.
func (s *supervisor) nodeProcess(h *nodeHost) process {
	group := cgroupOf(s.cfg.Name, h.Name)
	host := filepath.Join(group, cgroupHost)
	p := process{
		name: h.Name, kill: true,
		argv: []string{s.self, "cluster", "node-host", s.cfg.dirs().node(h.Name).root},
		env:  []string{"PATH=" + os.Getenv("PATH")},
		log:  s.cfg.dirs().log("node-" + h.Name),
		attr: &syscall.SysProcAttr{
			Setsid: true, Pdeathsig: syscall.SIGKILL,
			Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
				syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		},
	}
	p.before = func(context.Context) error {
		if err := s.cgroups.create(host); err != nil {
			return err
		}
		return leaveNode(h.Node)
	}
	p.pipe = true
	p.started = func(pid int, release *os.File) error {
		if err := s.cgroups.enter(host, pid); err != nil {
			return err
		}
		if err := joinNode(h.Node, pid); err != nil {
			return err
		}
		if _, err := release.Write([]byte{1}); err != nil {
			return fmt.Errorf("release node host: %w", err)
		}
		return nil
	}
	p.ended = func() {
		err := errors.Join(leaveNode(h.Node), s.cgroups.remove(context.WithoutCancel(s.alive), group, s.deps.Clock))
		if err != nil {
			s.deps.Log.Error("Failed to remove the network and cgroups of a node that ended",
				"node", h.Name, "err", err)
		}
	}
	return p
}

// daemonPids returns the process IDs of a node's daemons by name, as the machine's PID namespace
// numbers them. The daemons are the children of the process host.
func daemonPids(host int) map[string]int {
	out := map[string]int{}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", host))
	if err != nil {
		return out
	}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for child := range strings.FieldsSeq(string(children)) {
			pid, err := strconv.Atoi(child)
			if err != nil {
				continue
			}
			name, err := os.ReadFile("/proc/" + child + "/comm")
			if err != nil {
				continue // the process has ended
			}
			switch name := strings.TrimSpace(string(name)); name {
			case "containerd", "kubelet", "proxy":
				out[name] = pid
			}
		}
	}
	return out
}
