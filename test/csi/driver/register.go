// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// ServeAt serves on a socket, in place of who had it before, until ctx ends.
func ServeAt(ctx context.Context, socket string, register func(*grpc.Server), options ...grpc.ServerOption) error {
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

// Register tells the kubelet of a driver until ctx ends: it finds a socket in its directory for the
// registration of plugins, and by it the driver's own, by the path that that has on the node.
func Register(ctx context.Context, name, socket, registry string, log *slog.Logger) error {
	r := &registrar{info: &registration.PluginInfo{Type: registration.CSIPlugin, Name: name, Endpoint: socket, SupportedVersions: []string{"1.0.0"}}, log: log}
	return ServeAt(ctx, filepath.Join(registry, name+"-reg.sock"), func(s *grpc.Server) { registration.RegisterRegistrationServer(s, r) })
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
