// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"keelson.dev/api/clock"
)

const (
	// retryPeriod is the delay before a failed write is retried.
	retryPeriod = 500 * time.Millisecond
	// refreshTimeout is the timeout for reading the node from the API server.
	refreshTimeout = 5 * time.Second
)

// Config holds a Node's settings.
type Config struct {
	Clock clock.Clock
	Log   *slog.Logger

	// Settings for the registration.

	IPs    []string
	Port   int32 // port of the kubelet's server
	Taints []v1.Taint
	// Unschedulable registers the node as unschedulable (cordoned).
	Unschedulable bool
	// ProviderID is the cloud provider's ID of the machine. It is empty if the machine has none, or
	// if the cloud controller manager sets it.
	ProviderID string
	// Registered means that another program creates the Node object, so that the kubelet must not.
	Registered bool

	// Fields of the status that do not change.

	Capacity, Allocatable v1.ResourceList
	Info                  v1.NodeSystemInfo
	// Declared are the node's declared features, which pods may require.
	Declared []string

	// Fields of the status that change. VolumesInUse may be nil.

	// Devices returns the extended resources of device plugins, and the names of resources whose
	// plugins were removed.
	Devices func() (capacity, allocatable v1.ResourceList, gone []v1.ResourceName)
	// VolumesInUse returns the volumes that the control plane must not detach from the node.
	VolumesInUse   func() []v1.UniqueVolumeName
	RuntimeVersion func() string
	Handlers       func() []v1.NodeRuntimeHandler
	Features       func() *v1.NodeFeatures
	// Images returns the images on the node, the largest first.
	Images func(ctx context.Context) []v1.ContainerImage
	// Ready returns nil if pods can run, and otherwise an error that says why they cannot.
	Ready func() error
	// Pressures returns the pressure conditions that are true, with their messages.
	Pressures func() map[v1.NodeConditionType]string
	// Event records an event on the node.
	Event func(eventType, reason, message string)

	// Intervals and timeouts.

	// Period is the interval between computations of the status. ReportPeriod is the interval at
	// which the status is written even if it has not changed.
	Period, ReportPeriod time.Duration
	LeaseDuration        time.Duration
	// StartGrace is the maximum time that the first status waits until Ready returns nil. A kubelet
	// that has just restarted does not know yet whether pods can run. If it reported the node as
	// not ready, all pods of the node would become unready.
	StartGrace time.Duration
}

// Node registers the node's object and keeps its status and Lease up to date.
type Node struct {
	*Handle
	cfg           Config
	written       time.Time
	unschedulable bool // as in the last event about it; false at the start, as in Kubernetes
}

// New returns a Node. It sends no requests yet.
func New(h *Handle, cfg Config) *Node { return &Node{Handle: h, cfg: cfg} }

// Run registers the node and keeps it up to date until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	if !n.cfg.Registered {
		if err := n.register(ctx); err != nil {
			return nil // register returns an error only when ctx has ended
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { n.renew(ctx) })
	defer wg.Wait()
	n.awaitReady(ctx)
	t := n.cfg.Clock.NewTicker(n.cfg.Period)
	defer t.Stop()
	for {
		for n.update(ctx) != nil && ctx.Err() == nil {
			n.pause(ctx, retryPeriod)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		case <-t.C():
		}
	}
}

// awaitReady waits until pods can run, for at most StartGrace.
func (n *Node) awaitReady(ctx context.Context) {
	t := n.cfg.Clock.NewTimer(n.cfg.StartGrace)
	defer t.Stop()
	for n.cfg.Ready() != nil {
		select {
		case <-ctx.Done():
			return
		case <-t.C():
			return
		case <-n.wake:
		}
	}
}

func (n *Node) pause(ctx context.Context, d time.Duration) {
	t := n.cfg.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C():
	}
}

// register creates the Node, or updates an existing one.
func (n *Node) register(ctx context.Context) error {
	for {
		err := n.tryRegister(ctx)
		if err == nil {
			n.cfg.Log.Info("Node registered", "node", n.id.Name)
			return nil
		}
		n.cfg.Log.Warn("Failed to register the node", "node", n.id.Name, "err", err)
		if n.pause(ctx, retryPeriod); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (n *Node) tryRegister(ctx context.Context) error {
	want := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.id.Name, Labels: n.labels(),
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: v1.NodeSpec{ProviderID: n.cfg.ProviderID, Taints: n.cfg.Taints, Unschedulable: n.cfg.Unschedulable},
	}
	want.Status = n.status(ctx, want)
	got, err := n.id.Client.CoreV1().Nodes().Create(ctx, want, metav1.CreateOptions{})
	created := err == nil
	if apierrors.IsAlreadyExists(err) {
		got, err = n.adopt(ctx)
	}
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	n.saw(got)
	if created {
		n.recordChanges(&v1.NodeStatus{}, &got.Status)
	}
	return nil
}

// adopt updates the labels of an existing Node object.
func (n *Node) adopt(ctx context.Context) (*v1.Node, error) {
	old, err := n.id.Client.CoreV1().Nodes().Get(ctx, n.id.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	want := old.DeepCopy()
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	maps.Copy(want.Labels, n.labels())
	if equality.Semantic.DeepEqual(old, want) {
		return old, nil
	}
	return n.patch(ctx, old, want)
}

// update writes the status if it has changed or if ReportPeriod has passed since the last write.
func (n *Node) update(ctx context.Context) error {
	// The status is only compared here, so a version from the server's cache is good enough.
	old, err := n.id.Client.CoreV1().Nodes().Get(ctx, n.id.Name, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) && !n.cfg.Registered {
		return n.tryRegister(ctx) // the node object was deleted, but the machine still exists
	}
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	n.saw(old)
	n.recordSchedulable(old.Spec.Unschedulable)
	want := old.DeepCopy()
	want.Status = n.status(ctx, old)
	now := n.cfg.Clock.Now()
	if !n.differs(&old.Status, &want.Status) && now.Sub(n.written) < n.cfg.ReportPeriod {
		return nil
	}
	got, err := n.patch(ctx, old, want, "status")
	if err != nil {
		return err
	}
	n.written = now
	n.saw(got)
	n.recordChanges(&old.Status, &got.Status)
	return nil
}

// differs reports whether two statuses differ in anything other than heartbeat times.
func (n *Node) differs(a, b *v1.NodeStatus) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	for _, s := range []*v1.NodeStatus{x, y} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return !equality.Semantic.DeepEqual(x, y)
}

func (n *Node) patch(ctx context.Context, old, want *v1.Node, subresources ...string) (*v1.Node, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("patch of the node: %w", err)
	}
	after, err := json.Marshal(want)
	if err != nil {
		return nil, fmt.Errorf("patch of the node: %w", err)
	}
	body, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Node{})
	if err != nil {
		return nil, fmt.Errorf("patch of the node: %w", err)
	}
	got, err := n.id.Client.CoreV1().Nodes().Patch(ctx, n.id.Name, types.StrategicMergePatchType, body,
		metav1.PatchOptions{}, subresources...)
	if err != nil {
		return nil, fmt.Errorf("patch the node: %w", err)
	}
	return got, nil
}
