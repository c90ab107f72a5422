// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"keelson.dev/keelson/pkg/kubelet/plugins"
)

// callTimeout is Kubernetes' bound for calls of drivers.
const callTimeout = 45 * time.Second

var _ plugins.Handler = (*Manager)(nil)

// driver is a driver that has registered.
type driver struct {
	endpoint string
	conn     *grpc.ClientConn
	client   api.DRAPluginClient
}

// Register implements plugins.Handler.
func (m *Manager) Register(_ context.Context, p plugins.Plugin) error {
	if !slices.Contains(p.Versions, api.DRAPluginService) {
		return fmt.Errorf("none of the DRA gRPC API %v is supported by the kubelet", p.Versions)
	}
	conn, err := grpc.NewClient("unix://"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		return fmt.Errorf("endpoint of the driver: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.drivers[p.Name]; old != nil {
		_ = old.conn.Close() // nothing is lost: calls are repeated
	}
	m.drivers[p.Name] = &driver{p.Endpoint, conn, api.NewDRAPluginClient(conn)}
	return nil
}

// Unregister implements plugins.Handler.
func (m *Manager) Unregister(p plugins.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[p.Name]; d != nil && d.endpoint == p.Endpoint {
		_ = d.conn.Close()
		delete(m.drivers, p.Name)
	}
}

func (m *Manager) driver(name string) (api.DRAPluginClient, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[name]; d != nil {
		return d.client, nil
	}
	return nil, fmt.Errorf("DRA driver %s is not registered", name)
}
