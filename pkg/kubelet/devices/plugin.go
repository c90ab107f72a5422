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

// plugin is the kubelet's connection to a device plugin.
type plugin struct {
	conn    *grpc.ClientConn
	client  api.DevicePluginClient
	options *api.DevicePluginOptions
	close   context.CancelFunc
	socket  string
}

// registry is the gRPC service at which plugins register.
type registry struct {
	api.UnimplementedRegistrationServer
	*Manager
	ctx context.Context // limits the lifetime of the streams of plugins, which outlive the calls that register the plugins
	wg  *sync.WaitGroup
}

// Run serves registrations and follows the devices of plugins until ctx ends. When it creates its
// socket, plugins that are already running register again.
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

// clear removes all sockets in the directory, including that of an earlier kubelet process. Plugins
// notice the removal and register again.
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

// Register implements api.RegistrationServer. A plugin calls it to register.
func (r *registry) Register(ctx context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	if !slices.Contains(api.SupportedVersions[:], req.GetVersion()) {
		return nil, fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q",
			req.GetVersion(), api.SupportedVersions)
	}
	socket := filepath.Join(r.cfg.Dir, filepath.Base(req.GetEndpoint()))
	return &api.Empty{}, r.take(ctx, req.GetResourceName(), socket, req.GetOptions())
}

// take connects to a plugin at its socket and follows the devices that the plugin reports.
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

// Register implements plugins.Handler. It handles plugins that register by creating a socket in the
// directory of plugins, instead of calling the registration service.
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

// Unregister implements plugins.Handler. It ends the connection to the plugin.
func (m *Manager) Unregister(p plugins.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.resources[p.Name]; o != nil && o.plugin != nil && o.plugin.socket == p.Endpoint {
		o.plugin.close()
	}
}

// extended reports whether name is a valid name of an extended resource.
func extended(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") &&
		!strings.HasPrefix(name, "requests.") &&
		len(validation.IsQualifiedName("requests."+name)) == 0
}

// follow records the devices that a plugin reports, until the plugin ends.
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
