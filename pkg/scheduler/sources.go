// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/scheduler/intake"
	"keelson.dev/scheduling"
)

// sources has the caches of API objects that the scheduler reads.
type sources struct {
	factory  informers.SharedInformerFactory
	handled  []cache.DoneChecker // whether each handler has seen all objects of the first list
	handlers handlers

	// Pods, and the objects that select them or protect them from eviction.

	pods         *follow.Cache[v1.Pod, v1.Pod] // pods that have not terminated; nil in a Model
	services     corelisters.ServiceLister
	controllers  corelisters.ReplicationControllerLister
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
	budgets      policylisters.PodDisruptionBudgetLister

	// Nodes and namespaces.

	nodes             cache.SharedIndexInformer
	namespaces        corelisters.NamespaceLister
	namespacesChanged atomic.Uint64 // number of label changes of namespaces so far

	// Volumes and devices.

	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	classes     storagelisters.StorageClassLister
	csiNodes    storagelisters.CSINodeLister
	csiDrivers  storagelisters.CSIDriverLister
	capacities  storagelisters.CSIStorageCapacityLister
	attachments cache.SharedIndexInformer // VolumeAttachments, indexed by node
	devices     *devices
	taintRules  cache.SharedIndexInformer // DeviceTaintRules; nil if no rule applies

	podGroups schedulinglisters.PodGroupLister // nil without the feature GenericWorkload
}

// newSources returns caches of the objects that cfg.Client serves. If extenders are configured, the
// caches keep all fields, because extenders are sent whole objects.
func newSources(cfg Config) (*sources, error) {
	transform, source := slim, slimPods
	if len(cfg.Profiles.Extenders) > 0 {
		transform, source = follow.WithoutManagedFields, wholePods
	}
	s := newSourcesOf(follow.NewInformers(cfg.Client, 0, informers.WithTransform(transform)))
	if !cfg.NoDeviceTaintRules {
		s.applyTaintRules()
	}
	if cfg.PodGroups {
		s.podGroups = s.factory.Scheduling().V1beta1().PodGroups().Lister()
	}
	pods, err := source(cfg.Client)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	s.pods = follow.NewCache(follow.Config[v1.Pod, v1.Pod]{
		Source: pods, Keep: func(p *v1.Pod) *v1.Pod { return p }, Changed: s.podChanged, Clock: cfg.Clock, Log: cfg.Log,
	})
	return s, nil
}

// presentPods selects the pods that have not terminated.
var presentPods = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(v1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(v1.PodFailed))).String()

func wholePods(client kubernetes.Interface) (cache.ListerWatcher, error) {
	return follow.Source(client.CoreV1().Pods(metav1.NamespaceAll), follow.Fields(presentPods)), nil
}

// slimPods returns a ListerWatcher of pods that decodes only the fields that plugins read.
func slimPods(client kubernetes.Interface) (cache.ListerWatcher, error) {
	c, ok := client.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || c == nil {
		return wholePods(client) // only a fake client has no RESTClient
	}
	r, err := intake.NewReader(v1alpha1.AnnGang, v1alpha1.AnnGangSize)
	if err != nil {
		return nil, err
	}
	return r.ListWatch(c, presentPods)
}

// newSourcesOf returns sources that use the caches of f for all objects except pods, which they do
// not have.
func newSourcesOf(f informers.SharedInformerFactory) *sources {
	core, apps := f.Core().V1(), f.Apps().V1()
	s := &sources{
		factory:      f,
		nodes:        core.Nodes().Informer(),
		namespaces:   core.Namespaces().Lister(),
		services:     core.Services().Lister(),
		controllers:  core.ReplicationControllers().Lister(),
		replicaSets:  apps.ReplicaSets().Lister(),
		statefulSets: apps.StatefulSets().Lister(),
		claims:       core.PersistentVolumeClaims().Lister(),
		volumes:      core.PersistentVolumes().Lister(),
		classes:      f.Storage().V1().StorageClasses().Lister(),
		csiNodes:     f.Storage().V1().CSINodes().Lister(),
		csiDrivers:   f.Storage().V1().CSIDrivers().Lister(),
		capacities:   f.Storage().V1().CSIStorageCapacities().Lister(),
		attachments:  f.Storage().V1().VolumeAttachments().Informer(),
		budgets:      f.Policy().V1().PodDisruptionBudgets().Lister(),
		devices: &devices{
			claims: f.Resource().V1().ResourceClaims().Lister(), classes: f.Resource().V1().DeviceClasses().Lister(),
			slices: f.Resource().V1().ResourceSlices().Lister(), chosen: map[types.UID]chosenClaim{},
		},
	}
	return s
}

// applyTaintRules adds a cache of DeviceTaintRules, so that their taints apply to devices.
func (s *sources) applyTaintRules() {
	rules := s.factory.Resource().V1().DeviceTaintRules()
	s.taintRules, s.devices.rules = rules.Informer(), rules.Lister()
}

// groups returns the gangs that pods can name.
func (s *sources) groups() groups { return groups{podGroups: s.podGroups} }

// handlers has the functions that are called when objects change.
type handlers struct {
	podSet        func(old, pod *v1.Pod) // old is nil for a new pod
	podGone       func(*v1.Pod)
	nodes, claims cache.ResourceEventHandler // for nodes, and for resource claims
	podGroups     cache.ResourceEventHandler
	// changed is called with the event when an object changes that waiting pods may depend on.
	changed func(scheduling.Event)
	// timed returns a handler that calls h and observes how long each call takes.
	timed func(resource string, h cache.ResourceEventHandler) cache.ResourceEventHandler
}

// podChanged calls the handlers for a changed pod. While the watch is interrupted, a pod can be
// deleted and created again with the same name, so the old pod's UID may differ. It is handled as a
// deletion and a creation.
func (s *sources) podChanged(_ types.NamespacedName, old, pod *v1.Pod) {
	if old != nil && (pod == nil || old.UID != pod.UID) {
		s.handlers.podGone(old)
		old = nil
	}
	if pod != nil {
		s.handlers.podSet(old, pod)
	}
}

// follow registers the handlers with the caches.
func (s *sources) follow(h handlers) error {
	if err := s.index(); err != nil {
		return err
	}
	s.handlers = h
	core := s.factory.Core().V1()
	storage := s.factory.Storage().V1()
	notify := func(resource string, e scheduling.Event) cache.ResourceEventHandler {
		return h.timed(resource, cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { h.changed(e) },
			UpdateFunc: func(any, any) { h.changed(e) },
			DeleteFunc: func(any) { h.changed(e) },
		})
	}
	type watched struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}
	all := []watched{
		{s.nodes, h.nodes},
		{core.Namespaces().Informer(), s.namespaceHandler(h.changed)},
		{core.PersistentVolumeClaims().Informer(), notify("PersistentVolumeClaim", scheduling.VolumesChanged)},
		{core.PersistentVolumes().Informer(), notify("PersistentVolume", scheduling.VolumesChanged)},
		{storage.StorageClasses().Informer(), notify("storage.k8s.io/StorageClass", scheduling.VolumesChanged)},
		{storage.CSINodes().Informer(), notify("storage.k8s.io/CSINode", scheduling.VolumesChanged)},
		{storage.CSIDrivers().Informer(), notify("storage.k8s.io/CSIDriver", scheduling.VolumesChanged)},
		{storage.CSIStorageCapacities().Informer(),
			notify("storage.k8s.io/CSIStorageCapacity", scheduling.VolumesChanged)},
		{s.attachments, notify("storage.k8s.io/VolumeAttachment", scheduling.VolumesChanged)},
		{s.factory.Resource().V1().ResourceClaims().Informer(), h.claims},
		{s.factory.Resource().V1().DeviceClasses().Informer(), notify("resource.k8s.io/DeviceClass",
			scheduling.DevicesChanged|scheduling.ClassesChanged)},
		{s.factory.Resource().V1().ResourceSlices().Informer(), notify("resource.k8s.io/ResourceSlice",
			scheduling.DevicesChanged)},
	}
	if s.taintRules != nil {
		all = append(all, watched{s.taintRules, notify("resource.k8s.io/DeviceTaintRule", scheduling.DevicesChanged)})
	}
	if s.podGroups != nil {
		all = append(all, watched{s.factory.Scheduling().V1beta1().PodGroups().Informer(), h.podGroups})
	}
	for _, w := range all {
		registration, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		s.handled = append(s.handled, registration.HasSyncedChecker())
	}
	return nil
}

const byNode = "node"

func (s *sources) index() error {
	if err := s.attachments.AddIndexers(cache.Indexers{byNode: attachmentNode}); err != nil {
		return fmt.Errorf("attachment cache: %w", err)
	}
	return nil
}

func attachmentNode(o any) ([]string, error) {
	if va, ok := o.(*storagev1.VolumeAttachment); ok {
		return []string{va.Spec.NodeName}, nil
	}
	return nil, nil
}

// namespaceHandler calls changed when the labels of a namespace change. Plugins read no other
// fields of a namespace.
func (s *sources) namespaceHandler(changed func(scheduling.Event)) cache.ResourceEventHandler {
	notify := func(any) {
		s.namespacesChanged.Add(1)
		changed(scheduling.NamespaceChanged)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: notify,
		UpdateFunc: func(old, o any) {
			if !maps.Equal(old.(*v1.Namespace).Labels, o.(*v1.Namespace).Labels) {
				notify(o)
			}
		},
		DeleteFunc: notify,
	}
}

// run fills the caches and keeps them up to date until ctx ends. It returns when the caches are
// complete and the handlers have seen all objects.
func (s *sources) run(ctx context.Context) error {
	s.factory.StartWithContext(ctx)
	go s.pods.Run(ctx)
	if err := s.factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return fmt.Errorf("caches not filled: %w", err)
	}
	if !cache.WaitFor(ctx, "", s.handled...) {
		return fmt.Errorf("caches not filled: %w", context.Cause(ctx))
	}
	return follow.Wait(ctx, s.pods)
}

func (s *sources) allBudgets() ([]*policyv1.PodDisruptionBudget, error) {
	budgets, err := s.budgets.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("disruption budgets: %w", err)
	}
	return budgets, nil
}
