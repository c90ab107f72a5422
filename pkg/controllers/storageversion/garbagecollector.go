// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion

import (
	"context"
	"fmt"
	"slices"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/apiserverinternal/v1alpha1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/api/apiserverinternal"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/follow"
)

// GarbageCollectorName is the name of the garbage collector.
const GarbageCollectorName = "storageversion-garbage-collector-controller"

// identityLabel is a label of identity leases, and identityServer its value in the leases of API
// servers.
const (
	identityLabel  = "apiserver.kubernetes.io/identity"
	identityServer = "kube-apiserver"
)

type garbageCollector struct {
	controller.Deps
	queue    *controller.Queue
	versions listers.StorageVersionLister
	// servers has an informer only for the leases of API servers, because the leases of nodes
	// change all the time.
	servers informers.SharedInformerFactory
	leases  cache.SharedIndexInformer
}

// NewGarbageCollector returns the controller that removes the entries of missing API servers from
// StorageVersions.
func NewGarbageCollector(d controller.Deps) (controller.Controller, error) {
	versions := d.Informers.Internal().V1alpha1().StorageVersions()
	c := &garbageCollector{Deps: d, versions: versions.Lister()}
	c.servers = informers.NewSharedInformerFactoryWithOptions(d.Client, 0, informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			follow.Latest(o)
			o.LabelSelector = identityLabel + "=" + identityServer
		}))
	c.leases = c.servers.Coordination().V1().Leases().Informer()
	c.queue = controller.NewQueue(GarbageCollectorName, d.Clock, d.Log, d.Options.Workers, c.sync)
	if err := controller.OnChange(c.leases, c.leaseChanged); err != nil {
		return nil, err
	}
	return c, controller.OnChange(versions.Informer(), func(_, v *apiserverinternalv1alpha1.StorageVersion) {
		if v != nil {
			c.queue.Add(v.Name)
		}
	})
}

// leaseChanged queues all StorageVersions if the lease of an API server was deleted.
func (c *garbageCollector) leaseChanged(_, lease *coordinationv1.Lease) {
	if lease != nil {
		return
	}
	versions, err := c.versions.List(labels.Everything())
	if err != nil {
		c.Log.Error("Failed to list storage versions", "err", err)
	}
	for _, v := range versions {
		c.queue.Add(v.Name)
	}
}

// Run implements controller.Controller.
func (c *garbageCollector) Run(ctx context.Context) error {
	c.servers.Start(ctx.Done())
	defer c.servers.Shutdown()
	c.servers.WaitForCacheSync(ctx.Done())
	return c.queue.Run(ctx)
}

// sync removes the entries of missing API servers from a StorageVersion.
func (c *garbageCollector) sync(ctx context.Context, name string) error {
	v, err := c.versions.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	gone, err := c.gone(ctx, v)
	if err != nil || len(gone) == 0 {
		return err
	}
	next := v.DeepCopy()
	next.Status.StorageVersions = slices.DeleteFunc(next.Status.StorageVersions,
		func(s apiserverinternalv1alpha1.ServerStorageVersion) bool {
			return slices.Contains(gone, s.APIServerID)
		})
	api := c.Client.InternalV1alpha1().StorageVersions()
	if len(next.Status.StorageVersions) == 0 {
		// The deletion fails if an API server has added an entry in the meantime, because of the
		// precondition.
		err = api.Delete(ctx, name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion}})
	} else {
		apiserverinternal.Agree(next, c.Clock.Now())
		_, err = api.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("entries of missing servers: %w", err)
	}
	return nil
}

// gone returns the IDs of the API servers in a StorageVersion that do not exist any more. It asks
// the API server only about leases that the cache does not show.
func (c *garbageCollector) gone(ctx context.Context, v *apiserverinternalv1alpha1.StorageVersion) ([]string, error) {
	var out []string
	for _, s := range v.Status.StorageVersions {
		if _, there, err := c.leases.GetStore().GetByKey(metav1.NamespaceSystem + "/" + s.APIServerID); err == nil && there {
			continue
		}
		lease, err := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, s.APIServerID, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			out = append(out, s.APIServerID)
		case err != nil:
			return nil, fmt.Errorf("lease of server %s: %w", s.APIServerID, err)
		case lease.Labels[identityLabel] != identityServer:
			out = append(out, s.APIServerID)
		}
	}
	return out, nil
}
