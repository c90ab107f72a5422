// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package localdisk is a Container Storage Interface (CSI) driver for volumes on the node's own disk.
// Each volume is a sparse file of the volume's size, which is attached to a loop device. The file
// contains a file system, or nothing if the volume is used as a block device. The size of a file
// system is limited to the requested size, and a pod sees a disk of its own instead of the node's
// disk.
//
// The driver listens on a CSI plugin socket of the kubelet, as drivers of other vendors do. It needs
// no sidecars: the controller manager creates and deletes volumes through the kubelet (package
// csidrivers). A volume can be used only on its own node, as its topology says.
//
// Invariants:
//
//   - A volume exists exactly while a directory with its name exists. The driver builds the volume,
//     file system included, before it renames the directory to that name. A process that is killed
//     before that leaves a directory whose name begins with a dot. The next start removes it.
//   - Space that is promised to one volume is not promised to another, even if it is not used yet.
//   - A file system is created together with its volume and never later.
//   - The loop device of a file system is released as soon as the file system is unmounted everywhere.
//
// The driver supports neither volumes for several nodes nor snapshots nor clones.
package localdisk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	// Name is the CSI name of the driver.
	Name = "disk.csi.keelson.dev"
	// TopologyKey is the node label that restricts a volume to its node.
	TopologyKey = Name + "/node"
	// maxMessage is the maximum size of a request in bytes.
	maxMessage = 1 << 20
)

// Config holds a Driver's settings.
type Config struct {
	// RootDir is the kubelet's directory.
	RootDir  string
	NodeName string
	// Version is the kubelet's version.
	Version string
	Log     *slog.Logger
}

// Driver is the CSI driver. It is safe for concurrent use.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	cfg Config

	// promising is locked from the check for free space until the space is reserved. If an
	// operation also locks a volume, it locks the volume first.
	promising sync.Mutex
	mu        sync.Mutex
	busy      map[string]bool // IDs of volumes with an operation in progress
}

// New returns a Driver. It starts no goroutines.
func New(cfg Config) *Driver { return &Driver{cfg: cfg, busy: map[string]bool{}} }

// Dir returns the driver's directory. rootDir is the kubelet's directory.
func Dir(rootDir string) string { return filepath.Join(rootDir, "plugins", Name) }

func (d *Driver) socket() string { return filepath.Join(Dir(d.cfg.RootDir), "csi.sock") }

// Listen creates the driver's sockets in place of those of an earlier process. The caller must then
// call the returned function, which serves the driver until its context ends. Pods can continue to
// use their volumes after that. The kubelet must call Listen before it looks for plugins: it
// unregisters a plugin whose socket is removed.
func (d *Driver) Listen(ctx context.Context) (serveAll func(context.Context) error, err error) {
	if err := os.MkdirAll(d.volumes(), 0o750); err != nil {
		return nil, fmt.Errorf("volumes on the node's disk: %w", err)
	}
	if err := d.removeIncomplete(); err != nil {
		return nil, err
	}
	service, err := listen(ctx, d.socket())
	if err != nil {
		return nil, err
	}
	// A kubelet calls the driver as soon as it finds the registration socket, so create that
	// socket last.
	registrar, err := listen(ctx, filepath.Join(d.cfg.RootDir, "plugins_registry", Name+"-reg.sock"))
	if err != nil {
		return nil, errors.Join(err, service.Close())
	}
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return serve(ctx, service, d.Serve) })
		g.Go(func() error {
			return serve(ctx, registrar, func(s *grpc.Server) { registration.RegisterRegistrationServer(s, d) })
		})
		return g.Wait()
	}, nil
}

// Serve registers the driver's services at a server.
func (d *Driver) Serve(s *grpc.Server) {
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	csi.RegisterNodeServer(s, d)
}

// listen listens on a Unix socket. It removes the socket of an earlier process first.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, fmt.Errorf("directory of socket: %w", err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("earlier socket: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // keep the socket, because the kubelet unregisters a plugin when its socket is removed
	}
	return l, nil
}

// serve runs a gRPC server on l until ctx ends. register adds the services to the server.
func serve(ctx context.Context, l net.Listener, register func(*grpc.Server)) error {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	register(s)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// removeIncomplete removes volumes whose creation or deletion was interrupted.
func (d *Driver) removeIncomplete() error {
	entries, err := os.ReadDir(d.volumes())
	if err != nil {
		return fmt.Errorf("volumes on the node's disk: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			if err := os.RemoveAll(filepath.Join(d.volumes(), e.Name())); err != nil {
				return fmt.Errorf("incomplete volume: %w", err)
			}
		}
	}
	return nil
}

// alone calls f with the volume locked. If another operation on the volume is in progress, it
// returns the gRPC error Aborted, as CSI requires.
func alone[T any](d *Driver, id string, f func() (T, error)) (T, error) {
	var none T
	d.mu.Lock()
	if d.busy[id] {
		d.mu.Unlock()
		return none, status.Errorf(codes.Aborted, "another operation on volume %s is in progress", id)
	}
	d.busy[id] = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.busy, id)
	}()
	return f()
}

// GetInfo implements registration.RegistrationServer.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: Name, Endpoint: d.socket(),
		SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		d.cfg.Log.Warn("Failed to register the driver for volumes on the node's disk", "err", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// GetPluginInfo implements csi.IdentityServer.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: d.cfg.Version}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (
	*csi.GetPluginCapabilitiesResponse, error) {
	service := func(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
	}
	online := &csi.PluginCapability{
		Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE}}}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS), online,
	}}, nil
}

// Probe implements csi.IdentityServer.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
