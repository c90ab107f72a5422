// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"context"
	"errors"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/devicetaints"
	"keelson.dev/keelson/pkg/features"
)

// DevicesName is the name of the controller of devices' taints.
const DevicesName = "device-taint-eviction-controller"

// byPool is the name of two indexes: of ResourceSlices by device pool, and of ResourceClaims by the
// pools of their allocated devices.
const byPool = "devicePool"

type devices struct {
	controller.Deps
	queue      *controller.Queue
	pods       corelisters.PodLister
	claims     resourcelisters.ResourceClaimLister
	claimCache cache.Indexer
	slices     cache.Indexer
	rules      resourcelisters.DeviceTaintRuleLister // nil if the feature DRADeviceTaintRules is off
	metrics    *metrics

	mu      sync.Mutex
	waiting map[types.UID]bool // the UIDs of pods that will be deleted at a later time
	evicted map[types.UID]int  // the number of pods deleted because of a rule, by the rule's UID
}

// NewDevices returns the controller that deletes pods because of taints of the devices that they use.
func NewDevices(d controller.Deps) (controller.Controller, error) {
	pods, resources := d.Informers.Core().V1().Pods(), d.Informers.Resource().V1()
	claims, published := resources.ResourceClaims(), resources.ResourceSlices().Informer()
	c := &devices{
		Deps: d, pods: pods.Lister(), claims: claims.Lister(), claimCache: claims.Informer().GetIndexer(),
		slices: published.GetIndexer(), metrics: newDeviceMetrics(d.Metrics), waiting: map[types.UID]bool{},
		evicted: map[types.UID]int{},
	}
	var followed error
	if d.Options.Features.Enabled(features.DRADeviceTaintRules) {
		c.rules = resources.DeviceTaintRules().Lister()
		followed = controller.OnChange(resources.DeviceTaintRules().Informer(), c.ruleChanged)
	}
	c.queue = controller.NewQueue(DevicesName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		followed,
		claims.Informer().AddIndexers(cache.Indexers{byPool: poolsOfClaim}),
		published.AddIndexers(cache.Indexers{byPool: poolOfSlice}),
		controller.OnChange(pods.Informer(), c.podChanged),
		controller.OnChange(claims.Informer(), c.claimChanged),
		controller.OnChange(published, c.sliceChanged),
	)
}

// Run implements controller.Controller.
func (c *devices) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *devices) podChanged(old, pod *v1.Pod) {
	switch {
	case pod == nil || pod.DeletionTimestamp != nil:
		if c.wait(controller.Latest(old, pod).UID, false) {
			c.queueRules()
		}
	case len(pod.Spec.ResourceClaims) == 0 && pod.Status.ExtendedResourceClaimStatus == nil:
	case old == nil || old.Spec.NodeName != pod.Spec.NodeName ||
		!equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) ||
		!equality.Semantic.DeepEqual(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		c.queue.AddObject(pod)
	}
}

// claimChanged queues the pods that a ResourceClaim is reserved for or was reserved for before the
// change.
func (c *devices) claimChanged(old, claim *resourcev1.ResourceClaim) {
	for _, cl := range []*resourcev1.ResourceClaim{old, claim} {
		if cl == nil {
			continue
		}
		for _, r := range cl.Status.ReservedFor {
			if r.APIGroup == "" && r.Resource == "pods" {
				c.queue.Add(cl.Namespace + "/" + r.Name)
			}
		}
	}
}

// sliceChanged queues the pods that use devices of the ResourceSlice's pool, if taints or the
// pool's generation changed.
func (c *devices) sliceChanged(old, slice *resourcev1.ResourceSlice) {
	if old != nil && slice != nil && old.Spec.Pool.Generation == slice.Spec.Pool.Generation &&
		equality.Semantic.DeepEqual(taintsOf(old), taintsOf(slice)) {
		return
	}
	s := controller.Latest(old, slice)
	claims, err := c.claimCache.ByIndex(byPool, poolKey(s.Spec.Driver, s.Spec.Pool.Name))
	if err != nil {
		return // cannot happen: New has added the index
	}
	for _, o := range claims {
		c.claimChanged(nil, o.(*resourcev1.ResourceClaim))
	}
}

// ruleChanged queues a rule whose specification or condition has changed. If the effect of the rule is
// NoExecute, or was before the change, it also queues the pods that use a device which the rule
// selects or selected. In the queue, keys of rules have no namespace and keys of pods have one.
func (c *devices) ruleChanged(old, rule *resourcev1.DeviceTaintRule) {
	if old != nil && rule != nil && old.UID == rule.UID && equality.Semantic.DeepEqual(old.Spec, rule.Spec) {
		// The sync after a write of the status may have compared with the condition before the write. The
		// condition for the effect None is never updated.
		if rule.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNone &&
			!equality.Semantic.DeepEqual(old.Status, rule.Status) {
			c.queue.AddObject(rule)
		}
		return
	}
	if old != nil && (rule == nil || old.UID != rule.UID) {
		c.mu.Lock()
		delete(c.evicted, old.UID)
		c.mu.Unlock()
	}
	if rule != nil {
		c.queue.AddObject(rule)
	}
	for _, r := range []*resourcev1.DeviceTaintRule{old, rule} {
		if r == nil || r.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
			continue
		}
		for _, o := range c.claimCache.List() {
			claim, ok := o.(*resourcev1.ResourceClaim)
			if ok && claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results,
				func(d resourcev1.DeviceRequestAllocationResult) bool {
					return devicetaints.Selects(r, d.Driver, d.Pool, d.Device)
				}) {
				c.claimChanged(nil, claim)
			}
		}
	}
}

func (c *devices) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	if namespace == "" {
		return c.syncRule(ctx, name)
	}
	pod, err := c.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		return nil
	}
	at, leaves := c.evictAt(pod)
	if !leaves {
		if c.wait(pod.UID, false) {
			c.Events.Event(pod, v1.EventTypeNormal, "DeviceTaintManagerEviction", "Cancelling deletion")
			c.queueRules()
		}
		return nil
	}
	rules := c.rulesAgainst(pod)
	for _, r := range rules {
		c.queue.AddAfter(controller.Key(r), statusPeriod) // later, because more pods may change until then
	}
	if left := at.Sub(c.Clock.Now()); left > 0 {
		c.wait(pod.UID, true)
		c.queue.AddAfter(key, left)
		return nil
	}
	c.Events.Event(pod, v1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	now, waited := c.Clock.Now(), c.wait(pod.UID, false)
	err = controller.Evict(ctx, c.Client, pod, "DeletionByDeviceTaintManager",
		"Device Taint manager: deleting due to NoExecute taint", now)
	if err != nil {
		c.wait(pod.UID, waited)
		return err
	}
	c.metrics.deleted(now.Sub(at))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rules {
		c.evicted[r.UID]++
	}
	return nil
}

// queueRules queues the rules that evict pods, because a pod that was to be evicted later is not evicted
// any more. Their conditions may have counted it.
func (c *devices) queueRules() {
	if c.rules == nil {
		return
	}
	rules, err := c.rules.List(labels.Everything())
	if err != nil {
		return // cannot happen: the list of a cache returns no error
	}
	for _, r := range rules {
		if r.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
			c.queue.AddObject(r)
		}
	}
}

// evictedBy returns the number of pods that the controller has deleted because of a rule.
func (c *devices) evictedBy(rule *resourcev1.DeviceTaintRule) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.evicted[rule.UID]
}

// wait records whether a pod will be deleted at a later time, and returns the value recorded
// before.
func (c *devices) wait(uid types.UID, is bool) (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was = c.waiting[uid]
	delete(c.waiting, uid)
	if is {
		c.waiting[uid] = true
	}
	return was
}

// usedBy returns the allocated ResourceClaims that are reserved for a pod, including the claim that
// was created for its extended resources.
func (c *devices) usedBy(pod *v1.Pod) []*resourcev1.ResourceClaim {
	var out []*resourcev1.ResourceClaim
	add := func(name string, owned bool) {
		claim, err := c.claims.ResourceClaims(pod.Namespace).Get(name)
		if err != nil || claim.Status.Allocation == nil || owned && resourceclaim.IsForPod(pod, claim, false) != nil {
			return
		}
		if resourceclaim.IsReservedForPod(pod, claim, false) {
			out = append(out, claim)
		}
	}
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // the claim does not exist yet
		}
		add(*name, owned)
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		add(s.ResourceClaimName, true)
	}
	return out
}

// taintsFor returns the taints of a device: those of its driver and those of rules.
func (c *devices) taintsFor(driver, pool, device string) []resourcev1.DeviceTaint {
	published := c.publishedTaints(driver, pool, device)
	if c.rules == nil {
		return published
	}
	rules, err := c.rules.List(labels.Everything())
	if err != nil {
		return published // cannot happen: the list of a cache returns no error
	}
	return devicetaints.Of(published, rules, driver, pool, device)
}

// publishedTaints returns the taints of a device in the ResourceSlices of the pool's newest
// generation.
func (c *devices) publishedTaints(driver, pool, device string) []resourcev1.DeviceTaint {
	objects, err := c.slices.ByIndex(byPool, poolKey(driver, pool))
	if err != nil {
		return nil // cannot happen: New has added the index
	}
	newest := int64(-1)
	var out []resourcev1.DeviceTaint
	for _, o := range objects {
		s := o.(*resourcev1.ResourceSlice)
		if s.Spec.Pool.Generation < newest {
			continue
		}
		if s.Spec.Pool.Generation > newest {
			newest, out = s.Spec.Pool.Generation, nil
		}
		if i := slices.IndexFunc(s.Spec.Devices, func(d resourcev1.Device) bool { return d.Name == device }); i >= 0 {
			out = s.Spec.Devices[i].Taints
		}
	}
	return out
}

func poolKey(driver, pool string) string { return driver + "/" + pool }

func poolOfSlice(o any) ([]string, error) {
	s, ok := o.(*resourcev1.ResourceSlice)
	if !ok {
		return nil, nil
	}
	return []string{poolKey(s.Spec.Driver, s.Spec.Pool.Name)}, nil
}

func poolsOfClaim(o any) ([]string, error) {
	claim, ok := o.(*resourcev1.ResourceClaim)
	if !ok || claim.Status.Allocation == nil {
		return nil, nil
	}
	var keys []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		if key := poolKey(r.Driver, r.Pool); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// taintsOf returns the taints of the devices in a ResourceSlice, by device name.
func taintsOf(s *resourcev1.ResourceSlice) map[string][]resourcev1.DeviceTaint {
	out := map[string][]resourcev1.DeviceTaint{}
	for _, d := range s.Spec.Devices {
		if len(d.Taints) > 0 {
			out[d.Name] = d.Taints
		}
	}
	return out
}
