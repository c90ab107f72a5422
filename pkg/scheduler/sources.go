// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/scheduler/intake"
	"keelson.dev/scheduling"
)

// sources are the caches the scheduler reads.
type sources struct {
	factory      informers.SharedInformerFactory
	pods         *intake.Store // all that have not ended
	nodes        cache.SharedIndexInformer
	namespaces   corelisters.NamespaceLister
	services     corelisters.ServiceLister
	controllers  corelisters.ReplicationControllerLister
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
	claims       corelisters.PersistentVolumeClaimLister
	volumes      corelisters.PersistentVolumeLister
	classes      storagelisters.StorageClassLister
	csiNodes     storagelisters.CSINodeLister
	csiDrivers   storagelisters.CSIDriverLister
	capacities   storagelisters.CSIStorageCapacityLister
	attachments  cache.SharedIndexInformer // of volumes, by node
	budgets      policylisters.PodDisruptionBudgetLister
	devices      *devices
	synced       []cache.InformerSynced

	namespacesChanged atomic.Uint64 // counts changes of namespaces' labels
}

// newSources returns caches of what client serves. With whole, objects are kept
// as they are.
func newSources(client kubernetes.Interface, whole bool) (*sources, error) {
	if whole {
		return newSourcesOf(informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutManagedFields)), wholePods(client)), nil
	}
	pods, err := slimPods(client)
	if err != nil {
		return nil, err
	}
	return newSourcesOf(informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim)), pods), nil
}

// presentPods selects the pods that have not ended.
var presentPods = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(v1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(v1.PodFailed))).String()

func wholePods(client kubernetes.Interface) *intake.Store {
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	return intake.NewStore(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = presentPods
			return pods.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = presentPods
			return pods.Watch(ctx, opts)
		},
	}, client))
}

// slimPods are a store of what plugins look at of pods.
func slimPods(client kubernetes.Interface) (*intake.Store, error) {
	c, ok := client.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || c == nil {
		return wholePods(client), nil // there is no server behind it
	}
	r, err := intake.NewReader(v1alpha1.AnnGang, v1alpha1.AnnGangSize)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	lw, err := r.ListWatch(c, presentPods)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	return intake.NewStore(lw), nil
}

// newSourcesOf returns caches that are filled by a factory's informers, and pods.
func newSourcesOf(f informers.SharedInformerFactory, pods *intake.Store) *sources {
	core, apps := f.Core().V1(), f.Apps().V1()
	s := &sources{
		factory: f, pods: pods,
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

// handlers are told of changes of the kinds that matter for the cell.
type handlers struct {
	podSet        func(old, pod *v1.Pod)
	podGone       func(*v1.Pod)
	nodes, claims cache.ResourceEventHandler // claims of devices
	// changed is told that something pods may wait for has changed.
	changed func(scheduling.Event)
}

func (s *sources) follow(h handlers) error {
	if err := s.index(); err != nil {
		return err
	}
	s.pods.Tell(h.podSet, h.podGone)
	s.synced = append(s.synced, s.pods.HasSynced)
	core := s.factory.Core().V1()
	storage := s.factory.Storage().V1()
	notify := func(e scheduling.Event) cache.ResourceEventHandler {
		return cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { h.changed(e) },
			UpdateFunc: func(any, any) { h.changed(e) },
			DeleteFunc: func(any) { h.changed(e) },
		}
	}
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{s.nodes, h.nodes},
		{core.Namespaces().Informer(), s.namespaceHandler(h.changed)},
		{core.PersistentVolumeClaims().Informer(), notify(scheduling.VolumesChanged)},
		{core.PersistentVolumes().Informer(), notify(scheduling.VolumesChanged)},
		{storage.StorageClasses().Informer(), notify(scheduling.VolumesChanged)},
		{storage.CSINodes().Informer(), notify(scheduling.VolumesChanged)},
		{storage.CSIDrivers().Informer(), notify(scheduling.VolumesChanged)},
		{storage.CSIStorageCapacities().Informer(), notify(scheduling.VolumesChanged)},
		{s.attachments, notify(scheduling.VolumesChanged)},
		{s.factory.Resource().V1().ResourceClaims().Informer(), h.claims},
		{s.factory.Resource().V1().DeviceClasses().Informer(), notify(scheduling.DevicesChanged | scheduling.ClassesChanged)},
		{s.factory.Resource().V1().ResourceSlices().Informer(), notify(scheduling.DevicesChanged)},
	} {
		registration, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		s.synced = append(s.synced, registration.HasSynced)
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

// namespaceHandler tells of namespaces' labels, which is all that plugins look at.
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

// run fills the caches and keeps them up to date until ctx ends; it returns
// when they are filled.
func (s *sources) run(ctx context.Context) error {
	s.factory.Start(ctx.Done())
	go s.pods.Run(ctx)
	for kind, ok := range s.factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("cache of %v: %w", kind, context.Cause(ctx))
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
		return errors.Join(errors.New("caches not filled"), context.Cause(ctx))
	}
	return nil
}

func (s *sources) allBudgets() ([]*policyv1.PodDisruptionBudget, error) {
	budgets, err := s.budgets.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("disruption budgets: %w", err)
	}
	return budgets, nil
}
