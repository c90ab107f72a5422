// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/scale"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// scales looks up how many pods the owners of pods should have. For built-in kinds it reads the
// caches; for other kinds, and for an owner that the caches lack, it reads the scale subresource of
// the owner.
type scales struct {
	sets         appslisters.ReplicaSetLister
	deployments  appslisters.DeploymentLister
	statefulSets appslisters.StatefulSetLister
	controllers  corelisters.ReplicationControllerLister
	mapper       meta.ResettableRESTMapper
	others       scale.ScalesGetter
}

func newScales(d controller.Deps) *scales {
	apps, core := d.Informers.Apps().V1(), d.Informers.Core().V1()
	return &scales{
		sets: apps.ReplicaSets().Lister(), deployments: apps.Deployments().Lister(),
		statefulSets: apps.StatefulSets().Lister(),
		controllers:  core.ReplicationControllers().Lister(), mapper: d.Mapper,
		others: scale.New(d.Discovery.RESTClient(), d.Mapper, dynamic.LegacyAPIPathResolverFunc,
			scale.NewDiscoveryScaleKindResolver(d.Discovery)),
	}
}

// owner is the owner of some pods, with the number of pods that it should have.
type owner struct {
	uid      types.UID
	replicas int32
}

// sum returns how many pods the owners of the given pods should have in total. Pods without an
// owner are not counted; unmanaged reports whether there are any.
func (s *scales) sum(ctx context.Context, pods []*v1.Pod) (total int32, unmanaged bool, err error) {
	seen := map[types.UID]bool{}   // UIDs of owners that were looked up
	wanted := map[types.UID]bool{} // UIDs of owners whose replicas are included in total
	for _, pod := range pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil {
			unmanaged = true
			continue
		}
		if seen[ref.UID] {
			continue
		}
		seen[ref.UID] = true
		o, err := s.find(ctx, pod.Namespace, ref)
		if err != nil {
			return 0, false, err
		}
		if o == nil {
			return 0, false, fmt.Errorf("found no controllers for pod %q", pod.Name)
		}
		if !wanted[o.uid] {
			wanted[o.uid] = true
			total += o.replicas
		}
	}
	return total, unmanaged, nil
}

// find returns the owner that an owner reference in an object of the namespace names, or nil if it
// does not exist.
func (s *scales) find(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*owner, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("owner %s: %w", ref.Name, err)
	}
	var o *owner
	switch gk := (schema.GroupKind{Group: gv.Group, Kind: ref.Kind}); gk {
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}:
		o = s.findSet(namespace, ref)
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		if set, err := s.statefulSets.StatefulSets(namespace).Get(ref.Name); err == nil && set.UID == ref.UID {
			o = &owner{set.UID, ptr.Deref(set.Spec.Replicas, 1)}
		}
	case schema.GroupKind{Kind: "ReplicationController"}:
		if rc, err := s.controllers.ReplicationControllers(namespace).Get(ref.Name); err == nil && rc.UID == ref.UID {
			o = &owner{rc.UID, ptr.Deref(rc.Spec.Replicas, 1)}
		}
	}
	if o != nil {
		return o, nil
	}
	return s.findOther(ctx, namespace, gv.WithKind(ref.Kind), ref)
}

// findSet returns the ReplicaSet that ref names or, if a Deployment owns it, the Deployment. It
// returns nil if that object does not exist.
func (s *scales) findSet(namespace string, ref *metav1.OwnerReference) *owner {
	set, err := s.sets.ReplicaSets(namespace).Get(ref.Name)
	if err != nil || set.UID != ref.UID {
		return nil
	}
	up := metav1.GetControllerOfNoCopy(set)
	if up == nil || up.Kind != "Deployment" {
		return &owner{set.UID, ptr.Deref(set.Spec.Replicas, 1)}
	}
	d, err := s.deployments.Deployments(namespace).Get(up.Name)
	if err != nil || d.UID != up.UID {
		return nil
	}
	return &owner{d.UID, ptr.Deref(d.Spec.Replicas, 1)}
}

func (s *scales) findOther(ctx context.Context, namespace string, kind schema.GroupVersionKind,
	ref *metav1.OwnerReference) (*owner, error) {
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		s.mapper.Reset() // the cached discovery may be out of date and lack a new kind
		mapping, err = s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("owner %s: %w", ref.Name, err)
	}
	resource := mapping.Resource.GroupResource()
	got, err := s.others.Scales(namespace).Get(ctx, resource, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s does not implement the scale subresource: %w", resource, err)
	case got.UID != ref.UID:
		return nil, nil
	}
	return &owner{got.UID, got.Spec.Replicas}, nil
}
