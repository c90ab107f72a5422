// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

// Model runs the scheduler's code for decisions on a cluster in memory, without an API server. It
// is not safe for concurrent use.
type Model struct {
	profile   *profile.Profile
	view      *view
	evaluator *evaluator
	nominated *nominations
	rand      *rand.Rand
}

// NewModel returns a model without nodes and pods. Its decisions use the profile p.
func NewModel(p *profile.Profile, r *rand.Rand) (*Model, error) {
	s := newSourcesOf(follow.NewInformers(nil, 0))
	s.applyTaintRules()
	if err := s.index(); err != nil {
		return nil, err
	}
	return &Model{
		profile: p, rand: r, evaluator: newEvaluator(), nominated: newNominations(),
		view: &view{Cell: cell.New(), keeper: newKeeper(), sources: s, devices: s.devices, reserved: newReservations(),
			gangs: newGangs(groups{})},
	}, nil
}

// Set adds or replaces an object. A pod must have a node.
func (m *Model) Set(obj runtime.Object) error {
	switch o := obj.(type) {
	case *v1.Node:
		m.view.SetNode(o)
		return nil
	case *v1.Pod:
		m.view.SetPod(o)
		return nil
	}
	into := m.indexer(obj)
	if into == nil {
		return fmt.Errorf("the scheduler does not read objects of type %T", obj)
	}
	if err := into.Update(obj); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if _, namespace := obj.(*v1.Namespace); namespace {
		m.view.sources.namespacesChanged.Add(1)
	}
	return nil
}

func (m *Model) indexer(obj runtime.Object) cache.Indexer {
	f := m.view.sources.factory
	switch obj.(type) {
	case *v1.Namespace:
		return f.Core().V1().Namespaces().Informer().GetIndexer()
	case *v1.Service:
		return f.Core().V1().Services().Informer().GetIndexer()
	case *v1.ReplicationController:
		return f.Core().V1().ReplicationControllers().Informer().GetIndexer()
	case *appsv1.ReplicaSet:
		return f.Apps().V1().ReplicaSets().Informer().GetIndexer()
	case *appsv1.StatefulSet:
		return f.Apps().V1().StatefulSets().Informer().GetIndexer()
	case *v1.PersistentVolumeClaim:
		return f.Core().V1().PersistentVolumeClaims().Informer().GetIndexer()
	case *v1.PersistentVolume:
		return f.Core().V1().PersistentVolumes().Informer().GetIndexer()
	case *storagev1.StorageClass:
		return f.Storage().V1().StorageClasses().Informer().GetIndexer()
	case *storagev1.CSINode:
		return f.Storage().V1().CSINodes().Informer().GetIndexer()
	case *storagev1.CSIDriver:
		return f.Storage().V1().CSIDrivers().Informer().GetIndexer()
	case *storagev1.CSIStorageCapacity:
		return f.Storage().V1().CSIStorageCapacities().Informer().GetIndexer()
	case *resourcev1.ResourceClaim:
		return f.Resource().V1().ResourceClaims().Informer().GetIndexer()
	case *resourcev1.DeviceClass:
		return f.Resource().V1().DeviceClasses().Informer().GetIndexer()
	case *resourcev1.ResourceSlice:
		return f.Resource().V1().ResourceSlices().Informer().GetIndexer()
	case *resourcev1.DeviceTaintRule:
		return f.Resource().V1().DeviceTaintRules().Informer().GetIndexer()
	case *storagev1.VolumeAttachment:
		return m.view.sources.attachments.GetIndexer()
	}
	return nil
}

// SetAll adds or replaces the items of a list, except pods without a node.
func (m *Model) SetAll(list runtime.Object) error {
	return meta.EachListItem(list, func(o runtime.Object) error {
		if pod, ok := o.(*v1.Pod); ok && pod.Spec.NodeName == "" {
			return nil
		}
		return m.Set(o)
	})
}

// RemoveNode removes a node. If the node is added again, the pods that were on it count again.
func (m *Model) RemoveNode(name string) { m.view.RemoveNode(name) }

// RemovePod removes a pod from its node.
func (m *Model) RemovePod(uid types.UID) { m.view.RemovePod(uid) }

// Explain returns the evaluation of every node for a pod.
func (m *Model) Explain(pod *v1.Pod) (*Explanation, error) {
	e, err := m.evaluate(pod)
	if err != nil {
		return nil, err
	}
	return e.explain(), nil
}

func (m *Model) evaluate(pod *v1.Pod) (*evaluation, error) {
	return m.evaluator.evaluate(m.view, m.profile, m.view.NewPod(pod), m.nominated)
}

// ErrNoNode means that a pod fits no node.
var ErrNoNode = errors.New("no node fits")

// Place puts a pod on the node that the scheduler would choose, and returns the node's name.
func (m *Model) Place(pod *v1.Pod) (node string, err error) {
	e, err := m.evaluate(pod)
	if err != nil {
		return "", err
	}
	if err := e.failure(); err != nil {
		return "", err
	}
	n := e.best(m.rand)
	if n == nil {
		return "", ErrNoNode
	}
	m.view.Assume(e.pod, n.Name)
	return n.Name, nil
}
