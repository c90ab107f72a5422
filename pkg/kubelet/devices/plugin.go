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

	"keelson.dev/keelson/pkg/kubelet/plugins"
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
	socket  string
}

// registry is the service at which plugins register.
type registry struct {
	api.UnimplementedRegistrationServer
	*Manager
	ctx context.Context // ends the plugins' streams; a field, because it outlives the registration call
	wg  *sync.WaitGroup
}

// Run serves registrations and follows plugins until ctx ends. Running plugins see the new socket
// and register again.
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
	s, r := grpc.NewServer(), &registry{Manager: m, ctx: ctx, wg: &wg}
	api.RegisterRegistrationServer(s, r)
	m.mu.Lock()
	m.registry = r
	m.mu.Unlock()
	defer context.AfterFunc(ctx, s.Stop)()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve device plugins: %w", err)
	}
	return nil
}

// clear removes the sockets of an earlier kubelet, so that plugins register again.
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

// Register implements the registration service.
func (r *registry) Register(ctx context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	if !slices.Contains(api.SupportedVersions[:], req.GetVersion()) {
		return nil, fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q",
			req.GetVersion(), api.SupportedVersions)
	}
	socket := filepath.Join(r.cfg.Dir, filepath.Base(req.GetEndpoint()))
	return &api.Empty{}, r.take(ctx, req.GetResourceName(), socket, req.GetOptions())
}

// take connects to a plugin that serves at a socket.
func (r *registry) take(ctx context.Context, name, socket string, options *api.DevicePluginOptions) error {
	if !extended(name) {
		return fmt.Errorf("the ResourceName %q is invalid", name)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"))
	if err != nil {
		return fmt.Errorf("endpoint of the plugin: %w", err)
	}
	p := &plugin{conn: conn, client: api.NewDevicePluginClient(conn), options: options, socket: socket}
	if p.options == nil {
		if p.options, err = p.client.GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
			return errors.Join(fmt.Errorf("failed to get device plugin options: %w", err), conn.Close())
		}
	}
	life, cancel := context.WithCancel(r.ctx)
	p.close = cancel
	r.connected(name, p)
	r.wg.Go(func() { r.follow(life, name, p) })
	return nil
}

var _ plugins.Handler = (*Manager)(nil)

// Register implements plugins.Handler. It is the second way to register: by a socket in the
// plugins' directory.
func (m *Manager) Register(ctx context.Context, p plugins.Plugin) error {
	if !slices.ContainsFunc(p.Versions, func(v string) bool { return slices.Contains(api.SupportedVersions[:], v) }) {
		return fmt.Errorf("manager version, %s, is not among plugin supported versions %v", api.Version, p.Versions)
	}
	m.mu.Lock()
	r := m.registry
	m.mu.Unlock()
	if r == nil {
		return errors.New("the kubelet is starting")
	}
	return r.take(ctx, p.Name, p.Endpoint, nil)
}

// Unregister implements plugins.Handler.
func (m *Manager) Unregister(p plugins.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.resources[p.Name]; o != nil && o.plugin != nil && o.plugin.socket == p.Endpoint {
		o.plugin.close()
	}
}

// extended reports whether an extended resource may have the name.
func extended(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") &&
		!strings.HasPrefix(name, "requests.") &&
		len(validation.IsQualifiedName("requests."+name)) == 0
}

// follow records the devices of a plugin until the plugin ends.
func (m *Manager) follow(ctx context.Context, name string, p *plugin) {
	defer func() { _ = p.conn.Close() }()
	defer m.disconnected(name, p)
	stream, err := p.client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		m.cfg.Log.Warn("Failed to list the devices of a plugin", "resource", name, "err", err)
		return
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			m.cfg.Log.Info("Device plugin disconnected", "resource", name, "err", err)
			return
		}
		m.listed(name, p, r.GetDevices())
	}
}
