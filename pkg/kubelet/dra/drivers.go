// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/kubelet/pkg/apis/dra/v1beta1"
	"k8s.io/utils/clock"

	"keelson.dev/keelson/pkg/kubelet/plugins"
)

// callTimeout is the timeout of calls to drivers, as in Kubernetes.
const callTimeout = 45 * time.Second

var _ plugins.Handler = (*Manager)(nil)

// driver is a registered process of a DRA driver. There may be two processes of the same driver
// while one is replacing the other.
type driver struct {
	name, endpoint string
	conn           *grpc.ClientConn
	client         api.DRAPluginClient
	end            context.CancelFunc

	up     bool // the driver can be reached
	health map[deviceKey]health
	stale  clock.Timer // fires when the first of health is outdated; nil if health is empty
}

// Register implements plugins.Handler. It connects to the driver and follows its connection and the
// health of its devices.
func (m *Manager) Register(_ context.Context, p plugins.Plugin) error {
	i := slices.IndexFunc(p.Versions, func(v string) bool {
		return v == api.DRAPluginService ||
			v == v1beta1.DRAPluginService
	})
	if i < 0 {
		return fmt.Errorf("none of the DRA gRPC API %v is supported by the kubelet", p.Versions)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.ContainsFunc(m.drivers[p.Name], func(d *driver) bool { return d.endpoint == p.Endpoint }) {
		return fmt.Errorf("endpoint %s already registered for DRA driver plugin %s", p.Endpoint, p.Name)
	}
	conn, err := grpc.NewClient("unix://"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithUnaryInterceptor(m.metrics.measure(p.Name)))
	if err != nil {
		return fmt.Errorf("endpoint of the driver: %w", err)
	}
	// This context ends when the driver's process is unregistered. It must outlive this call of
	// Register.
	life, end := context.WithCancel(context.Background())
	d := &driver{name: p.Name, endpoint: p.Endpoint, conn: conn, client: api.NewDRAPluginClient(conn), end: end}
	if p.Versions[i] == v1beta1.DRAPluginService {
		d.client = v1beta1.V1Beta1ClientWrapper{DRAPluginClient: v1beta1.NewDRAPluginClient(conn)}
	}
	m.drivers[p.Name] = append(m.drivers[p.Name], d)
	m.usable(p.Name)
	m.wg.Go(func() { m.follow(life, d) })
	if health := healthClient(conn, p.Versions); health != nil {
		m.wg.Go(func() { m.watch(life, d, health) })
	}
	return nil
}

// Unregister implements plugins.Handler. It closes the connection to the driver's process.
func (m *Manager) Unregister(p plugins.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drivers[p.Name] = slices.DeleteFunc(m.drivers[p.Name], func(d *driver) bool {
		if d.endpoint == p.Endpoint {
			d.end()
			return true
		}
		return false
	})
	if len(m.drivers[p.Name]) == 0 {
		delete(m.drivers, p.Name)
	}
	m.usable(p.Name)
}

// closeAll closes the connections to all drivers and waits for their goroutines.
func (m *Manager) closeAll() {
	m.mu.Lock()
	for _, list := range m.drivers {
		for _, d := range list {
			d.end()
		}
	}
	m.drivers = map[string][]*driver{}
	m.mu.Unlock()
	m.wg.Wait()
}

// follow records whether the driver can be reached, until the connection is closed.
func (m *Manager) follow(ctx context.Context, d *driver) {
	defer func() { _ = d.conn.Close() }()
	for {
		state := d.conn.GetState()
		if state == connectivity.Idle {
			d.conn.Connect()
		}
		m.mu.Lock()
		if up := state == connectivity.Ready; up != d.up && ctx.Err() == nil {
			d.up = up
			m.usable(d.name)
		}
		m.mu.Unlock()
		if !d.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// driver returns the client of the process to call: among the driver's processes that can be
// reached, the one that registered last. If none can be reached, it is the one that registered
// last.
func (m *Manager) driver(name string) (api.DRAPluginClient, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.drivers[name]
	for _, d := range slices.Backward(list) {
		if d.up {
			return d.client, nil
		}
	}
	if len(list) > 0 {
		return list[len(list)-1].client, nil
	}
	return nil, fmt.Errorf("DRA driver %s is not registered", name)
}
