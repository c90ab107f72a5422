// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// machineFile is the descriptor of the socket on the machine's loopback address, which the
// supervisor inherits.
const machineFile = 3

// supervisor keeps a cluster running.
type supervisor struct {
	cfg     *Config
	deps    Deps
	reaper  *reaper
	cgroups *cgroups
	self    string // path of the ctl program
	// alive is cancelled when the cluster must stop. Calling down cancels it.
	alive context.Context
	down  context.CancelFunc
	tasks sync.WaitGroup

	mu sync.Mutex
	// control and nodes have the processes that the supervisor keeps running. The entry of a
	// stopped process remains, with a nil cancel function.
	control map[string]*kept
	nodes   map[string]*nodeHost
}

// kept is a keeper of a process (it restarts the process when it ends), with the function that ends
// the keeper.
type kept struct {
	*keeper
	cancel context.CancelFunc
	done   chan struct{}
}

// Supervise runs the cluster in dataDir until ctx ends or the control socket receives a request to
// stop. It must run in a network namespace of its own, with the machine's listening socket as
// descriptor 3.
func Supervise(ctx context.Context, dataDir string, deps Deps) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s, err := newSupervisor(ctx, dataDir, deps)
	if err != nil {
		return err
	}
	if err := setupClusterNetwork(s.cfg); err != nil {
		return err
	}
	listener, err := s.listen(ctx)
	if err != nil {
		return err
	}
	collector, endCollector := context.WithCancel(context.WithoutCancel(ctx))
	defer endCollector()
	go s.reaper.run(collector) // ends when endCollector is called, after all children have been reaped
	machine := os.NewFile(machineFile, "machine")
	if s.cfg.replicated() {
		if err := s.startBalancer(machine); err != nil {
			return fmt.Errorf("balancer: %w", err)
		}
	}
	for _, p := range controlProcesses(s.cfg, machine) {
		s.control[p.name] = s.keep(p)
	}
	if err := s.resumeNodes(); err != nil {
		return err
	}
	s.tasks.Go(func() { s.keepRoutes(s.alive) })
	s.tasks.Go(func() { s.keepCertificates(s.alive) })
	server := &http.Server{Handler: s.routes()}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case <-s.alive.Done():
	case err = <-served:
		s.down()
	}
	s.tasks.Wait()
	return errors.Join(err, server.Close())
}

func newSupervisor(ctx context.Context, dataDir string, deps Deps) (*supervisor, error) {
	s := &supervisor{cfg: &Config{}, deps: deps, reaper: newReaper(), control: map[string]*kept{},
		nodes: map[string]*nodeHost{}}
	if err := readJSON(dirs{data: dataDir}.config(), s.cfg); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var err error
	if s.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("own program: %w", err)
	}
	if s.cgroups, err = findCgroups("/sys/fs/cgroup"); err != nil {
		return nil, err
	}
	raiseFileLimit(deps.Log)
	unix.CloseOnExec(machineFile)
	s.alive, s.down = context.WithCancel(ctx)
	return s, nil
}

// listen opens the control socket, to which only root can connect.
func (s *supervisor) listen(ctx context.Context) (net.Listener, error) {
	socket := s.cfg.dirs().socket()
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("old control socket: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return l, nil
}

// keep starts a keeper, which runs the process p and restarts it when it ends.
func (s *supervisor) keep(p process) *kept {
	ctx, cancel := context.WithCancel(s.alive)
	k := &kept{
		keeper: &keeper{process: p, reaper: s.reaper, clock: s.deps.Clock, logger: s.deps.Log},
		cancel: cancel, done: make(chan struct{}),
	}
	s.tasks.Go(func() {
		defer close(k.done)
		k.run(ctx)
	})
	return k
}

// end stops the process and waits until it has ended.
func (k *kept) end() {
	k.cancel()
	<-k.done
}

var errNoProcess = errors.New("no such process")

// setControl starts a process of the control plane (running is true), or stops it.
func (s *supervisor) setControl(name string, running bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.control[name]
	if k == nil {
		return fmt.Errorf("%s: %w", name, errNoProcess)
	}
	k.end()
	if running {
		s.control[name] = s.keep(k.process)
	}
	return nil
}

// status returns the state of all processes.
func (s *supervisor) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Config: *s.cfg, Supervisor: os.Getpid(), Pids: map[string]int{}, Nodes: []NodeStatus{}, Emulates: true}
	for name, k := range s.control {
		if pid := k.Pid(); pid != 0 {
			st.Pids[name] = pid
		}
	}
	for _, h := range s.nodes {
		n := NodeStatus{Node: h.Node, Address: strings.Join(h.Addresses(), ","), Pid: h.pid()}
		if n.Pid != 0 {
			for name, pid := range daemonPids(n.Pid) {
				st.Pids[name+"-"+h.Name] = pid
			}
		}
		st.Nodes = append(st.Nodes, n)
	}
	slices.SortFunc(st.Nodes, func(a, b NodeStatus) int { return strings.Compare(a.Name, b.Name) })
	return st
}
