// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/provision"
)

// goFile is the file descriptor of a pipe. The supervisor writes to the pipe when the network link
// of the node host is ready.
const goFile = 3

// HostNode is the init process of a node. It runs as the first process of new mount, PID, network,
// UTS and IPC namespaces. It waits until the supervisor has connected the node to the bridge, sets
// up the node's mounts and network, and keeps the node's daemons running until ctx ends.
func HostNode(ctx context.Context, dir string, deps Deps) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	c, n := &Config{}, Node{}
	nd := nodeDirs{root: dir}
	if err := errors.Join(readJSON(nd.spec(), &n), readJSON(filepath.Join(dir, "..", "..", "cluster.json"),
		c)); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if err := awaitLink(); err != nil {
		return err
	}
	if err := setupNodeMounts(nd, c.BinDir, c.ToolsDir); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(n.Name)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := setupNodeNetwork(n); err != nil {
		return err
	}
	raiseFileLimit(deps.Log)
	r := newReaper()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	tasks.Go(func() { r.run(inner) })
	var daemons sync.WaitGroup
	for _, p := range nodeProcesses(c, n, deps) {
		k := &keeper{process: p, reaper: r, clock: deps.Clock, logger: deps.Log}
		daemons.Go(func() { k.run(ctx) })
	}
	daemons.Wait()
	return nil
}

// awaitLink waits until the supervisor reports that the node's network link is ready. It returns an
// error if the supervisor has ended.
func awaitLink() error {
	f := os.NewFile(goFile, "go")
	defer f.Close()
	if _, err := io.ReadFull(f, make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the supervisor: %w", err)
	}
	return nil
}

// nodeProcesses returns a node's daemons, with paths as the node sees them.
func nodeProcesses(c *Config, n Node, deps Deps) []process {
	p := c.node(n)
	env := []string{
		"PATH=" + insideTools + ":" + insideBin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8",
	}
	awaitRuntime := func(ctx context.Context) error { return awaitSocket(ctx, provision.ContainerdSocket, deps) }
	return []process{
		{
			name: "containerd", log: "/var/log/containerd.log", env: env,
			argv: append([]string{filepath.Join(insideTools, "containerd")}, p.ContainerdArgs()...),
			attr: &syscall.SysProcAttr{Setsid: true},
		},
		{
			name: "kubelet", log: "/var/log/kubelet.log", env: env, before: awaitRuntime,
			argv: append([]string{filepath.Join(insideBin, "kubelet")}, p.KubeletArgs()...),
			attr: &syscall.SysProcAttr{Setsid: true},
		},
		{
			name: "proxy", log: "/var/log/proxy.log", env: env,
			argv: append([]string{filepath.Join(insideBin, "proxy")}, p.ProxyArgs()...),
			attr: &syscall.SysProcAttr{Setsid: true},
		},
	}
}

// awaitSocket waits until a server accepts connections at a Unix socket.
func awaitSocket(ctx context.Context, path string, deps Deps) error {
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", path, err)
		case <-deps.Clock.After(10 * time.Millisecond):
		}
	}
}

// raiseFileLimit lets the daemons open as many files as the machine allows.
func raiseFileLimit(log *slog.Logger) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Info("Failed to read the limit of open files", "err", err)
		return
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Info("Failed to raise the limit of open files", "err", err)
	}
}
