// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	applynetworkingv1 "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"keelson.dev/api/clock"
)

const (
	// DefaultServiceCIDR is the name of the ServiceCIDR object with the configured service ranges.
	DefaultServiceCIDR = "kubernetes"
	// ServiceCIDRController is the component that maintains the default ServiceCIDR: the source of its
	// events and the field manager of its status.
	ServiceCIDRController = "kubernetes-service-cidr-controller"

	// reasonFailed and reasonInconsistent are reasons of events.
	reasonFailed       = "KubernetesDefaultServiceCIDRError"
	reasonInconsistent = "KubernetesDefaultServiceCIDRInconsistent"
)

// ServiceCIDR maintains the default ServiceCIDR object. As in Kubernetes, it creates the object with
// the configured ranges and adds a second configured range to an object with one. It makes no other
// change of the ranges, because Services have addresses in them: if they differ from the
// configuration, an administrator has to delete the object. The object is not safe for concurrent
// use.
type ServiceCIDR struct {
	Client kubernetes.Interface
	Ranges []netip.Prefix // the configured ranges, the primary one first
	Events record.EventRecorder
	Clock  clock.Clock
	Log    *slog.Logger

	// Whether an event has been recorded because the object has other ranges than the configured
	// ones, and because its condition Ready is False.
	reportedRanges, reportedCondition bool
}

// Sync creates or updates the object. It returns an error if the object may not exist. If an update
// fails, it records an event, and the next call tries again.
func (c *ServiceCIDR) Sync(ctx context.Context) error {
	cur, err := c.Client.NetworkingV1().ServiceCIDRs().Get(ctx, DefaultServiceCIDR, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return c.create(ctx)
	case err != nil:
		return wrapped("service CIDR", err)
	case len(c.Ranges) == 2 && slices.Equal(cur.Spec.CIDRs, c.cidrs()[:1]):
		c.addRange(ctx, cur)
	case cur.DeletionTimestamp == nil: // otherwise, the controller manager maintains the status
		c.syncStatus(ctx, cur)
	}
	return nil
}

// cidrs returns the configured ranges as they are in the object.
func (c *ServiceCIDR) cidrs() []string {
	var out []string
	for _, r := range c.Ranges {
		out = append(out, r.Masked().String())
	}
	return out
}

func (c *ServiceCIDR) create(ctx context.Context) error {
	made, err := c.Client.NetworkingV1().ServiceCIDRs().Create(ctx, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: DefaultServiceCIDR},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: c.cidrs()},
	}, metav1.CreateOptions{})
	if err == nil {
		c.setReady(ctx, made)
	}
	// If another server has created the object in the meantime, the next call checks it.
	return wrapped("service CIDR", ignoreExists(err))
}

// addRange adds the second configured range. The next call of Sync checks the status.
func (c *ServiceCIDR) addRange(ctx context.Context, cur *networkingv1.ServiceCIDR) {
	from := cur.Spec.CIDRs[0]
	cur.Spec.CIDRs = c.cidrs()
	_, err := c.Client.NetworkingV1().ServiceCIDRs().Update(ctx, cur, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) {
		c.warn(cur, reasonFailed, "The default ServiceCIDR can not be upgraded from %s to dual stack %v : %v",
			from, c.cidrs(), err)
	}
}

// syncStatus sets the condition Ready to True if it is not set yet. If the condition is False,
// another component has set it: syncStatus does not change it, but records an event. If the ranges
// of cur are not the configured ones, it only records an event.
func (c *ServiceCIDR) syncStatus(ctx context.Context, cur *networkingv1.ServiceCIDR) {
	ready := meta.FindStatusCondition(cur.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	switch {
	case !slices.Equal(cur.Spec.CIDRs, c.cidrs()):
		if !c.reportedRanges {
			c.warn(cur, reasonInconsistent,
				"The default ServiceCIDR %v does not match the controller flag configurations %s", cur.Spec.CIDRs, c.cidrs())
		}
		c.reportedRanges = true
	case ready == nil || ready.Status == metav1.ConditionUnknown:
		c.setReady(ctx, cur)
	case ready.Status == metav1.ConditionFalse:
		if !c.reportedCondition {
			c.warn(cur, ready.Reason, "Configuration matches, but %s", ready.Message)
		}
		c.reportedCondition = true
	}
}

func (c *ServiceCIDR) setReady(ctx context.Context, cur *networkingv1.ServiceCIDR) {
	condition := applymetav1.Condition().WithType(networkingv1.ServiceCIDRConditionReady).WithStatus(metav1.ConditionTrue).
		WithMessage("Kubernetes default Service CIDR is ready").WithLastTransitionTime(metav1.NewTime(c.Clock.Now()))
	want := applynetworkingv1.ServiceCIDR(cur.Name).WithStatus(
		applynetworkingv1.ServiceCIDRStatus().WithConditions(condition))
	_, err := c.Client.NetworkingV1().ServiceCIDRs().ApplyStatus(ctx, want,
		metav1.ApplyOptions{FieldManager: ServiceCIDRController, Force: true})
	if err != nil {
		c.Log.Info("Failed to write the status of the default ServiceCIDR", "err", err)
		c.warn(cur, reasonFailed, "The default ServiceCIDR Status can not be set to Ready=True")
	}
}

// warn logs a problem with the object and records an event about it.
func (c *ServiceCIDR) warn(o *networkingv1.ServiceCIDR, reason, message string, args ...any) {
	c.Log.Warn("Default ServiceCIDR needs attention", "reason", reason, "message", fmt.Sprintf(message, args...))
	c.Events.Eventf(o, corev1.EventTypeWarning, reason, message, args...)
}
