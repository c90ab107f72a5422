// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi runs the CSI driver of package driver, and registers it with the kubelet. CSI
// sidecars, or the controller manager by way of the kubelet, call the driver at its socket to
// create, attach and expand volumes.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"keelson.dev/keelson/test/csi/driver"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "csi:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &driver.Driver{}
	fs := flag.NewFlagSet("csi", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&d.Name, "name", "test.csi.keelson.dev", "name of the driver")
	fs.StringVar(&d.Node, "node", "", "name of the node")
	fs.StringVar(&d.Zone, "zone", "", "zone of the node; if empty, volumes are accessible from all nodes")
	fs.Int64Var(&d.MaxVolumes, "max-volumes", 0, "maximum number of volumes of a node; 0 means no limit")
	fs.StringVar(&d.Root, "root", "/csi-data", "directory of the volumes, which all nodes share")
	socket := fs.String("socket", "/csi/csi.sock",
		"path of the driver's socket, the same in the container and on the node")
	registry := fs.String("registry", "",
		"the kubelet's plugin registration directory; if empty, the driver does not register")
	if err := fs.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return driver.ServeAt(ctx, *socket, d.Serve, grpc.UnaryInterceptor(d.Hold)) })
	if *registry != "" {
		g.Go(func() error { return driver.Register(ctx, d.Name, *socket, *registry, log) })
	}
	return g.Wait()
}
