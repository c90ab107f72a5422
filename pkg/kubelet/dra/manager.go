// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

// Config holds a Manager's settings.
type Config struct {
	// File is the path of the file that records the prepared claims.
	File string
	// Claim reads a claim from the API.
	Claim func(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
	// Wipe deletes the ResourceSlices of a driver on this node, or those of all drivers if driver
	// is "".
	Wipe func(ctx context.Context, driver string) error
	// Changed is called for each pod whose devices have changed their health. It must not block.
	Changed func(pod types.UID)
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer // may be nil
}

// Manager prepares the resource claims of pods. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	metrics *metrics

	preparing sync.Mutex // held during calls to drivers; locked before mu

	changed chan struct{} // holds a token if Run must check all drivers again
	wg      sync.WaitGroup

	mu      sync.Mutex
	drivers map[string][]*driver // processes by name of the driver, in the order of their registration
	// gone holds, for each driver that cannot be reached, the time at which its ResourceSlices are
	// deleted.
	gone   map[string]time.Time
	claims map[types.UID]*claim
}

// claim is a resource claim that is, or may be, prepared on this node.
type claim struct {
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Drivers   []string           `json:"drivers"`
	Pods      map[types.UID]bool `json:"pods"`
	// Devices holds the claim's devices by driver, for those drivers that have prepared the claim.
	Devices map[string][]*device `json:"devices,omitempty"`
	ready   bool                 // this kubelet process has called all drivers to prepare the claim, and all succeeded
}

// device is a device of a claim. The field Requests names the requests of the claim to which the
// device belongs. If it names none, the device belongs to all of them.
type device struct {
	Pool     string   `json:"pool,omitempty"`
	Share    *string  `json:"share,omitempty"`
	Name     string   `json:"name,omitempty"`
	Requests []string `json:"requests,omitempty"`
	CDI      []string `json:"cdi,omitempty"`
}

// NewManager returns a Manager that starts with the claims recorded in the file.
func NewManager(cfg Config) *Manager {
	m := &Manager{
		cfg: cfg, metrics: newMetrics(cfg.Clock), changed: make(chan struct{}, 1),
		drivers: map[string][]*driver{}, gone: map[string]time.Time{}, claims: map[types.UID]*claim{},
	}
	if _, err := checkpoint.Read(cfg.File, &m.claims); err != nil {
		cfg.Log.Warn("Failed to read the record of prepared resource claims", "err", err)
		m.claims = nil
	}
	if m.claims == nil {
		m.claims = map[types.UID]*claim{}
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(m.metrics.operations, m.metrics.calls, &claimsInUse{m})
	}
	return m
}

// save writes the claims to the file. The caller holds mu.
func (m *Manager) save() error {
	if err := checkpoint.WriteDurably(m.cfg.File, m.claims); err != nil {
		return fmt.Errorf("checkpoint ResourceClaim cache: %w", err)
	}
	return nil
}

// Prepare makes the drivers prepare the pod's claims. After an error, the caller must call it
// again.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) (err error) {
	claims := claimsOf(pod)
	if len(claims) == 0 {
		return nil
	}
	defer m.metrics.operation("PrepareResources", m.cfg.Clock.Now(), &err)
	m.preparing.Lock()
	defer m.preparing.Unlock()
	for i := range claims {
		if err := m.prepare(ctx, pod, &claims[i]); err != nil {
			return fmt.Errorf("prepare dynamic resources: %w", err)
		}
	}
	return nil
}

func (m *Manager) prepare(ctx context.Context, pod *v1.Pod, ref *v1.PodResourceClaim) error {
	name, mustOwn, err := resourceclaim.Name(pod, ref)
	if err != nil {
		return err
	}
	if name == nil {
		return nil // the pod needs no claim for this entry, as the control plane has decided
	}
	if m.isPrepared(pod, *name) {
		return nil
	}
	c, err := m.cfg.Claim(ctx, pod.Namespace, *name)
	if err != nil {
		return fmt.Errorf("fetch ResourceClaim %s: %w", *name, err)
	}
	if mustOwn {
		if err := resourceclaim.IsForPod(pod, c, false); err != nil {
			return err
		}
	}
	if !resourceclaim.IsReservedForPod(pod, c, false) {
		return fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, c.Name, c.UID)
	}
	if c.Status.Allocation == nil {
		return fmt.Errorf("ResourceClaim %s: claim is not allocated", c.Name)
	}
	for _, name := range driversOf(c) {
		if _, err := m.driver(name); err != nil {
			// Return before the claim is recorded. A recorded claim would make the end of the pod
			// wait until this driver, which was never called, unprepares it.
			return err
		}
	}
	mine, err := m.begin(pod, c)
	if err != nil {
		return err
	}
	for _, name := range mine.Drivers {
		devices, err := m.ask(ctx, name, c)
		if err != nil {
			return err
		}
		m.mu.Lock()
		mine.Devices[name] = devices
		m.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	mine.ready = true
	return m.save()
}

// isPrepared reports whether this kubelet process has prepared the claim for the pod.
func (m *Manager) isPrepared(pod *v1.Pod, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		if c.Namespace == pod.Namespace && c.Name == name && c.Pods[pod.UID] && c.ready {
			return true
		}
	}
	return false
}

// begin records the claim and that the pod uses it. It must be called before any driver is called,
// so that the claim is unprepared in any case.
func (m *Manager) begin(pod *v1.Pod, c *resourceapi.ResourceClaim) (*claim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, other := range m.claims {
		if other.Namespace == c.Namespace && other.Name == c.Name && uid != c.UID {
			return nil, fmt.Errorf(
				"old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)", c.Name, uid)
		}
	}
	mine := m.claims[c.UID]
	if mine == nil {
		mine = &claim{Namespace: c.Namespace, Name: c.Name, Drivers: driversOf(c), Pods: map[types.UID]bool{},
			Devices: map[string][]*device{}}
		m.claims[c.UID] = mine
	}
	if mine.Devices == nil {
		mine.Devices = map[string][]*device{}
	}
	mine.Pods[pod.UID] = true
	return mine, m.save()
}

// driversOf returns the names of the drivers whose devices are allocated to a claim.
func driversOf(c *resourceapi.ResourceClaim) (out []string) {
	for _, r := range c.Status.Allocation.Devices.Results {
		if !slices.Contains(out, r.Driver) {
			out = append(out, r.Driver)
		}
	}
	return out
}

// ask calls a driver to prepare a claim. It returns the claim's devices.
func (m *Manager) ask(ctx context.Context, name string, c *resourceapi.ResourceClaim) ([]*device, error) {
	client, err := m.driver(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := client.NodePrepareResources(ctx,
		&api.NodePrepareResourcesRequest{Claims: []*api.Claim{{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name}}})
	if err != nil {
		return nil, fmt.Errorf("NodePrepareResources: %w", err)
	}
	result, ok := r.GetClaims()[string(c.UID)]
	if !ok {
		return nil, errors.New("NodePrepareResources skipped 1 ResourceClaims")
	}
	if text := result.GetError(); text != "" {
		return nil, fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", c.Name, text)
	}
	var out []*device
	for _, d := range result.GetDevices() {
		one := &device{Pool: d.GetPoolName(), Name: d.GetDeviceName(), Share: d.ShareId, CDI: d.GetCdiDeviceIds()}
		// Containers refer to requests, so replace a subrequest by its request.
		for _, name := range d.GetRequestNames() {
			one.Requests = append(one.Requests, resourceclaim.BaseRequestRef(name))
		}
		out = append(out, one)
	}
	return out, nil
}

// Claim holds the devices that a container gets from a resource claim.
type Claim struct {
	Namespace, Name string
	Devices         []Device
}

// Device is a device that a container gets from a resource claim.
type Device struct {
	Driver, Pool, Name string
	Share              *string // ID of the share, if the device is shared between claims
	CDI                []string
}

// Container returns the CDI names of all devices that a container gets from resource claims.
func (m *Manager) Container(pod *v1.Pod, c *v1.Container) ([]string, error) {
	claims, err := m.claimed(pod, c)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, claim := range claims {
		for _, d := range claim.Devices {
			for _, n := range d.CDI {
				if !slices.Contains(out, n) {
					out = append(out, n)
				}
			}
		}
	}
	return out, nil
}

// Devices returns the resource claims of a container with their devices. It returns nil if one of
// the claims is not prepared yet.
func (m *Manager) Devices(pod *v1.Pod, c *v1.Container) []Claim {
	claims, err := m.claimed(pod, c)
	if err != nil {
		return nil // not prepared yet
	}
	return claims
}

func (m *Manager) claimed(pod *v1.Pod, c *v1.Container) ([]Claim, error) {
	var out []Claim
	for _, want := range c.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims, func(r v1.PodResourceClaim) bool { return r.Name == want.Name })
		if i < 0 {
			return nil, fmt.Errorf("the pod has no claim %s", want.Name)
		}
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue
		}
		devices, err := m.devices(pod, *name, want.Request)
		if err != nil {
			return nil, err
		}
		out = append(out, Claim{pod.Namespace, *name, devices})
	}
	extended, err := m.extended(pod, c)
	return append(out, extended...), err
}

func (m *Manager) devices(pod *v1.Pod, name, request string) ([]Device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		if c.Namespace != pod.Namespace || c.Name != name || !c.Pods[pod.UID] {
			continue
		}
		var out []Device
		for _, driver := range slices.Sorted(maps.Keys(c.Devices)) {
			for _, d := range c.Devices[driver] {
				if request == "" || len(d.Requests) == 0 || slices.Contains(d.Requests, request) {
					out = append(out, Device{driver, d.Pool, d.Name, d.Share, d.CDI})
				}
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("unable to get claim info for claim %s in namespace %s", name, pod.Namespace)
}

// Unprepare removes the pod from its claims, and makes the drivers unprepare those that no other
// pod uses. All containers of the pod have ended. After an error, the caller must call Unprepare
// again.
func (m *Manager) Unprepare(ctx context.Context, uid types.UID) (err error) {
	if len(m.claimsOf(uid)) == 0 {
		return nil
	}
	defer m.metrics.operation("UnprepareResources", m.cfg.Clock.Now(), &err)
	m.preparing.Lock()
	defer m.preparing.Unlock()
	for id, c := range m.claimsOf(uid) {
		if len(c.Pods) == 1 {
			for _, name := range c.Drivers {
				if err := m.undo(ctx, name, id, c); err != nil {
					return fmt.Errorf("unprepare dynamic resources: %w", err)
				}
			}
		}
		m.mu.Lock()
		if delete(c.Pods, uid); len(c.Pods) == 0 {
			delete(m.claims, id)
		}
		err := m.save()
		m.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// claimsOf returns the claims that are recorded for a pod.
func (m *Manager) claimsOf(uid types.UID) map[types.UID]*claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[types.UID]*claim{}
	for id, c := range m.claims {
		if c.Pods[uid] {
			out[id] = c
		}
	}
	return out
}

func (m *Manager) undo(ctx context.Context, name string, uid types.UID, c *claim) error {
	client, err := m.driver(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := client.NodeUnprepareResources(ctx,
		&api.NodeUnprepareResourcesRequest{Claims: []*api.Claim{{Namespace: c.Namespace, Uid: string(uid), Name: c.Name}}})
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	result, ok := r.GetClaims()[string(uid)]
	if !ok {
		return errors.New("NodeUnprepareResources skipped 1 ResourceClaims")
	}
	if text := result.GetError(); text != "" {
		return fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", c.Name, text)
	}
	return nil
}

// Pods returns the UIDs of the pods whose claims are prepared, or may be prepared.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[types.UID]bool{}
	for _, c := range m.claims {
		maps.Copy(seen, c.Pods)
	}
	return slices.Collect(maps.Keys(seen))
}
