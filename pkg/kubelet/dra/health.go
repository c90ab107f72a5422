// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	"k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

// healthTimeout is how long a reported health is valid if the driver does not specify another time.
// retryStream is the delay before a stream that has ended is opened again. maxMessage is the
// maximum length of a message in characters.
const (
	healthTimeout = 30 * time.Second
	retryStream   = 5 * time.Second
	maxMessage    = 1024
	maxHolds      = 365 * 24 * 60 * 60 // maximum time, in seconds, for which a reported health is valid: one year
)

// deviceKey identifies a device among those of one driver.
type deviceKey struct{ pool, name string }

// health is the health of a device as its driver reported it. The field until is the time until
// which it is valid.
type health struct {
	status  v1.ResourceHealthStatus
	message string
	until   time.Time
}

// healthClient returns a client for the reports of health of a driver that supports these versions
// of services, or nil if it does not report health. It prefers the newest version.
func healthClient(conn *grpc.ClientConn, versions []string) healthapi.DRAResourceHealthClient {
	switch {
	case slices.Contains(versions, healthapi.DRAResourceHealthService):
		return healthapi.NewDRAResourceHealthClient(conn)
	case slices.Contains(versions, v1alpha1.DRAResourceHealthService):
		return healthapi.V1Alpha1ClientWrapper{Client: v1alpha1.NewDRAResourceHealthClient(conn)}
	default:
		return nil
	}
}

// watch records the health that a driver reports. It returns when the connection is closed or the
// driver does not support these reports.
func (m *Manager) watch(ctx context.Context, d *driver, client healthapi.DRAResourceHealthClient) {
	for ctx.Err() == nil {
		err := m.stream(ctx, d, client)
		m.clearHealth(d) // without a stream, the health of the driver's devices is unknown
		if status.Code(err) == codes.Unimplemented {
			return
		}
		t := m.cfg.Clock.NewTimer(retryStream)
		select {
		case <-ctx.Done():
		case <-t.C():
		}
		t.Stop()
	}
}

// stream reads reports from a driver until the stream ends.
func (m *Manager) stream(ctx context.Context, d *driver, client healthapi.DRAResourceHealthClient) error {
	stream, err := client.NodeWatchResources(ctx, &healthapi.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		m.recordHealth(d, r.GetDevices())
	}
}

// recordHealth records the health in a driver's report. A device that the report does not contain
// keeps its health until the health is outdated, so an empty report changes nothing.
func (m *Manager) recordHealth(d *driver, list []*healthapi.DeviceHealth) {
	now := m.cfg.Clock.Now()
	m.mu.Lock()
	old := d.health
	said := map[deviceKey]health{}
	for k, h := range old {
		if now.Before(h.until) {
			said[k] = h
		}
	}
	for _, one := range list {
		holds := healthTimeout
		if s := one.GetHealthCheckTimeoutSeconds(); s > 0 {
			holds = time.Duration(min(s, maxHolds)) * time.Second
		}
		said[deviceKey{one.GetDevice().GetPoolName(), one.GetDevice().GetDeviceName()}] = health{
			healthOf(one.GetHealth()), shorten(one.GetMessage()), now.Add(holds)}
	}
	m.setHealth(d, said)
	m.mu.Unlock()
	m.notifyUsers(d.name, func(k deviceKey) bool {
		return old[k].status != said[k].status ||
			old[k].message != said[k].message
	})
}

// clearHealth drops the health of all devices of a driver.
func (m *Manager) clearHealth(d *driver) {
	m.mu.Lock()
	old := d.health
	m.setHealth(d, nil)
	m.mu.Unlock()
	m.notifyUsers(d.name, func(k deviceKey) bool { return old[k].status != "" })
}

// setHealth replaces the health of a driver's devices. When the first of it is outdated, an empty
// report is recorded, which drops the outdated health. The caller holds m.mu.
func (m *Manager) setHealth(d *driver, said map[deviceKey]health) {
	if d.stale != nil {
		d.stale.Stop()
		d.stale = nil
	}
	d.health = said
	var first time.Time
	for _, h := range said {
		if first.IsZero() || h.until.Before(first) {
			first = h.until
		}
	}
	if !first.IsZero() {
		d.stale = m.cfg.Clock.AfterFunc(first.Sub(m.cfg.Clock.Now()), func() { m.recordHealth(d, nil) })
	}
}

func healthOf(h healthapi.HealthStatus) v1.ResourceHealthStatus {
	switch h {
	case healthapi.HealthStatus_HEALTHY:
		return v1.ResourceHealthStatusHealthy
	case healthapi.HealthStatus_UNHEALTHY:
		return v1.ResourceHealthStatusUnhealthy
	default:
		return v1.ResourceHealthStatusUnknown
	}
}

// shorten truncates a message to the maximum length that the API accepts.
func shorten(message string) string {
	if r := []rune(message); len(r) > maxMessage {
		return string(r[:maxMessage-3]) + "..."
	}
	return message
}

// notifyUsers calls Changed for the pods that have a device of the driver for which the function
// changed returns true.
func (m *Manager) notifyUsers(driver string, changed func(deviceKey) bool) {
	m.mu.Lock()
	users := map[types.UID][]deviceKey{}
	for _, c := range m.claims {
		for _, d := range c.Devices[driver] {
			for uid := range c.Pods {
				users[uid] = append(users[uid], deviceKey{d.Pool, d.Name})
			}
		}
	}
	m.mu.Unlock()
	for uid, keys := range users {
		if slices.ContainsFunc(keys, changed) {
			m.cfg.Changed(uid)
		}
	}
}

// Health returns the health of the devices that a container has through resource claims.
func (m *Manager) Health(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus {
	var out []v1.ResourceStatus
	for _, want := range c.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims, func(r v1.PodResourceClaim) bool { return r.Name == want.Name })
		if i < 0 {
			continue
		}
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		devices, err := m.devices(pod, *name, want.Request)
		if err != nil || len(devices) == 0 {
			continue // the claim is not prepared yet
		}
		s := v1.ResourceStatus{Name: v1.ResourceName("claim:" + want.Name)}
		if want.Request != "" {
			s.Name += v1.ResourceName("/" + want.Request)
		}
		for _, d := range devices {
			if h := m.healthOf(d); !slices.ContainsFunc(s.Resources,
				func(o v1.ResourceHealth) bool { return o.ResourceID == h.ResourceID }) {
				s.Resources = append(s.Resources, h)
			}
		}
		out = append(out, s)
	}
	return out
}

// healthOf returns the health of a device in the form of the pod's status. It is unknown if no
// report of it is valid.
func (m *Manager) healthOf(d Device) v1.ResourceHealth {
	out := v1.ResourceHealth{ResourceID: v1.ResourceID(fmt.Sprintf("%s/%s/%s", d.Driver, d.Pool, d.Name)),
		Health: v1.ResourceHealthStatusUnknown}
	if len(d.CDI) > 0 {
		out.ResourceID = v1.ResourceID(d.CDI[0])
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range slices.Backward(m.drivers[d.Driver]) {
		if h, ok := one.health[deviceKey{d.Pool, d.Name}]; ok && m.cfg.Clock.Now().Before(h.until) {
			if out.Health = h.status; h.message != "" {
				out.Message = &h.message
			}
			break
		}
	}
	return out
}
