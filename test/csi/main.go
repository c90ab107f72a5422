// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi is the driver of package driver as a process, with its registration at
// the kubelet. Who makes, attaches and grows volumes, sidecars or the controller
// manager through the kubelet, finds it at its socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

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
	fs.StringVar(&d.Root, "root", "/csi-data", "directory of the volumes, the same on all nodes")
	socket := fs.String("socket", "/csi/csi.sock", "socket of the driver, by the same path on the node")
	registry := fs.String("registry", "", "the kubelet's directory for the registration of plugins; none: not registered")
	if err := fs.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return serve(ctx, *socket, d.Serve, grpc.UnaryInterceptor(d.Hold)) })
	if *registry != "" {
		r := &registrar{info: &registration.PluginInfo{
			Type: registration.CSIPlugin, Name: d.Name, Endpoint: *socket, SupportedVersions: []string{"1.0.0"},
		}, log: log}
		g.Go(func() error {
			return serve(ctx, filepath.Join(*registry, d.Name+"-reg.sock"), func(s *grpc.Server) { registration.RegisterRegistrationServer(s, r) })
		})
	}
	return g.Wait()
}

// serve serves on a socket, in place of who had it before, until ctx ends.
func serve(ctx context.Context, socket string, register func(*grpc.Server), options ...grpc.ServerOption) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := grpc.NewServer(options...)
	register(s)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	return s.Serve(l)
}

// registrar tells the kubelet what the driver is.
type registrar struct {
	registration.UnimplementedRegistrationServer
	info *registration.PluginInfo
	log  *slog.Logger
}

// GetInfo implements registration.RegistrationServer.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return r.info, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.log.Info("Registration", "done", s.GetPluginRegistered(), "err", s.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}
