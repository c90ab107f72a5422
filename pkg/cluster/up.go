// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/provision"
)

// Time limits for the steps of Up.
const (
	supervisorPatience = 15 * time.Second
	controlPatience    = time.Minute
	nodePatience       = 2 * time.Minute
	poll               = 20 * time.Millisecond
)

// Up creates the cluster that c describes. If the cluster exists already, Up starts it, or adds the
// nodes and add-ons that are missing if it runs. Up returns when the cluster is ready. If a step
// fails, the error has the step and the cause.
func Up(ctx context.Context, c *Config, deps Deps) error {
	p := newProgress(deps)
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	unlock, err := lockFile(filepath.Join(runRoot, c.Name+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	st, err := Inspect(ctx, c)
	switch {
	case err == nil:
		nodes, kubeconfig := c.Nodes, c.Kubeconfig
		*c = st.Config
		c.Nodes, c.Kubeconfig = max(nodes, len(st.Nodes)), kubeconfig
		p.sayf("cluster %s is running", c.Name)
	case errors.Is(err, errNotRunning):
		if err := start(ctx, c, p); err != nil {
			return err
		}
		p.fresh = true
	default:
		return err
	}
	if err := bringUp(ctx, c, p); err != nil {
		return err
	}
	if err := giveKubeconfig(c, st); err != nil {
		return err
	}
	p.done(c)
	return nil
}

// giveKubeconfig merges the administrator's credentials into the user's kubeconfig file, and
// records the path of that file for [Down].
func giveKubeconfig(c *Config, running *Status) error {
	if c.Kubeconfig == "" {
		if running != nil {
			c.Kubeconfig = running.Config.Kubeconfig
		}
		return nil
	}
	if err := provision.MergeKubeconfig(c.dirs().control().Kubeconfig("admin"), c.Kubeconfig); err != nil {
		return err
	}
	return errors.Join(writeJSON(c.dirs().config(), c), writeJSON(c.dirs().record(), c))
}

var (
	errNotRoot    = errors.New("creating namespaces, mounts and cgroups needs root")
	errNotRunning = errors.New("the cluster is not running")
)

// start writes the cluster's files and starts its supervisor.
func start(ctx context.Context, c *Config, p *progress) error {
	if err := errors.Join(settleReplicas(c), checkPrograms(c)); err != nil {
		return err
	}
	d := c.dirs()
	if c.Nodes > 0 || exists(d.nodes()) {
		if err := ensureSeed(ctx, c, p.deps); err != nil {
			return err
		}
	}
	for _, dir := range []string{d.data, d.logs(), d.run} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cluster directory: %w", err)
		}
	}
	machine, err := openMachinePort(ctx, c)
	if err != nil {
		return err
	}
	defer machine.Close()
	if err := writeControlPlane(c, p.deps.Clock); err != nil {
		return err
	}
	if err := errors.Join(writeJSON(d.config(), c), writeJSON(d.record(), c)); err != nil {
		return err
	}
	return startSupervisor(ctx, c, machine, p)
}

// writeControlPlane writes the files of the cluster's control planes.
func writeControlPlane(c *Config, clk clock.Clock) error {
	first := c.firstPlane()
	if err := errors.Join(first.IssueCertificates(false, clk), first.WriteKubeconfigs(clk)); err != nil {
		return err
	}
	return first.WriteConfiguration()
}

// checkPrograms returns an error that lists the programs that are missing, with the commands that
// build them.
func checkPrograms(c *Config) error {
	err := checkBuilt(c.BinDir, "hack/build.sh", apiserver, controllerManager, scheduler)
	if c.Nodes > 0 {
		err = errors.Join(err,
			checkBuilt(c.BinDir, "hack/build.sh", "kubelet", "cni", "proxy"),
			checkBuilt(c.ToolsDir, "hack/tools.sh containerd", "containerd", "containerd-shim-runc-v2", "ctr"),
			checkBuilt(c.ToolsDir, "hack/tools.sh crun", provision.Crun),
			checkBuilt(c.ToolsDir, "hack/tools.sh cni", "cni/portmap"))
	}
	if c.Nodes > 0 && c.Runtime == provision.Runc {
		err = errors.Join(err, checkBuilt(c.ToolsDir, "hack/tools.sh runc", provision.Runc))
	}
	if c.replicated() {
		err = errors.Join(err, checkBuilt(c.ToolsDir, "hack/tools.sh etcd", etcd))
	}
	return err
}

// checkBuilt returns an error for each of the programs that is missing in dir. command is the
// command that builds them.
func checkBuilt(dir, command string, programs ...string) error {
	var err error
	for _, name := range programs {
		if file := filepath.Join(dir, name); !exists(file) {
			err = errors.Join(err, fmt.Errorf("%s: %w; build it with %s", file, errNotBuilt, command))
		}
	}
	return err
}

var errNotBuilt = errors.New("not built")

// openMachinePort opens the socket on the machine's loopback address by which the machine reaches
// the cluster. The supervisor cannot open it, because it runs in another network namespace.
func openMachinePort(ctx context.Context, c *Config) (*os.File, error) {
	try := []int{c.Port}
	if c.Port == 0 {
		try = nil
		for port := DefaultPort; port < DefaultPort+100; port++ {
			try = append(try, port)
		}
	}
	var err error
	for _, port := range try {
		var l net.Listener
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			continue
		}
		defer l.Close()
		c.Port = port
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			return nil, fmt.Errorf("listener of type %T", l)
		}
		return tcp.File()
	}
	return nil, fmt.Errorf("port of the API server on this machine: %w", err)
}

// startSupervisor starts the cluster's supervisor in a new network namespace, and waits until it
// responds.
func startSupervisor(ctx context.Context, c *Config, machine *os.File, p *progress) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	d := c.dirs()
	log, err := os.OpenFile(d.log("supervisor"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("supervisor's log: %w", err)
	}
	defer log.Close()
	// The supervisor must continue after this command has ended, so it does not use the command's
	// context.
	cmd := exec.Command(self, "cluster", "supervise", c.DataDir)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, []*os.File{machine}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, supervisorPatience)
	defer cancel()
	for {
		if _, err = Inspect(ctx, c); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return p.failed("supervisor", err, d.log("supervisor"))
		case <-ctx.Done():
			return p.failed("supervisor", err, d.log("supervisor"))
		case <-p.deps.Clock.After(poll):
		}
	}
}

// bringUp waits for the control plane, installs the add-ons, and starts nodes until the cluster has
// c.Nodes nodes and all are ready.
func bringUp(ctx context.Context, c *Config, p *progress) error {
	st, err := Inspect(ctx, c)
	if err != nil {
		return err
	}
	missing := c.Nodes - len(st.Nodes)
	for range max(missing, 0) {
		if err := call(ctx, c.dirs().socket(), "POST", "/nodes/add", nil, nil); err != nil {
			return fmt.Errorf("add node: %w", err)
		}
	}
	if err := waitControlPlane(ctx, c, p); err != nil {
		return err
	}
	group, until := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := applyAddons(until, c, p.deps.Clock); err != nil {
			return p.failed("add-ons", err, c.logsOf(apiserver)...)
		}
		return nil
	})
	group.Go(func() error { return waitNodes(until, c, p) })
	if err := group.Wait(); err != nil {
		return err
	}
	if c.Nodes == 0 {
		return nil
	}
	return waitDNS(ctx, c, p)
}

// applyAddons creates the cluster's add-on objects.
func applyAddons(ctx context.Context, c *Config, clk clock.Clock) error {
	cfg, err := adminConfig(c)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return c.shared().ApplyAddons(ctx, client, clk)
}

// Inspect returns the state of a running cluster, which it requests from the supervisor.
func Inspect(ctx context.Context, c *Config) (*Status, error) {
	st := &Status{}
	err := call(ctx, c.dirs().socket(), "GET", "/status", nil, st)
	var dial *net.OpError
	if errors.As(err, &dial) && (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)) {
		return nil, fmt.Errorf("%s: %w", c.Name, errNotRunning)
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}
