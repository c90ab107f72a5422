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

// ServeAt serves on a Unix socket until ctx ends. It replaces a socket that an earlier process has
// left.
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

// Register registers a driver with the kubelet until ctx ends. It serves a socket in the kubelet's
// plugin registry directory. Through that socket, the kubelet gets the path of the driver's own
// socket.
func Register(ctx context.Context, name, socket, registry string, log *slog.Logger) error {
	r := &registrar{info: &registration.PluginInfo{Type: registration.CSIPlugin, Name: name, Endpoint: socket,
		SupportedVersions: []string{"1.0.0"}}, log: log}
	return ServeAt(ctx, filepath.Join(registry, name+"-reg.sock"),
		func(s *grpc.Server) { registration.RegisterRegistrationServer(s, r) })
}

// registrar implements the kubelet's plugin registration service.
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
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	r.log.Info("Registration result received", "done", s.GetPluginRegistered(), "err", s.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}
