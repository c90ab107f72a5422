// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package horizontalpodautoscaler scales the targets of HorizontalPodAutoscalers according to
// resource usage or other metrics.
//
// The function propose computes the number of replicas that a metric requires, without I/O. A
// history contains an autoscaler's earlier proposals and changes, which limit how fast the target
// is scaled. The metrics come from the APIs metrics.k8s.io, custom.metrics.k8s.io and
// external.metrics.k8s.io, which metrics servers in the cluster must provide.
package horizontalpodautoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "horizontal-pod-autoscaler-controller"

// leastPeriod is the shortest interval at which an autoscaler is evaluated, even if a flag sets a
// shorter one.
const leastPeriod = time.Second

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue       *controller.Queue
	hpas        autoscalinglisters.HorizontalPodAutoscalerLister
	pods        corelisters.PodLister
	scales      scale.ScalesGetter
	metrics     *metrics
	instruments *instruments

	mu sync.Mutex
	// histories and selectors contain the history and the pod selector of each autoscaler, by the
	// autoscaler's key.
	histories map[string]*history
	selectors map[string]labels.Selector
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	hpas := d.Informers.Autoscaling().V2().HorizontalPodAutoscalers()
	client := d.Discovery.RESTClient()
	c := &Controller{
		Deps: d, hpas: hpas.Lister(), pods: d.Informers.Core().V1().Pods().Lister(),
		scales: scale.New(client, d.Mapper, dynamic.LegacyAPIPathResolverFunc,
			scale.NewDiscoveryScaleKindResolver(d.Discovery)),
		metrics:     &metrics{client, d.Mapper},
		instruments: newInstruments(d.Metrics),
		histories:   map[string]*history{}, selectors: map[string]labels.Selector{},
	}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(hpas.Informer(), func(old, hpa *autoscalingv2.HorizontalPodAutoscaler) {
		switch {
		case old == nil:
			c.instruments.autoscalers.Inc()
		case hpa == nil:
			c.instruments.autoscalers.Dec()
			c.instruments.desired.DeleteLabelValues(old.Namespace, old.Name)
		}
		if old == nil || hpa == nil || !equality.Semantic.DeepEqual(old.Spec, hpa.Spec) {
			c.queue.AddObject(controller.Latest(old, hpa))
		}
	})
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	hpa, err := c.hpas.HorizontalPodAutoscalers(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.histories, key)
		delete(c.selectors, key)
		return nil
	}
	if err != nil {
		return err
	}
	c.queue.AddAfter(key, max(c.Options.Autoscaling.Period, leastPeriod))
	began, next := c.Clock.Now(), hpa.DeepCopy()
	action, failure := c.evaluate(ctx, next)
	if failure != nil {
		// The status and the events show the error. Do not return it, so that the next evaluation
		// comes at its usual time.
		c.Log.Debug("No metrics available for autoscaler", "controller", Name, "key", key, "err", failure)
	} else {
		c.instruments.desired.WithLabelValues(namespace, name).Set(float64(next.Status.DesiredReplicas))
	}
	err = c.writeStatus(ctx, hpa, next)
	c.instruments.reconciled(action, cmp.Or(failure, err), c.Clock.Since(began))
	return err
}

// writeStatus writes the status of next, unless it equals the status of hpa.
func (c *Controller) writeStatus(ctx context.Context, hpa, next *autoscalingv2.HorizontalPodAutoscaler) error {
	next.Status.ObservedGeneration = new(next.Generation)
	if equality.Semantic.DeepEqual(hpa.Status, next.Status) {
		return nil
	}
	api := c.Client.AutoscalingV2().HorizontalPodAutoscalers(hpa.Namespace)
	_, err := api.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		c.Events.Event(hpa, v1.EventTypeWarning, "FailedUpdateStatus", err.Error())
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

// evaluate evaluates an autoscaler's metrics, scales its target if necessary, and updates the
// status in hpa. It returns the action for the metrics: scale_up, scale_down or none.
func (c *Controller) evaluate(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler) (string, error) {
	target, resource, err := c.target(ctx, hpa)
	if err != nil {
		c.Events.Event(hpa, v1.EventTypeWarning, "FailedGetScale", err.Error())
		c.setCondition(hpa, autoscalingv2.AbleToScale, v1.ConditionFalse, "FailedGetScale",
			fmt.Sprintf("the HPA controller was unable to get the target's current scale: %v", err))
		return none, err
	}
	c.setCondition(hpa, autoscalingv2.AbleToScale, v1.ConditionTrue, "SucceededGetScale",
		"the HPA controller was able to get the target's current scale")
	now, current := c.Clock.Now(), target.Spec.Replicas
	h := c.historyOf(hpa, current, now)
	least, most := ptr.Deref(hpa.Spec.MinReplicas, 1), hpa.Spec.MaxReplicas
	desired, why := current, ""
	var statuses []autoscalingv2.MetricStatus
	switch {
	case current == 0:
		c.setCondition(hpa, autoscalingv2.ScalingActive, v1.ConditionFalse, "ScalingDisabled",
			"scaling is disabled since the replica count of the target is zero")
	case current > most:
		desired, why = most, "Current number of replicas above Spec.MaxReplicas"
	case current < least:
		desired, why = least, "Current number of replicas below Spec.MinReplicas"
	default:
		if desired, why, statuses, err = c.byMetrics(ctx, hpa, target, h, least, now); err != nil {
			setStatus(hpa, current, hpa.Status.DesiredReplicas, statuses)
			c.Events.Event(hpa, v1.EventTypeWarning, "FailedComputeMetricsReplicas", err.Error())
			return none, err
		}
	}
	if desired == current {
		setStatus(hpa, current, desired, statuses)
		return none, nil
	}
	if err := c.rescale(ctx, hpa, resource, target, desired); err != nil {
		c.Events.Eventf(hpa, v1.EventTypeWarning, "FailedRescale", "New size: %d; reason: %s; error: %v", desired, why, err)
		c.setCondition(hpa, autoscalingv2.AbleToScale, v1.ConditionFalse, "FailedUpdateScale",
			fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err))
		setStatus(hpa, current, hpa.Status.DesiredReplicas, statuses)
		return none, err
	}
	c.setCondition(hpa, autoscalingv2.AbleToScale, v1.ConditionTrue, "SucceededRescale",
		fmt.Sprintf("the HPA controller was able to update the target scale to %d", desired))
	c.Events.Eventf(hpa, v1.EventTypeNormal, "SuccessfulRescale", "New size: %d; reason: %s", desired, why)
	h.recordChange(current, desired, now)
	setStatus(hpa, current, desired, statuses)
	hpa.Status.LastScaleTime = ptr.To(metav1.NewTime(now))
	return actionOf(current, desired), nil
}

// byMetrics evaluates the metrics. It returns the number of replicas after all limits, the reason
// for it, and the status of each metric.
func (c *Controller) byMetrics(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler,
	target *autoscalingv1.Scale, h *history, least int32, now time.Time) (int32, string,
	[]autoscalingv2.MetricStatus, error) {
	current := target.Spec.Replicas
	p, err := c.newPass(hpa, target)
	if err != nil {
		return current, "", nil, err
	}
	got, statuses, err := p.evaluateAll(ctx)
	if err != nil {
		return current, "", statuses, err
	}
	why := "All metrics below target"
	if got.n > current {
		why = got.metric + " above target"
	}
	steady := h.stabilize(hpa.Spec.Behavior, current, got.n, now)
	c.setCondition(hpa, autoscalingv2.AbleToScale, v1.ConditionTrue, steady.reason, steady.message)
	limited := h.limit(hpa, least, current, steady.n, now)
	is := v1.ConditionFalse
	if limited.n != steady.n {
		is = v1.ConditionTrue
	}
	c.setCondition(hpa, autoscalingv2.ScalingLimited, is, limited.reason, limited.message)
	return limited.n, why, statuses, nil
}

// newPass finds the pods of a target. It returns an error if another autoscaler selects some of
// these pods too.
func (c *Controller) newPass(hpa *autoscalingv2.HorizontalPodAutoscaler, target *autoscalingv1.Scale) (*pass, error) {
	invalid := func(event, reason, eventMessage, message string) error {
		c.Events.Event(hpa, v1.EventTypeWarning, event, eventMessage)
		c.setCondition(hpa, autoscalingv2.ScalingActive, v1.ConditionFalse, reason, message)
		return errors.New(eventMessage)
	}
	if target.Status.Selector == "" {
		return nil, invalid("SelectorRequired", "InvalidSelector", "selector is required",
			"the HPA target's scale is missing a selector")
	}
	selector, err := labels.Parse(target.Status.Selector)
	if err != nil {
		message := fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", err)
		return nil, invalid("InvalidSelector", "InvalidSelector", message, message)
	}
	pods, err := c.pods.Pods(hpa.Namespace).List(selector)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	if all := c.autoscalersOf(hpa, selector, pods); len(all) > 1 {
		message := fmt.Sprintf("pods by selector %v are controlled by more than one HPA (e.g. [%s])",
			target.Status.Selector, strings.Join(all[:2], " "))
		return nil, invalid("AmbiguousSelector", "AmbiguousSelector", message, message)
	}
	return &pass{Controller: c, hpa: hpa, scale: target, selector: selector, pods: pods}, nil
}

// autoscalersOf records the selector of hpa, and returns the autoscalers in its namespace whose
// selectors match some of the given pods.
func (c *Controller) autoscalersOf(hpa *autoscalingv2.HorizontalPodAutoscaler, selector labels.Selector,
	pods []*v1.Pod) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.selectors[controller.Key(hpa)] = selector
	var out []string
	for key, s := range c.selectors {
		namespace, name := controller.SplitKey(key)
		if namespace == hpa.Namespace &&
			slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return s.Matches(labels.Set(pod.Labels)) }) {
			out = append(out, fmt.Sprintf("{%s %s}", name, namespace))
		}
	}
	slices.Sort(out)
	return out
}

func (c *Controller) historyOf(hpa *autoscalingv2.HorizontalPodAutoscaler, current int32, now time.Time) *history {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := controller.Key(hpa)
	h := c.histories[key]
	if h == nil {
		h = &history{downWindow: c.Options.Autoscaling.DownWindow, proposed: []at{{current, now}}}
		c.histories[key] = h
	}
	h.forget(hpa.Spec.Behavior, now)
	return h
}

// target returns the scale of an autoscaler's target, and the target's resource.
func (c *Controller) target(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler) (
	*autoscalingv1.Scale, schema.GroupResource, error) {
	ref := hpa.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, schema.GroupResource{}, specError{err}
	}
	mappings, err := c.Mapper.RESTMappings(schema.GroupKind{Group: gv.Group, Kind: ref.Kind})
	if err != nil {
		return nil, schema.GroupResource{}, err
	}
	first := errors.New("unrecognized resource")
	for i, m := range mappings {
		resource := m.Resource.GroupResource()
		got, err := c.scales.Scales(hpa.Namespace).Get(ctx, resource, ref.Name, metav1.GetOptions{})
		if err == nil {
			return got, resource, nil
		}
		if i == 0 {
			first = err
		}
	}
	return nil, schema.GroupResource{}, first
}

func (c *Controller) rescale(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler,
	resource schema.GroupResource, target *autoscalingv1.Scale, desired int32) error {
	client := c.scales.Scales(hpa.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		target.Spec.Replicas = desired
		_, err := client.Update(ctx, resource, target, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			if latest, getErr := client.Get(ctx, resource, hpa.Spec.ScaleTargetRef.Name, metav1.GetOptions{}); getErr == nil {
				target = latest
			}
		}
		return err
	})
}

func setStatus(hpa *autoscalingv2.HorizontalPodAutoscaler, current, desired int32,
	metrics []autoscalingv2.MetricStatus) {
	hpa.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		CurrentReplicas: current, DesiredReplicas: desired, LastScaleTime: hpa.Status.LastScaleTime,
		CurrentMetrics: metrics, Conditions: hpa.Status.Conditions,
	}
}

func (c *Controller) setCondition(hpa *autoscalingv2.HorizontalPodAutoscaler,
	t autoscalingv2.HorizontalPodAutoscalerConditionType, is v1.ConditionStatus, reason, message string) {
	list := hpa.Status.Conditions
	i := slices.IndexFunc(list, func(x autoscalingv2.HorizontalPodAutoscalerCondition) bool { return x.Type == t })
	if i < 0 {
		list = append(list, autoscalingv2.HorizontalPodAutoscalerCondition{Type: t})
		i = len(list) - 1
	}
	if list[i].Status != is {
		list[i].LastTransitionTime = metav1.NewTime(c.Clock.Now())
	}
	list[i].Status, list[i].Reason, list[i].Message = is, reason, message
	hpa.Status.Conditions = list
}
