// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servicecidr sets the Ready condition of ServiceCIDRs and adds a finalizer to them. A
// ServiceCIDR that is being deleted keeps the finalizer while a Service has an address in it that
// no other ServiceCIDR contains.
package servicecidr

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	applynetworkingv1 "k8s.io/client-go/applyconfigurations/networking/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "service-cidr-controller"

const (
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	// allocator is the value of the managed-by label of IPAddress objects that belong to Services.
	allocator = "ipallocator.k8s.io"
	// grace is how long the controller waits before it removes the finalizer, so that the
	// allocators of all API servers have seen that the ServiceCIDR is being deleted.
	grace = 10 * time.Second
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue     *controller.Queue
	ranges    networkinglisters.ServiceCIDRLister
	addresses networkinglisters.IPAddressLister
	grace     time.Duration
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) { return newController(d, grace) }

func newController(d controller.Deps, grace time.Duration) (controller.Controller, error) {
	networking := d.Informers.Networking().V1()
	c := &Controller{Deps: d, ranges: networking.ServiceCIDRs().Lister(),
		addresses: networking.IPAddresses().Lister(), grace: grace}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(networking.ServiceCIDRs().Informer(), func(old, r *networkingv1.ServiceCIDR) {
			c.queue.AddObject(controller.Latest(old, r))
			if old == nil || r == nil {
				c.queueOverlapping(prefixes(controller.Latest(old, r)))
			}
		}),
		controller.OnChange(networking.IPAddresses().Informer(), func(old, ip *networkingv1.IPAddress) {
			if a, ok := addressOf(controller.Latest(old, ip)); ok && (old == nil || ip == nil) {
				c.queueOverlapping([]netip.Prefix{netip.PrefixFrom(a, a.BitLen())})
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// queueOverlapping queues the ServiceCIDRs that overlap with one of the given prefixes.
func (c *Controller) queueOverlapping(with []netip.Prefix) {
	all, err := c.ranges.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, r := range all {
		for _, p := range prefixes(r) {
			if slices.ContainsFunc(with, p.Overlaps) {
				c.queue.Add(r.Name)
			}
		}
	}
}

func (c *Controller) sync(ctx context.Context, name string) error {
	r, err := c.ranges.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	held := slices.Contains(r.Finalizers, finalizer)
	if r.DeletionTimestamp == nil {
		if !held {
			if err := c.patch(ctx, name, `{"metadata":{"finalizers":["`+finalizer+`"]}}`); err != nil {
				return err
			}
		}
		return c.setReady(ctx, r, metav1.ConditionTrue, "", "Kubernetes Service CIDR is ready")
	}
	if !held {
		return nil
	}
	ranges, err := c.ranges.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("ranges: %w", err)
	}
	addresses, err := c.addresses.List(labels.SelectorFromSet(labels.Set{networkingv1.LabelManagedBy: allocator}))
	if err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	if !removable(r, ranges, addresses) {
		return c.setReady(ctx, r, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR")
	}
	if left := r.DeletionTimestamp.Add(c.grace).Sub(c.Clock.Now()); left > 0 {
		c.queue.AddAfter(name, left)
		return nil
	}
	return c.patch(ctx, name, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+finalizer+`"]}}`)
}

func (c *Controller) patch(ctx context.Context, name, patch string) error {
	_, err := c.Client.NetworkingV1().ServiceCIDRs().Patch(ctx, name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer: %w", err)
	}
	return nil
}

func (c *Controller) setReady(ctx context.Context, r *networkingv1.ServiceCIDR, status metav1.ConditionStatus,
	reason, message string) error {
	is := meta.FindStatusCondition(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	if is != nil && is.Status == status && is.Reason == reason && is.Message == message {
		return nil
	}
	condition := applymetav1.Condition().WithType(networkingv1.ServiceCIDRConditionReady).WithStatus(status).
		WithReason(reason).WithMessage(message).WithLastTransitionTime(metav1.NewTime(c.Clock.Now()))
	want := applynetworkingv1.ServiceCIDR(r.Name).WithStatus(
		applynetworkingv1.ServiceCIDRStatus().WithConditions(condition))
	_, err := c.Client.NetworkingV1().ServiceCIDRs().ApplyStatus(ctx, want,
		metav1.ApplyOptions{FieldManager: Name, Force: true})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	if status == metav1.ConditionTrue {
		c.Events.Event(r, v1.EventTypeWarning, "KubernetesServiceCIDRError",
			"The ServiceCIDR Status can not be set to Ready=True")
	}
	return fmt.Errorf("status: %w", err)
}

// removable reports whether each Service address in the ServiceCIDR r is also in another
// ServiceCIDR that is not being deleted.
func removable(r *networkingv1.ServiceCIDR, ranges []*networkingv1.ServiceCIDR,
	addresses []*networkingv1.IPAddress) bool {
	var others []netip.Prefix
	for _, o := range ranges {
		if o.Name != r.Name && o.DeletionTimestamp == nil {
			others = append(others, prefixes(o)...)
		}
	}
	for _, p := range prefixes(r) {
		if slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Overlaps(p) && o.Bits() <= p.Bits() }) {
			continue
		}
		for _, ip := range addresses {
			a, ok := addressOf(ip)
			if ok && allocates(p, a) && !slices.ContainsFunc(others, func(o netip.Prefix) bool { return allocates(o, a) }) {
				return false
			}
		}
	}
	return true
}

// allocates reports whether the address a can be allocated from the prefix p. The first address of
// a prefix cannot, nor can the last address of an IPv4 prefix.
func allocates(p netip.Prefix, a netip.Addr) bool {
	return p.Contains(a) && p.Masked().Addr() != a && (a.Is6() || a.Next().IsValid() && p.Contains(a.Next()))
}

func prefixes(r *networkingv1.ServiceCIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range r.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil { // cannot fail: the API server accepts only valid prefixes
			out = append(out, p)
		}
	}
	return out
}

// addressOf returns the address that an IPAddress object stands for, and whether it belongs to a
// Service.
func addressOf(ip *networkingv1.IPAddress) (netip.Addr, bool) {
	a, err := netip.ParseAddr(ip.Name)
	return a, err == nil && ip.Labels[networkingv1.LabelManagedBy] == allocator
}
