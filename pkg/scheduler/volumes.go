// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
	"keelson.dev/scheduling"
)

// volumePlan has the volumes that must be bound or provisioned before the pod can be bound.
type volumePlan struct{ volumebinding.Plan }

func (p volumePlan) empty() bool { return len(p.Bind)+len(p.Provision) == 0 }

// reservations has the volumes and nodes that the scheduler has chosen for claims, until the
// decisions are carried out. The caches may not show these choices yet. Pods that share a claim
// share its reservation.
type reservations struct {
	volumes map[string]*reservation    // reservations by volume name
	nodes   map[types.UID]*reservation // reservations by UID of the claim for which a volume is provisioned
}

func newReservations() reservations {
	return reservations{map[string]*reservation{}, map[types.UID]*reservation{}}
}

// reservation is the choice of a volume or node for a claim. decisions counts the decisions that
// rely on it.
type reservation struct {
	claim     *v1.PersistentVolumeClaim
	node      string
	decisions int
}

// reserve adds the choices of a plan for a pod on the given node.
func (r reservations) reserve(p volumePlan, node string) {
	for _, m := range p.Bind {
		hold(r.volumes, m.Volume.Name, m.Claim, node)
	}
	for _, c := range p.Provision {
		hold(r.nodes, c.UID, c, node)
	}
}

// release removes the choices of a plan after its decision was carried out or failed.
func (r reservations) release(p volumePlan) {
	for _, m := range p.Bind {
		drop(r.volumes, m.Volume.Name)
	}
	for _, c := range p.Provision {
		drop(r.nodes, c.UID)
	}
}

func hold[K comparable](in map[K]*reservation, key K, claim *v1.PersistentVolumeClaim, node string) {
	if in[key] == nil {
		in[key] = &reservation{claim: claim, node: node}
	}
	in[key].decisions++
}

func drop[K comparable](in map[K]*reservation, key K) {
	if r := in[key]; r != nil {
		if r.decisions--; r.decisions == 0 {
			delete(in, key)
		}
	}
}

// volume returns a volume as it will be after its reservation is carried out: with a reference to
// the claim.
func (r reservations) volume(pv *v1.PersistentVolume) *v1.PersistentVolume {
	held := r.volumes[pv.Name]
	if held == nil || pv.Spec.ClaimRef != nil {
		return pv
	}
	pv = pv.DeepCopy()
	pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: held.claim.Namespace, Name: held.claim.Name, UID: held.claim.UID}
	return pv
}

// withNode returns a claim as it will be after its reservation is carried out: with the annotation
// for the selected node.
func (r reservations) withNode(claim *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	held := r.nodes[claim.UID]
	if held == nil || metav1.HasAnnotation(claim.ObjectMeta, volume.AnnSelectedNode) {
		return claim
	}
	claim = claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnSelectedNode, held.node)
	return claim
}

func (e *evaluation) planVolumes(n *scheduling.Node) volumePlan {
	if e.volumes == nil {
		return volumePlan{}
	}
	return volumePlan{e.volumes.Plan(n)}
}

// writes has the resource versions of volumes and claims after the scheduler's own writes, by name.
// Older versions in the caches are ignored.
type writes struct{ volumes, claims map[string]string }

// prepareVolumes writes the choices of the plan into volumes and claims, and waits until the volume
// controller has bound the claims.
func (s *Scheduler) prepareVolumes(ctx context.Context, pod *v1.Pod, d decision) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Profiles.BindTimeout)
	defer cancel()
	w := writes{map[string]string{}, map[string]string{}}
	for _, m := range d.volumes.Bind {
		pv, err := s.bindVolume(ctx, m)
		if err != nil {
			return fmt.Errorf("volume %s for claim %s: %w", m.Volume.Name, m.Claim.Name, err)
		}
		w.volumes[pv.Name] = pv.ResourceVersion
	}
	for _, claim := range d.volumes.Provision {
		c, err := s.selectNode(ctx, claim, d.node)
		if err != nil {
			return fmt.Errorf("claim %s: %w", claim.Name, err)
		}
		w.claims[c.Name] = c.ResourceVersion
	}
	return s.awaitClaims(ctx, pod, d, w)
}

// bindVolume writes the reference to the claim into a volume, unless the scheduler has already written
// it for another pod with the same claim.
func (s *Scheduler) bindVolume(ctx context.Context, m volumebinding.Match) (*v1.PersistentVolume, error) {
	volumes := s.cfg.Client.CoreV1().PersistentVolumes()
	pv := s.view.Volume(m.Volume.Name)
	if pv == nil || pv.UID != m.Volume.UID {
		return nil, errors.New("it was deleted")
	}
	if pv.Spec.ClaimRef != nil && !volume.IsVolumeBoundToClaim(pv, m.Claim) {
		return nil, errors.New("it is bound to another claim")
	}
	next, dirty, err := volume.GetBindVolumeToClaim(pv, m.Claim)
	if err != nil || !dirty {
		return pv, err
	}
	got, err := volumes.Update(ctx, next, metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) {
		return got, err
	}
	now, errGet := volumes.Get(ctx, pv.Name, metav1.GetOptions{})
	if errGet == nil && now.UID == pv.UID && now.Spec.ClaimRef != nil && now.Spec.ClaimRef.UID == m.Claim.UID {
		return now, nil
	}
	return nil, err
}

// selectNode writes the node into a claim, so that the provisioner makes a volume there. It never
// replaces another selected node, because only the provisioner may remove the selection.
func (s *Scheduler) selectNode(ctx context.Context, claim *v1.PersistentVolumeClaim,
	node string) (*v1.PersistentVolumeClaim, error) {
	claims := s.cfg.Client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	next := claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, volume.AnnSelectedNode, node)
	got, err := claims.Update(ctx, next, metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) {
		return got, err
	}
	now, errGet := claims.Get(ctx, claim.Name, metav1.GetOptions{})
	if errGet == nil && now.UID == claim.UID && now.Annotations[volume.AnnSelectedNode] == node {
		return now, nil
	}
	return nil, err
}

func (s *Scheduler) awaitClaims(ctx context.Context, pod *v1.Pod, d decision, w writes) error {
	for {
		moved := s.volumesMoved.next()
		node, err := s.stillPlaced(pod, d)
		if err != nil {
			return err
		}
		waiting, err := s.unbound(node, d, w)
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

// stillPlaced returns the node of a decision. It returns an error if the pod or the node was
// deleted after the decision.
func (s *Scheduler) stillPlaced(pod *v1.Pod, d decision) (*v1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, placed := s.view.Placed(pod.UID); !placed {
		return nil, fmt.Errorf("pod does not exist any more: %w", apierrors.NewNotFound(v1.Resource("pods"), pod.Name))
	}
	n := s.view.NodeByName(d.node)
	if n == nil || n.Node == nil {
		return nil, fmt.Errorf("node %s was deleted", d.node)
	}
	return n.Node, nil
}

// unbound returns the name of a claim of the plan that is not bound yet, or "" if all are bound. It
// returns an error if the claim cannot get a volume on the node any more.
func (s *Scheduler) unbound(node *v1.Node, d decision, w writes) (string, error) {
	for _, m := range d.volumes.Bind {
		if done, err := s.volumeBound(node, m, w); err != nil || !done {
			return m.Claim.Name, err
		}
	}
	for _, c := range d.volumes.Provision {
		if done, err := s.provisioned(node, c, w); err != nil || !done {
			return c.Name, err
		}
	}
	return "", nil
}

// volumeBound reports whether a claim is bound to the volume that was chosen for it.
func (s *Scheduler) volumeBound(node *v1.Node, m volumebinding.Match, w writes) (bool, error) {
	pv := s.view.Volume(m.Volume.Name)
	claim, err := s.claimNow(m.Claim)
	switch {
	case err != nil:
		return false, err
	case pv == nil:
		return false, fmt.Errorf("volume %s was deleted", m.Volume.Name)
	case older(pv.ResourceVersion, w.volumes[pv.Name]):
		return false, nil
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == "":
		return false, fmt.Errorf("ClaimRef got reset for pv %q", pv.Name)
	}
	if err := volume.CheckNodeAffinity(pv, node.Labels); err != nil {
		return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", pv.Name, node.Name, err)
	}
	return volumebinding.Bound(claim), nil
}

// provisioned reports whether a claim is bound to a volume that is accessible from the node.
func (s *Scheduler) provisioned(node *v1.Node, c *v1.PersistentVolumeClaim, w writes) (bool, error) {
	claim, err := s.claimNow(c)
	switch {
	case err != nil:
		return false, err
	case older(claim.ResourceVersion, w.claims[c.Name]):
		return false, nil
	case claim.Annotations[volume.AnnSelectedNode] != node.Name:
		return false, fmt.Errorf("claim %s: the provisioner cannot make a volume on node %s", c.Name, node.Name)
	case claim.Spec.VolumeName == "":
		return false, nil
	}
	pv := s.view.Volume(claim.Spec.VolumeName)
	if pv == nil {
		return false, nil // the cache does not have the volume yet, or the volume was deleted
	}
	if err := volume.CheckNodeAffinity(pv, node.Labels); err != nil {
		return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", pv.Name, node.Name, err)
	}
	return volumebinding.Bound(claim), nil
}

// older reports whether the resource version shown in a cache is older than the known version.
func older(shown, known string) bool {
	order, err := resourceversion.CompareResourceVersion(shown, known)
	return err == nil && order < 0
}

// claimNow returns the current version of a claim from the cache. It returns an error if the claim
// was deleted.
func (s *Scheduler) claimNow(c *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	now := found(s.view.sources.claims.PersistentVolumeClaims(c.Namespace).Get(c.Name))
	if now == nil || now.UID != c.UID {
		return nil, fmt.Errorf("claim %s was deleted", c.Name)
	}
	return now, nil
}

// signal wakes all goroutines that wait for the next change of some objects.
type signal struct {
	mu *sync.Mutex
	ch *chan struct{}
}

func newSignal() signal {
	ch := make(chan struct{})
	return signal{&sync.Mutex{}, &ch}
}

// next returns a channel that the next call of raise closes.
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
