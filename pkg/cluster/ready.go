// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/provision"
)

var (
	errNodesNotReady = errors.New("not all nodes are ready")
	errDNSNotReady   = errors.New("no replica of CoreDNS is ready")
)

// wait calls check until it returns nil, at most for the duration patience.
func (p *progress) wait(ctx context.Context, patience time.Duration, check func(context.Context) error) error {
	return provision.Wait(ctx, p.deps.Clock, patience, check)
}

// waitControlPlane waits until the API server is ready.
func waitControlPlane(ctx context.Context, c *Config, p *progress) error {
	client, err := machineClient(c)
	if err != nil {
		return err
	}
	if err := p.wait(ctx, controlPatience, answersReadyz(client)); err != nil {
		return p.failed("control plane", err, c.logsOf(apiserver)...)
	}
	p.sayf("control plane ready at %s", machineServer(c.Port))
	return nil
}

// waitServer waits until the API server of one control plane of several is ready. It connects to this
// API server itself, because the load balancer would choose another one.
func waitServer(ctx context.Context, c *Config, r replica, p *progress) error {
	st, err := Inspect(ctx, c)
	if err != nil {
		return err
	}
	cfg, err := adminConfig(c)
	if err != nil {
		return err
	}
	cfg.Host = "https://" + net.JoinHostPort(r.bind, strconv.Itoa(controlPort))
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialFrom(ctx, st.Supervisor, network, address)
	}
	client, err := newClient(cfg)
	if err != nil {
		return err
	}
	if err := p.wait(ctx, controlPatience, answersReadyz(client)); err != nil {
		return p.failed(apiserver+r.suffix, err, c.dirs().log(apiserver+r.suffix))
	}
	return nil
}

// answersReadyz returns a check that an API server reports that it is ready.
func answersReadyz(client kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
}

// dialFrom connects to an address from the network namespace of a process.
func dialFrom(ctx context.Context, pid int, network, address string) (net.Conn, error) {
	var conn net.Conn
	var g errgroup.Group
	g.Go(func() error {
		runtime.LockOSThread() // the thread ends with the goroutine, so no other goroutine uses it
		namespace, err := netns.GetFromPid(pid)
		if err != nil {
			return fmt.Errorf("network namespace of process %d: %w", pid, err)
		}
		defer namespace.Close()
		if err := netns.Set(namespace); err != nil {
			return fmt.Errorf("enter the network namespace of process %d: %w", pid, err)
		}
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	err := g.Wait()
	return conn, err
}

// waitNodes waits until every node that is not stopped is ready, and prints a line for each node.
// It does not wait if the operator installs the pod network, because nodes without one do not
// become ready.
func waitNodes(ctx context.Context, c *Config, p *progress) error {
	if !c.ownNetwork() {
		p.sayf("not waiting for nodes and DNS: they become ready when a pod network is installed")
		return nil
	}
	st, err := Inspect(ctx, c)
	if err != nil {
		return err
	}
	client, err := machineClient(c)
	if err != nil {
		return err
	}
	var waiting []string
	for _, n := range st.Nodes {
		if !n.Stopped {
			waiting = append(waiting, n.Name)
		}
	}
	if p.fresh {
		for _, name := range waiting {
			if err := waitSign(ctx, c, name, p); err != nil {
				return err
			}
		}
	}
	err = p.wait(ctx, nodePatience, func(ctx context.Context) error {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if at := slices.Index(waiting, n.Name); at >= 0 && nodeReady(&n) {
				waiting = slices.Delete(waiting, at, at+1)
				p.sayf("node %s ready", n.Name)
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("%w: %s", errNodesNotReady, strings.Join(waiting, ", "))
		}
		return nil
	})
	if err == nil {
		return nil
	}
	logs := []string{c.dirs().log("supervisor")}
	for _, name := range waiting {
		logs = append(logs, c.dirs().log("node-"+name), c.dirs().node(name).log("containerd"),
			c.dirs().node(name).log("kubelet"))
	}
	return p.failed("nodes", err, logs...)
}

// nodeReady reports whether a node is ready and accepts pods.
func nodeReady(n *core.Node) bool {
	unusable := slices.ContainsFunc(n.Spec.Taints, func(t core.Taint) bool { return t.Key == core.TaintNodeNotReady })
	return !unusable && slices.ContainsFunc(n.Status.Conditions, func(c core.NodeCondition) bool {
		return c.Type == core.NodeReady && c.Status == core.ConditionTrue
	})
}

// waitDNS waits until a CoreDNS pod is ready. If the command has started the cluster, a pod that
// was ready before the start does not count. waitDNS does not wait if the operator installs the pod
// network.
func waitDNS(ctx context.Context, c *Config, p *progress) error {
	if !c.ownNetwork() {
		return nil
	}
	client, err := machineClient(c)
	if err != nil {
		return err
	}
	var last *apps.Deployment
	err = p.wait(ctx, nodePatience, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if last = d; d.Status.ReadyReplicas == 0 {
			return errDNSNotReady
		}
		if !p.fresh {
			return nil
		}
		pods, err := client.CoreV1().Pods(d.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(pods.Items, p.startedHere) {
			return errDNSNotReady
		}
		return nil
	})
	if err != nil {
		if last != nil {
			err = fmt.Errorf("%w (%d of %d replicas exist)", err, last.Status.Replicas, *last.Spec.Replicas)
		}
		return p.failed("CoreDNS", err, append(c.logsOf(controllerManager), c.logsOf(scheduler)...)...)
	}
	p.sayf("CoreDNS answers at %s", c.IPFamily.primary().DNS)
	return nil
}

// progress prints the completed steps of a command, with the time since its start.
type progress struct {
	deps  Deps
	began time.Time
	// fresh is true if the command has started the cluster. The API may then still show states of
	// nodes and pods from before the start.
	fresh bool
}

// startedHere reports whether a pod is ready and all its containers started after p began.
func (p *progress) startedHere(pod core.Pod) bool {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c core.PodCondition) bool {
		return c.Type == core.PodReady && c.Status == core.ConditionTrue
	})
	return ready && !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c core.ContainerStatus) bool {
		return c.State.Running == nil || c.State.Running.StartedAt.Time.Before(p.began.Truncate(time.Second))
	})
}

func newProgress(deps Deps) *progress { return &progress{deps: deps, began: deps.Clock.Now()} }

func (p *progress) sayf(format string, args ...any) {
	fmt.Fprintf(p.deps.Out, "%6.2fs  %s\n", p.deps.Clock.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// failed returns an error with the step that failed, its cause, and the last lines of the related
// logs.
func (p *progress) failed(step string, err error, logs ...string) error {
	var b strings.Builder
	for _, log := range logs {
		data, readErr := os.ReadFile(log)
		if readErr != nil || len(data) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n--- end of %s\n%s", log, tail(data, 12))
	}
	return fmt.Errorf("%s: %w%s", step, err, b.String())
}

// done prints that the cluster is ready, and what the user can do next.
func (p *progress) done(c *Config) {
	p.sayf("cluster %s is ready: %d nodes, data in %s", c.Name, c.Nodes, c.DataDir)
	file := c.Kubeconfig
	if file == "" {
		file = c.dirs().control().Kubeconfig("admin")
	}
	ctl := filepath.Join(c.BinDir, "ctl")
	fmt.Fprintf(p.deps.Out, `
Next:
  export KUBECONFIG=%s
  %s get nodes,pods -A -o wide        (or plain kubectl)
  %s create deployment web --image=nginx:1.27 --replicas=2
  %s cluster down --name %s
`, file, ctl, ctl, ctl, c.Name)
}
