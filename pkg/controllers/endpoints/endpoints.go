// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	netutils "k8s.io/utils/net"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// EndpointsName is the name of the controller of Endpoints.
const EndpointsName = "endpoints-controller"

const (
	// managedByLabel is the label with the name of the controller that manages an Endpoints object.
	// endpointsManagedBy is its value for this controller.
	managedByLabel     = "endpoints.kubernetes.io/managed-by"
	endpointsManagedBy = "endpoint-controller"
	// maxAddresses is the maximum number of addresses in an Endpoints object. truncated is the
	// value of an annotation on Endpoints whose addresses exceed it.
	maxAddresses = 1000
	truncated    = "truncated"
)

type endpointsController struct {
	controller.Deps
	queue     *controller.Queue
	services  corelisters.ServiceLister
	pods      corelisters.PodLister
	endpoints corelisters.EndpointsLister
	triggers  *endpointsliceutil.TriggerTimeTracker

	mu sync.Mutex
	// updates has the last update of each Endpoints object, by key.
	updates map[string]update
}

// update has the resource versions of an Endpoints object before and after an update by this
// controller. If the cache still shows the version before, it does not show the update yet.
type update struct{ before, after string }

// NewEndpoints returns the controller that maintains the Endpoints of Services with a selector.
func NewEndpoints(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	c := &endpointsController{
		Deps: d, services: core.Services().Lister(), pods: core.Pods().Lister(), endpoints: core.Endpoints().Lister(),
		triggers: endpointsliceutil.NewTriggerTimeTracker(), updates: map[string]update{},
	}
	c.queue = controller.NewQueue(EndpointsName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(core.Services().Informer(),
			func(old, s *v1.Service) { c.queue.AddObject(controller.Latest(old, s)) }),
		controller.OnChange(core.Pods().Informer(), func(old, pod *v1.Pod) {
			for key := range servicesOf(c.services, old, pod) {
				c.queue.Add(key)
			}
		}),
		controller.OnChange(core.Endpoints().Informer(), func(old, e *v1.Endpoints) {
			if e == nil || old != nil && c.changedByOthers(e) {
				c.queue.AddObject(controller.Latest(old, e))
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *endpointsController) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.queue.Run(ctx) })
	c.queueLeftovers()
	return g.Wait()
}

// queueLeftovers queues all Endpoints, except leader election locks. The sync deletes those without
// a Service: the Service may have been deleted while the controller was down.
func (c *endpointsController) queueLeftovers() {
	all, err := c.endpoints.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, e := range all {
		if _, lock := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; !lock {
			c.queue.AddObject(e)
		}
	}
}

// changedByOthers reports whether an update of Endpoints was not the last one for which this
// controller got a response, and the Endpoints have a Service, so that their content must be checked.
// It may also return true for the controller's own update, which a sync then finds correct.
func (c *endpointsController) changedByOthers(e *v1.Endpoints) bool {
	if _, err := c.services.Services(e.Namespace).Get(e.Name); err != nil {
		return false // the only error is NotFound; a sync would delete Endpoints without a Service
	}
	return e.ResourceVersion != c.lastUpdate(controller.Key(e)).after
}

func (c *endpointsController) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	service, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return c.remove(ctx, namespace, name)
	}
	if err != nil {
		return err
	}
	if service.Spec.Type == v1.ServiceTypeExternalName || service.Spec.Selector == nil {
		return nil // another client manages the Endpoints of a Service without a selector
	}
	pods, err := c.pods.Pods(namespace).List(labels.SelectorFromSet(service.Spec.Selector))
	if err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(namespace, service, pods)
	current, err := c.endpoints.Endpoints(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		current = &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	} else if err != nil {
		return err
	}
	if current.ResourceVersion != "" && current.ResourceVersion == c.lastUpdate(key).before {
		return errStale
	}
	want := desired(service, pods, current, trigger)
	if current.ResourceVersion != "" && equal(current, want) {
		return nil
	}
	return c.write(ctx, key, current, want)
}

var errStale = errors.New("the cache does not show what was written last")

func (c *endpointsController) remove(ctx context.Context, namespace, name string) error {
	err := c.Client.CoreV1().Endpoints(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete: %w", err)
	}
	c.triggers.DeleteService(namespace, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.updates, namespace+"/"+name)
	return nil
}

func (c *endpointsController) lastUpdate(key string) update {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.updates[key]
}

func (c *endpointsController) write(ctx context.Context, key string, current, want *v1.Endpoints) error {
	client := c.Client.CoreV1().Endpoints(want.Namespace)
	if current.ResourceVersion == "" {
		_, err := client.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			return nil // the namespace is terminating, and the Service will be deleted with it
		}
		if err != nil {
			c.Events.Eventf(want, v1.EventTypeWarning, "FailedToCreateEndpoint",
				"Failed to create endpoint for service %v: %v", key, err)
			return fmt.Errorf("create: %w", err)
		}
		return nil
	}
	got, err := client.Update(ctx, want, metav1.UpdateOptions{})
	if err != nil {
		c.Events.Eventf(want, v1.EventTypeWarning, "FailedToUpdateEndpoint", "Failed to update endpoint %v: %v", key, err)
		return fmt.Errorf("update: %w", err)
	}
	if got.ResourceVersion != current.ResourceVersion { // if the versions are equal, the update changed nothing
		c.mu.Lock()
		defer c.mu.Unlock()
		c.updates[key] = update{current.ResourceVersion, got.ResourceVersion}
	}
	return nil
}

// desired returns the Endpoints that a Service must have. Their labels are those of the Service and
// of this controller. Annotations of the current Endpoints that the controller does not set are
// kept. trigger is the time of the change that caused the update; it is stored in an annotation.
func desired(service *v1.Service, pods []*v1.Pod, current *v1.Endpoints, trigger time.Time) *v1.Endpoints {
	out := current.DeepCopy()
	out.Subsets = subsets(service, pods)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	delete(out.Annotations, v1.EndpointsLastChangeTriggerTime)
	if !trigger.IsZero() {
		out.Annotations[v1.EndpointsLastChangeTriggerTime] = trigger.UTC().Format(time.RFC3339Nano)
	}
	delete(out.Annotations, v1.EndpointsOverCapacity)
	if truncate(out.Subsets) {
		out.Annotations[v1.EndpointsOverCapacity] = truncated
	}
	out.Labels = maps.Clone(service.Labels)
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Labels[managedByLabel] = endpointsManagedBy
	if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == v1.ClusterIPNone {
		out.Labels[v1.IsHeadlessService] = ""
	} else {
		delete(out.Labels, v1.IsHeadlessService)
	}
	return out
}

// equal reports whether the current Endpoints already have the wanted content. It ignores the
// trigger time, the order of addresses, and the resource versions of pods.
func equal(current, want *v1.Endpoints) bool {
	is := repack(current.Subsets)
	for i := range is {
		for _, list := range [][]v1.EndpointAddress{is[i].Addresses, is[i].NotReadyAddresses} {
			for j := range list {
				list[j].TargetRef = withoutVersion(list[j].TargetRef)
			}
		}
	}
	return equality.Semantic.DeepEqual(is, want.Subsets) && maps.Equal(current.Labels, want.Labels) &&
		current.Annotations[v1.EndpointsOverCapacity] == want.Annotations[v1.EndpointsOverCapacity]
}

func withoutVersion(ref *v1.ObjectReference) *v1.ObjectReference {
	if ref == nil || ref.ResourceVersion == "" {
		return ref
	}
	out := *ref
	out.ResourceVersion = ""
	return &out
}

func subsets(service *v1.Service, pods []*v1.Pod) []v1.EndpointSubset {
	var out []v1.EndpointSubset
	for _, pod := range pods {
		ip := addressOf(service, pod)
		if ip == "" || !endpointsliceutil.ShouldPodBeInEndpoints(pod, service.Spec.PublishNotReadyAddresses) {
			continue
		}
		address := v1.EndpointAddress{IP: ip, NodeName: &pod.Spec.NodeName, TargetRef: &v1.ObjectReference{
			Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		}}
		if endpointsliceutil.ShouldSetHostname(pod, service) {
			address.Hostname = pod.Spec.Hostname
		}
		add := func(ports []v1.EndpointPort) {
			s := v1.EndpointSubset{Ports: ports}
			if service.Spec.PublishNotReadyAddresses || controller.Ready(pod) {
				s.Addresses = []v1.EndpointAddress{address}
			} else {
				s.NotReadyAddresses = []v1.EndpointAddress{address}
			}
			out = append(out, s)
		}
		if len(service.Spec.Ports) == 0 && service.Spec.ClusterIP == v1.ClusterIPNone {
			add(nil)
		}
		for i := range service.Spec.Ports {
			p := &service.Spec.Ports[i]
			if n, err := endpointslice.FindPort(pod, p); err == nil {
				add([]v1.EndpointPort{{Name: p.Name, Port: int32(n), Protocol: p.Protocol, AppProtocol: p.AppProtocol}})
			}
		}
	}
	return repack(out)
}

// addressOf returns the address of a pod in the Service's first address family, or "" if it has
// none.
func addressOf(service *v1.Service, pod *v1.Pod) string {
	want6 := netutils.IsIPv6String(pod.Status.PodIP)
	switch {
	case len(service.Spec.IPFamilies) > 0:
		want6 = service.Spec.IPFamilies[0] == v1.IPv6Protocol
	case service.Spec.ClusterIP != "" && service.Spec.ClusterIP != v1.ClusterIPNone:
		want6 = netutils.IsIPv6String(service.Spec.ClusterIP)
	}
	for _, p := range pod.Status.PodIPs {
		if ip := netutils.ParseIPSloppy(p.IP); ip != nil && netutils.IsIPv6(ip) == want6 {
			return ip.String()
		}
	}
	return ""
}
