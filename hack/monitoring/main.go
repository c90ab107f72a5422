// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command monitoring runs Prometheus for a cluster of "ctl cluster up". Prometheus listens on the
// machine's loopback address. The processes that it scrapes listen in other network namespaces,
// most of them only on loopback addresses. Prometheus therefore connects to them through an HTTP
// proxy in this process. When this process ends, the kernel ends Prometheus.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"keelson.dev/keelson/pkg/cluster"
)

const headerTimeout = 10 * time.Second

// nobody is the ID of the user and group that Prometheus runs as.
const nobody = 65534

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("monitoring", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("cluster", "keelson", "name of the cluster to monitor")
	listen := flags.String("proxy", "127.0.0.1:9091", "address of the proxy into the cluster's network namespaces")
	root := flags.String("root", "", "directory to use as the root directory (chroot) of Prometheus")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := cluster.Load(*name, "")
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: newProxy(func(ctx context.Context) (*cluster.Status, error) {
			return cluster.Inspect(ctx, c)
		}),
		ReadHeaderTimeout: headerTimeout,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	err = prometheus(ctx, *root, flags.Args(), stderr)
	if err := errors.Join(server.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return err
}

// prometheus runs the program argv, whose path is relative to root, until the program or ctx ends.
func prometheus(ctx context.Context, root string, argv []string, stderr io.Writer) error {
	if len(argv) == 0 {
		return errors.New("the command of Prometheus is missing")
	}
	// The kernel sends the signal Pdeathsig when the thread that started the child ends, so this
	// thread must not end earlier.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{}, stderr, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		Setsid: true, Pdeathsig: syscall.SIGKILL,
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = headerTimeout
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("prometheus: %w", err)
	}
	return nil
}
