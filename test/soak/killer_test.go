// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/cluster"
)

// programNames has the programs that an upgrade replaces, in the order in which their processes are
// restarted. The program cni, the network plugin, has no process.
var programNames = []string{"apiserver", "controller-manager", "scheduler", "kubelet", "cni", "proxy"}

// killer kills processes and nodes, and upgrades programs.
type killer struct {
	s      *soak
	random *rand.Rand
	kills  map[string]map[syscall.Signal]int
	plugs  map[string]int
	// upgrades is how many times all programs were replaced.
	upgrades int
	nodes    sync.WaitGroup
	// pulled is the name of the node that is killed, or empty if no node is killed. It is used by
	// the killer's goroutine and, until nodes is done, by the goroutine that starts the node again.
	mu     sync.Mutex
	pulled string
}

func (s *soak) newKiller() *killer {
	return &killer{s: s, random: s.random(1), kills: map[string]map[syscall.Signal]int{}, plugs: map[string]int{}}
}

// run kills processes and nodes until ctx ends. Each step kills one process, and every tenth step
// kills a node instead. In the middle of each half hour, or in the middle of a shorter run, it
// upgrades all programs.
func (k *killer) run(ctx context.Context) {
	period := min(k.s.duration, 30*time.Minute)
	upgrade := k.s.at() + period/2
	for n := 1; pause(ctx, k.s.every); n++ {
		switch {
		case k.s.at() > upgrade:
			upgrade += period
			k.upgrade(ctx)
		case n%10 == 5:
			k.pullPlug(ctx)
		default:
			k.killOne(ctx)
		}
	}
	k.nodes.Wait()
}

func (k *killer) killOne(ctx context.Context) {
	st, err := k.s.status(ctx)
	if err != nil {
		k.s.t.Logf("status: %v", err)
		return
	}
	names := slices.Sorted(maps.Keys(st.Pids))
	if len(names) == 0 {
		return
	}
	signal := syscall.SIGKILL
	if k.random.IntN(5) == 0 {
		signal = syscall.SIGTERM
	}
	k.signal(names[k.random.IntN(len(names))], st, signal)
}

func (k *killer) signal(name string, st *cluster.Status, signal syscall.Signal) {
	if err := syscall.Kill(st.Pids[name], signal); err != nil {
		k.s.t.Logf("%v: %v of %s: %v", k.s.at(), signal, name, err)
		return
	}
	k.s.t.Logf("%v: %v of %s (%d)", k.s.at().Round(time.Millisecond), signal, name, st.Pids[name])
	if k.kills[name] == nil {
		k.kills[name] = map[syscall.Signal]int{}
	}
	k.kills[name][signal]++
}

func (k *killer) deps() cluster.Deps {
	return cluster.Deps{Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Out: io.Discard}
}

// pullPlug kills all processes of a node. A goroutine starts the node again later, while run
// continues to kill other processes.
func (k *killer) pullPlug(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pulled != "" {
		return
	}
	node := fmt.Sprintf("n%d", 1+k.random.IntN(nodes))
	if err := cluster.KillNode(ctx, k.s.cfg, node); err != nil {
		k.s.t.Logf("%v: kill node %s: %v", k.s.at(), node, err)
		return
	}
	k.s.t.Logf("%v: node %s killed", k.s.at().Round(time.Millisecond), node)
	k.pulled = node
	k.plugs[node]++
	k.nodes.Go(func() {
		pause(ctx, 2*k.s.every)
		k.s.eventually("node "+node+" starts", func(ctx context.Context) error {
			err := cluster.StartNode(ctx, k.s.cfg, node, k.deps())
			if err == nil || strings.Contains(err.Error(), "the node is running") {
				return nil
			}
			return err
		})
		k.s.t.Logf("%v: node %s runs again", k.s.at().Round(time.Millisecond), node)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.pulled = ""
	})
}

// upgrade replaces all programs, and restarts their processes one after the other. It completes the
// upgrade even if ctx ends.
func (k *killer) upgrade(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	k.nodes.Wait()
	for _, p := range programNames {
		if err := replace(filepath.Join(k.s.upgrade, p), filepath.Join(k.s.dir, "bin", p)); err != nil {
			k.s.violatef("upgrade: %v", err)
			return
		}
	}
	k.s.t.Logf("%v: upgrade", k.s.at().Round(time.Millisecond))
	for _, p := range programNames {
		st, err := k.s.status(ctx)
		if err != nil {
			k.s.t.Logf("status: %v", err)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(st.Pids)) {
			if role(name) != p {
				continue
			}
			k.signal(name, st, syscall.SIGTERM)
			k.s.eventually(name+" runs again", func(ctx context.Context) error {
				now, err := k.s.status(ctx)
				if err == nil && (now.Pids[name] == 0 || now.Pids[name] == st.Pids[name]) {
					err = errors.New("not yet")
				}
				return err
			})
		}
	}
	k.upgrades++
}

// role returns the program that a process runs: the process's name without the number of its
// control plane or the name of its node.
func role(name string) string {
	for _, p := range append([]string{"containerd", "etcd"}, programNames...) {
		if name == p || strings.HasPrefix(name, p+"-") {
			return p
		}
	}
	return name
}

// heal waits until all processes run and all nodes are ready.
func (k *killer) heal() {
	k.s.eventually("all processes run and all nodes are ready", func(ctx context.Context) error {
		st, err := k.s.status(ctx)
		if err != nil {
			return err
		}
		for name := range k.kills {
			if st.Pids[name] == 0 {
				return fmt.Errorf("%s does not run", name)
			}
		}
		list, err := k.s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range list.Items {
			ready := slices.ContainsFunc(n.Status.Conditions,
				func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
			if !ready || len(n.Spec.Taints) > 0 {
				return fmt.Errorf("node %s: ready: %v, taints %v", n.Name, ready, n.Spec.Taints)
			}
		}
		return errors.Join(k.s.podsReady(ctx, "operator"), k.s.podsReady(ctx, "csi"), k.s.podsReady(ctx, "kube-system"))
	})
	k.s.t.Logf("%v: everything runs again", k.s.at().Round(time.Millisecond))
}
