// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
	"keelson.dev/scheduling"
)

// volumePlan is what must be bound or made before the pod is.
type volumePlan struct{ volumebinding.Plan }

func (p volumePlan) empty() bool { return len(p.Bind)+len(p.Provision) == 0 }

// reserve keeps the planned volumes from other decisions, or gives them free.
func (p volumePlan) reserve(reserved map[string]bool, on bool) {
	for _, m := range p.Bind {
		if on {
			reserved[m.Volume.Name] = true
		} else {
			delete(reserved, m.Volume.Name)
		}
	}
}

func (e *evaluation) planVolumes(n *scheduling.Node) volumePlan {
	for _, f := range e.cell {
		if v, ok := f.(*volumebinding.Filter); ok {
			return volumePlan{v.Plan(n)}
		}
	}
	return volumePlan{}
}

// prepareVolumes gives the claims their volumes and waits until the volume
// controller has bound them.
func (s *Scheduler) prepareVolumes(ctx context.Context, pod *v1.Pod, d decision) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Profiles.BindTimeout)
	defer cancel()
	for _, m := range d.volumes.Bind {
		pv, dirty, err := volume.GetBindVolumeToClaim(m.Volume, m.Claim)
		if err != nil {
			return fmt.Errorf("volume %s for claim %s: %w", m.Volume.Name, m.Claim.Name, err)
		}
		if !dirty {
			continue
		}
		if _, err := s.cfg.Client.CoreV1().PersistentVolumes().Update(ctx, pv, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("volume %s for claim %s: %w", m.Volume.Name, m.Claim.Name, err)
		}
	}
	for _, claim := range d.volumes.Provision {
		c := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnSelectedNode, d.node)
		if _, err := s.cfg.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Update(ctx, c, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("claim %s: %w", c.Name, err)
		}
	}
	return s.awaitClaims(ctx, pod, d)
}

func (s *Scheduler) awaitClaims(ctx context.Context, pod *v1.Pod, d decision) error {
	for {
		moved := s.volumesMoved.next()
		waiting, err := s.unbound(pod.Namespace, d)
		if err != nil || waiting == "" {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("claim %s is not bound: %w", waiting, ctx.Err())
		}
	}
}

// unbound names a claim of the plan that has no volume yet; it fails when there
// will be none on the node.
func (s *Scheduler) unbound(namespace string, d decision) (string, error) {
	for _, m := range d.volumes.Bind {
		if bound, _, err := s.claimNow(namespace, m.Claim); err != nil || !bound {
			return m.Claim.Name, err
		}
	}
	for _, c := range d.volumes.Provision {
		bound, now, err := s.claimNow(namespace, c)
		if err != nil {
			return c.Name, err
		}
		if bound {
			continue
		}
		// A provisioner that cannot make a volume there takes the choice back.
		// The version the decision was made on never had it.
		if _, chosen := now.Annotations[volume.AnnSelectedNode]; !chosen && now.ResourceVersion != c.ResourceVersion {
			return c.Name, fmt.Errorf("claim %s: the provisioner cannot make a volume on node %s", c.Name, d.node)
		}
		return c.Name, nil
	}
	return "", nil
}

// claimNow returns a claim's present state, and whether it is bound.
func (s *Scheduler) claimNow(namespace string, c *v1.PersistentVolumeClaim) (bool, *v1.PersistentVolumeClaim, error) {
	now := s.view.Claim(namespace, c.Name)
	if now == nil || now.UID != c.UID {
		return false, nil, fmt.Errorf("claim %s was deleted", c.Name)
	}
	return volumebinding.Bound(now), now, nil
}

// signal wakes everybody who waits for the next change.
type signal struct {
	mu *sync.Mutex
	ch *chan struct{}
}

func newSignal() signal {
	ch := make(chan struct{})
	return signal{&sync.Mutex{}, &ch}
}

// next returns a channel that is closed at the next raise.
func (s signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.ch
}

func (s signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(*s.ch)
	*s.ch = make(chan struct{})
}
