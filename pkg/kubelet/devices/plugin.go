// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/validation"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	socketName  = "kubelet.sock"
	callTimeout = time.Minute
)

// plugin is the connection to a device plugin.
type plugin struct {
	conn    *grpc.ClientConn
	client  api.DevicePluginClient
	options *api.DevicePluginOptions
	close   context.CancelFunc
}

// registry is the service at which plugins register.
type registry struct {
	api.UnimplementedRegistrationServer
	*Manager
	ctx context.Context //nolint:containedctx // the life of the plugins' streams, which is longer than that of a call
	wg  *sync.WaitGroup
}

// Run serves registrations and follows plugins until ctx ends. Plugins see the
// new socket and register anew.
func (m *Manager) Run(ctx context.Context) error {
	if err := os.MkdirAll(m.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	if err := m.clear(); err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(m.cfg.Dir, socketName))
	if err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, &registry{Manager: m, ctx: ctx, wg: &wg})
	defer context.AfterFunc(ctx, s.Stop)()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve device plugins: %w", err)
	}
	return nil
}

// clear removes the sockets of an earlier life, which tells plugins to come again.
func (m *Manager) clear() error {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(m.cfg.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Register implements the service.
func (r *registry) Register(ctx context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	if !slices.Contains(api.SupportedVersions[:], req.GetVersion()) {
		return nil, fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", req.GetVersion(), api.SupportedVersions)
	}
	if !extended(req.GetResourceName()) {
		return nil, fmt.Errorf("the ResourceName %q is invalid", req.GetResourceName())
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(r.cfg.Dir, filepath.Base(req.GetEndpoint())),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		return nil, fmt.Errorf("endpoint of the plugin: %w", err)
	}
	p := &plugin{conn: conn, client: api.NewDevicePluginClient(conn), options: req.GetOptions()}
	if p.options == nil {
		if p.options, err = p.client.GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
			return nil, errors.Join(fmt.Errorf("failed to get device plugin options: %w", err), conn.Close())
		}
	}
	life, cancel := context.WithCancel(r.ctx)
	p.close = cancel
	r.connected(req.GetResourceName(), p)
	r.wg.Go(func() { r.follow(life, req.GetResourceName(), p) })
	return &api.Empty{}, nil
}

// extended tells whether a name is one that extended resources may have.
func extended(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(name, "requests.") &&
		len(validation.IsQualifiedName("requests."+name)) == 0
}

// follow takes over what a plugin has until it is gone.
func (m *Manager) follow(ctx context.Context, name string, p *plugin) {
	defer func() { _ = p.conn.Close() }()
	defer m.disconnected(name, p)
	stream, err := p.client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		m.cfg.Log.Warn("Devices of a plugin are not listed", "resource", name, "err", err)
		return
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			m.cfg.Log.Info("Device plugin is gone", "resource", name, "err", err)
			return
		}
		m.listed(name, p, r.GetDevices())
	}
}
