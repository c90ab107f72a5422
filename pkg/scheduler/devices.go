// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"keelson.dev/keelson/pkg/devicetaints"
	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// devices has the caches of dynamic resource allocation, and the allocations of devices that the
// scheduler has decided but the caches do not show yet.
type devices struct {
	claims  resourcelisters.ResourceClaimLister
	classes resourcelisters.DeviceClassLister
	slices  resourcelisters.ResourceSliceLister
	rules   resourcelisters.DeviceTaintRuleLister // nil with Config.NoDeviceTaintRules
	// chosen has the claims to which the scheduler has allocated devices, until the claims' cache
	// shows the allocation.
	chosen map[types.UID]chosenClaim
}

type chosenClaim struct {
	*resourcev1.ResourceClaim
	written bool
}

var _ scheduling.DeviceView = (*devices)(nil)

// Claim implements scheduling.DeviceView.
func (d *devices) Claim(namespace, name string) *resourcev1.ResourceClaim {
	c := found(d.claims.ResourceClaims(namespace).Get(name))
	if c == nil {
		return nil
	}
	return d.latest(c)
}

// latest returns the newer version of a claim: c from the cache, or the version that the scheduler
// has written.
func (d *devices) latest(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	w, ok := d.chosen[c.UID]
	switch {
	case !ok || !w.written:
		return c
	case revision(c) >= revision(w.ResourceClaim):
		return c
	}
	return w.ResourceClaim
}

// observe handles a claim from the watch. The argument gone is true if the claim was deleted. If
// the cache is now at least as new as the scheduler's own write, the entry in chosen is dropped.
func (d *devices) observe(c *resourcev1.ResourceClaim, gone bool) {
	if w, ok := d.chosen[c.UID]; ok && (gone || w.written && revision(c) >= revision(w.ResourceClaim)) {
		delete(d.chosen, c.UID)
	}
}

// revision returns a claim's resource version as a number, to compare versions of the same claim. A
// version that is not a number counts as the newest, so that the version in the cache is used.
func revision(c *resourcev1.ResourceClaim) uint64 {
	n, err := strconv.ParseUint(c.ResourceVersion, 10, 64)
	if err != nil {
		return ^uint64(0)
	}
	return n
}

// Pending implements scheduling.DeviceView.
func (d *devices) Pending(claim types.UID) bool {
	w, ok := d.chosen[claim]
	return ok && !w.written
}

// Allocated implements scheduling.DeviceView.
func (d *devices) Allocated() []*resourcev1.ResourceClaim {
	all, err := d.claims.List(labels.Everything())
	if err != nil {
		return nil // List of a cache returns no error
	}
	out := d.unseen()
	for _, c := range all {
		if w, ok := d.chosen[c.UID]; ok && !w.written {
			c = w.ResourceClaim
		} else {
			c = d.latest(c)
		}
		if c.Status.Allocation != nil {
			out = append(out, c)
		}
	}
	return out
}

// Class implements scheduling.DeviceView.
func (d *devices) Class(name string) *resourcev1.DeviceClass { return found(d.classes.Get(name)) }

// Classes implements scheduling.DeviceView.
func (d *devices) Classes() []*resourcev1.DeviceClass {
	return listed(d.classes.List(labels.Everything()))
}

// Slices implements scheduling.DeviceView. The devices have the taints of DeviceTaintRules too.
func (d *devices) Slices() []*resourcev1.ResourceSlice {
	all := labels.Everything()
	published := listed(d.slices.List(all))
	if d.rules == nil {
		return published
	}
	return devicetaints.Apply(published, listed(d.rules.List(all)))
}

// listed returns the list, or nil on an error. The list of a cache never returns an error.
func listed[T any](all []T, err error) []T {
	if err != nil {
		return nil
	}
	return all
}

// reserve records the devices that a plan allocates, so that other pods do not get them.
func (d *devices) reserve(plan dynamicresources.Plan) {
	for _, u := range plan {
		if u.Allocation == nil {
			continue
		}
		c := u.Claim.DeepCopy()
		c.Status.Allocation = u.Allocation
		d.chosen[c.UID] = chosenClaim{ResourceClaim: c}
	}
}

// release drops the reservations of a plan. It keeps those that are already written to claims, except for
// claims for extended resources, which unreserve deletes.
func (d *devices) release(plan dynamicresources.Plan) {
	for _, u := range plan {
		if u.Extended != nil || d.Pending(u.Claim.UID) && u.Allocation != nil {
			delete(d.chosen, u.Claim.UID)
		}
	}
}

// storeWritten records a claim that the scheduler has just written, unless the cache already has
// this version or a newer one.
func (d *devices) storeWritten(c *resourcev1.ResourceClaim) {
	d.chosen[c.UID] = chosenClaim{c, true}
	now := found(d.claims.ResourceClaims(c.Namespace).Get(c.Name))
	switch {
	case now == nil && isSpecial(c):
		// The scheduler has just created the claim, so the cache does not have it yet.
	case now == nil || now.UID != c.UID:
		d.observe(c, true) // the claim was deleted after the write, so drop its entry
	default:
		d.observe(now, false)
	}
}

// deallocate chooses a claim that prevents the pod from using some nodes, and stores it in d. It
// chooses a stale claim for the pod's extended resources, which is to be deleted, or else a claim that no
// pod uses, whose devices are to be released. It returns the text for the pod's condition, or "" if no
// claim is chosen.
func (e *evaluation) deallocate(d *decision) string {
	switch f := e.devices; {
	case e.profile.DeviceTimeout == 0 || f == nil:
		return ""
	case f.Stale() != nil:
		d.discard = f.Stale()
		return "deletion of ResourceClaim completed"
	case f.Idle() != nil:
		d.deallocate = f.Idle()
		return "deallocation of ResourceClaim completed"
	}
	return ""
}

// errDevicesFailed means that the drivers could not attach the allocated devices to the node.
var errDevicesFailed = errors.New("device binding failed")

// prepareClaims writes the allocated devices and the reservation for the pod into the claims, and
// waits until the drivers have attached the devices. If it returns an error, the caller must call
// unreserve.
func (s *Scheduler) prepareClaims(ctx context.Context, p *profile.Profile, pod *v1.Pod, d decision) error {
	if len(d.claims) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.DeviceTimeout)
	defer cancel()
	for i := range d.claims {
		if err := s.makeClaim(ctx, pod, &d.claims[i]); err != nil {
			return err
		}
		if err := s.reserveClaim(ctx, pod, d.claims[i]); err != nil {
			return err
		}
		if err := s.writeExtendedStatus(ctx, pod, d.claims[i]); err != nil {
			return err
		}
	}
	start := s.cfg.Clock.Now()
	err := s.awaitDevices(ctx, pod, d)
	s.metrics.devices.awaited(p.Name, d.claims, err, s.cfg.Clock.Since(start))
	return err
}

func (s *Scheduler) reserveClaim(ctx context.Context, pod *v1.Pod, u dynamicresources.Use) error {
	api := s.cfg.Client.ResourceV1().ResourceClaims(u.Claim.Namespace)
	c := u.Claim.DeepCopy()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if c == nil {
			var err error
			if c, err = api.Get(ctx, u.Claim.Name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		next := c
		c = nil // the next retry reads the claim again
		switch {
		case next.UID != u.Claim.UID || next.DeletionTimestamp != nil:
			return fmt.Errorf("claim %s/%s got deleted in the meantime", next.Namespace, next.Name)
		case u.Allocation != nil && next.Status.Allocation != nil:
			return fmt.Errorf("claim %s/%s got allocated elsewhere in the meantime", next.Namespace, next.Name)
		case u.Allocation == nil && next.Status.Allocation == nil:
			return fmt.Errorf("claim %s/%s got deallocated elsewhere in the meantime", next.Namespace, next.Name)
		case resourceclaim.IsReservedForPod(pod, next, false):
			return nil
		}
		if u.Allocation != nil {
			if !slices.Contains(next.Finalizers, resourcev1.Finalizer) {
				next.Finalizers = append(next.Finalizers, resourcev1.Finalizer)
				var err error
				if next, err = api.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
					return err
				}
			}
			next.Status.Allocation = u.Allocation.DeepCopy()
		}
		if next.Status.Allocation.AllocationTimestamp == nil {
			now := metav1.NewTime(s.cfg.Clock.Now())
			next.Status.Allocation.AllocationTimestamp = &now
		}
		next.Status.ReservedFor = append(next.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		written, err := api.UpdateStatus(ctx, next, metav1.UpdateOptions{})
		if err == nil {
			s.mu.Lock()
			s.view.devices.storeWritten(written)
			s.mu.Unlock()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("reserve claim %s/%s: %w", u.Claim.Namespace, u.Claim.Name, err)
	}
	return nil
}

// awaitDevices waits until the devices of a pod's claims are attached to the node. Only devices
// with binding conditions need to be attached.
func (s *Scheduler) awaitDevices(ctx context.Context, pod *v1.Pod, d decision) error {
	for {
		moved := s.devicesMoved.next()
		ready := true
		for _, u := range d.claims {
			s.mu.Lock()
			c := s.view.devices.Claim(pod.Namespace, u.Claim.Name)
			s.mu.Unlock()
			if c == nil && u.Extended != nil {
				ready = false // the cache does not show the new claim yet; wait, so that its devices stay reserved
				continue
			}
			if c == nil || c.UID != u.Claim.UID || c.Status.Allocation == nil {
				return fmt.Errorf("claim %s/%s got deallocated elsewhere in the meantime", pod.Namespace, u.Claim.Name)
			}
			attached, err := attached(c)
			if err != nil {
				return err
			}
			ready = ready && attached
		}
		if ready {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("%w: devices are not attached: %w", errDevicesFailed, ctx.Err())
		}
	}
}

// attached reports whether all devices of a claim meet their binding conditions. It returns an
// error if a device has a binding failure condition.
func attached(c *resourcev1.ResourceClaim) (bool, error) {
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if len(r.BindingConditions) == 0 {
			continue
		}
		at := slices.IndexFunc(c.Status.Devices, func(s resourcev1.AllocatedDeviceStatus) bool {
			return s.Driver == r.Driver && s.Pool == r.Pool && s.Device == r.Device &&
				(s.ShareID == nil) == (r.ShareID == nil) && (s.ShareID == nil || *s.ShareID == string(*r.ShareID))
		})
		if at < 0 {
			return false, nil
		}
		conditions := c.Status.Devices[at].Conditions
		for _, name := range r.BindingFailureConditions {
			if f := meta.FindStatusCondition(conditions, name); f != nil && f.Status == metav1.ConditionTrue {
				return false, fmt.Errorf("%w: claim=%s, reason=%s, message=%q", errDevicesFailed, c.Name, f.Reason, f.Message)
			}
		}
		for _, name := range r.BindingConditions {
			if !meta.IsStatusConditionTrue(conditions, name) {
				return false, nil
			}
		}
	}
	return true, nil
}

// unreserve removes the pod from its claims. If the devices of a claim could not be attached, and
// no other pod uses the claim, it also releases the devices. It deletes claims for extended resources.
func (s *Scheduler) unreserve(ctx context.Context, pod *v1.Pod, d decision, because error) {
	for _, u := range d.claims {
		if u.Extended != nil {
			s.deleteClaim(ctx, u.Claim)
			continue
		}
		s.mu.Lock()
		c := s.view.devices.Claim(pod.Namespace, u.Claim.Name)
		s.mu.Unlock()
		if c == nil || !resourceclaim.IsReservedForPod(pod, c, false) {
			continue
		}
		if errors.Is(because, errDevicesFailed) && len(c.Status.ReservedFor) == 1 {
			s.freeDevices(ctx, c)
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"reservedFor":[{"$patch":"delete","uid":%q}]}}`,
			c.UID, pod.UID)
		_, err := s.cfg.Client.ResourceV1().ResourceClaims(c.Namespace).Patch(ctx, c.Name,
			types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		s.claimWritten(ctx, c, err)
	}
}

// freeDevices removes the allocation and all reservations from a claim's status.
func (s *Scheduler) freeDevices(ctx context.Context, c *resourcev1.ResourceClaim) {
	c = c.DeepCopy()
	c.Status.ReservedFor, c.Status.Allocation, c.Status.Devices = nil, nil, nil
	_, err := s.cfg.Client.ResourceV1().ResourceClaims(c.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
	s.claimWritten(ctx, c, err)
}

func (s *Scheduler) claimWritten(ctx context.Context, c *resourcev1.ResourceClaim, err error) {
	if err != nil && ctx.Err() == nil {
		// The scheduler's next attempt or the resource claim controller will retry.
		s.cfg.Log.Warn("Failed to release devices of resource claim", "claim", c.Namespace+"/"+c.Name, "err", err)
	}
}
