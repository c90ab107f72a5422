// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"keelson.dev/keelson/pkg/kubelet/plugins"
)

// callTimeout is the timeout of calls to drivers, as in Kubernetes.
const callTimeout = 2 * time.Minute

var _ plugins.Handler = (*Manager)(nil)

// driver is a CSI driver that is registered with this kubelet.
type driver struct {
	name     string
	endpoint string
	conn     *grpc.ClientConn
	node     csi.NodeClient
	// updated is the time when the registration, or Run, last asked the driver how many volumes the
	// node can have. After the registration, only the goroutine of Run uses it.
	updated time.Time
}

// Register implements plugins.Handler. It publishes the driver in the CSINode before the driver
// receives the result of its registration.
func (m *Manager) Register(ctx context.Context, p plugins.Plugin) error {
	if !slices.ContainsFunc(p.Versions, supported) {
		return fmt.Errorf("none of the CSI versions %v is supported by the kubelet", p.Versions)
	}
	conn, err := grpc.NewClient("unix://"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithUnaryInterceptor(m.measure(p.Name)))
	if err != nil {
		return fmt.Errorf("endpoint of the driver: %w", err)
	}
	d := &driver{name: p.Name, endpoint: p.Endpoint, conn: conn, node: csi.NewNodeClient(conn), updated: m.cfg.Clock.Now()}
	if err := m.addDriver(ctx, d); err != nil {
		_ = conn.Close()
		return fmt.Errorf("register CSI driver: %w", err)
	}
	m.Resync() // Run must take the driver's update period into account, if there is one
	return nil
}

// addDriver asks a driver for its data about the node, publishes the data, and adds the driver to
// the registered drivers.
func (m *Manager) addDriver(ctx context.Context, d *driver) error {
	info, err := d.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return err
	}
	// Hold the lock for both steps. If a driver of the same name was unregistered just before, a call
	// of the method withdraw could otherwise remove what is published here.
	m.publishing.Lock()
	defer m.publishing.Unlock()
	if err := m.publish(ctx, d.name, info); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.drivers[d.name]; old != nil {
		_ = old.conn.Close() // interrupted calls are repeated with the new connection
	}
	m.drivers[d.name] = d
	return nil
}

// measure returns a gRPC interceptor that measures the calls to a driver.
func (m *Manager) measure(driver string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		begun := m.cfg.Clock.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		m.cfg.Metrics.Call(driver, method, m.cfg.Clock.Since(begun), err)
		return err
	}
}

// supported reports whether the kubelet supports this version of CSI.
func supported(version string) bool {
	return strings.HasPrefix(strings.TrimPrefix(version, "v"), "1.")
}

// Unregister implements plugins.Handler. Volumes of the driver stay mounted.
func (m *Manager) Unregister(p plugins.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[p.Name]; d != nil && d.endpoint == p.Endpoint {
		_ = d.conn.Close()
		delete(m.drivers, p.Name)
		m.gone[p.Name] = true
		m.Resync()
	}
}

func (m *Manager) driver(name string) (*driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[name]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// abilities holds the capabilities that a driver's node service reports.
type abilities map[csi.NodeServiceCapability_RPC_Type]bool

func (d *driver) abilities(ctx context.Context) (abilities, error) {
	got, err := d.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("capabilities of driver %s: %w", d.name, err)
	}
	out := abilities{}
	for _, c := range got.GetCapabilities() {
		out[c.GetRpc().GetType()] = true
	}
	return out, nil
}

func (a abilities) stages() bool {
	return a[csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME]
}
