// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemonset runs a pod of each DaemonSet on every node that is eligible for it.
//
// The function evaluate decides whether a node is eligible. The function decide returns which pods
// to create and delete, given the DaemonSet, the nodes and the pods. Neither does I/O. The
// controller carries out the plan and waits until its cache shows the result before it makes the
// next plan. It does not bind pods to nodes: it creates pods with a node affinity for one node, and
// the scheduler binds them.
package daemonset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/history"
)

// Name is the controller's name.
const Name = "daemonset-controller"

const (
	// burst is the maximum number of pods that one sync creates or deletes.
	burst = 250
	// retryFirst and retryMax are the first and the longest delay of the exponential back-off with
	// which failed pods on a node are replaced.
	retryFirst = time.Second
	retryMax   = 15 * time.Minute
	// sweep is the interval at which expired back-offs are deleted from memory.
	sweep = time.Minute
)

var (
	kind         = appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	errNameTaken = errors.New("another revision has the name")
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue    *controller.Queue
	pods     controller.Pods
	expected *controller.Expectations
	backoff  *flowcontrol.Backoff
	history  *history.Store
	sets     appslisters.DaemonSetLister
	nodes    corelisters.NodeLister
	podCache cache.SharedIndexInformer
	skip     controller.StaleSkips
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	sets, nodes := d.Informers.Apps().V1().DaemonSets(), d.Informers.Core().V1().Nodes()
	revisions := d.Informers.Apps().V1().ControllerRevisions().Informer()
	store, err := history.NewStore(d.Client, revisions)
	if err != nil {
		return nil, err
	}
	expected, pods := controller.NewExpectations(d.Clock), d.Informers.Core().V1().Pods().Informer()
	c := &Controller{
		Deps: d, expected: expected, history: store,
		pods:    controller.Pods{Deps: d, Cache: pods.GetIndexer(), Expected: expected},
		backoff: flowcontrol.NewBackOff(retryFirst, retryMax), sets: sets.Lister(), nodes: nodes.Lister(), podCache: pods,
		skip: controller.NewStaleSkips(d.Metrics, "daemonset_controller", "DaemonSet"),
	}
	c.backoff.Clock = d.Clock
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByController(c.podCache),
		controller.OnChange(sets.Informer(), func(old, set *appsv1.DaemonSet) {
			c.queue.AddObject(controller.Latest(old, set))
		}),
		controller.OnChange(revisions, c.revisionChanged),
		controller.OnChange(c.podCache, controller.Follower{
			Owner: func(pod *v1.Pod) string { return c.ownerOf(pod) }, Selecting: c.selecting,
			Expected: c.expected, Add: c.queue.Add,
		}.PodChanged),
		controller.OnChange(nodes.Informer(), c.nodeChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		t := c.Clock.NewTicker(sweep)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C():
				c.backoff.GC()
			}
		}
	})
	err := c.queue.Run(ctx)
	wg.Wait()
	return err
}

// selecting returns the keys of the DaemonSets that select a pod.
func (c *Controller) selecting(pod *v1.Pod) []string {
	sets, err := c.sets.GetPodDaemonSets(pod)
	if err != nil {
		return nil // the error means that no set selects the pod
	}
	return controller.Keys(sets)
}

// ownerOf returns the key of the DaemonSet that controls an object, or "" if no DaemonSet controls
// it.
func (c *Controller) ownerOf(o metav1.Object) string {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || ref.Kind != kind.Kind {
		return ""
	}
	set, err := c.sets.DaemonSets(o.GetNamespace()).Get(ref.Name)
	if err != nil || set.UID != ref.UID {
		return ""
	}
	return controller.Key(set)
}

// revisionChanged queues the DaemonSet that owns a changed revision, or the sets that may adopt it
// if it has no owner.
func (c *Controller) revisionChanged(old, r *appsv1.ControllerRevision) {
	for _, o := range []*appsv1.ControllerRevision{old, r} {
		if o == nil {
			continue
		}
		// Queue the set also for a new revision: the sync after its creation may have numbered the
		// revisions without it, because the cache did not show it.
		if set := c.ownerOf(o); set != "" {
			c.queue.Add(set)
		}
	}
	if r != nil && metav1.GetControllerOfNoCopy(r) == nil {
		sets, err := c.sets.GetHistoryDaemonSets(r)
		if err != nil {
			return // the error means that no set selects the revision
		}
		for _, set := range sets {
			c.queue.AddObject(set)
		}
	}
}

// nodeChanged queues the DaemonSets for which a changed node has become eligible or is no longer
// eligible.
func (c *Controller) nodeChanged(old, node *v1.Node) {
	if old != nil && node != nil && equality.Semantic.DeepEqual(old.Labels, node.Labels) &&
		equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) {
		return
	}
	sets, err := c.sets.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, set := range sets {
		if j := newEligibility(set); j.evaluate(old) != j.evaluate(node) {
			c.queue.AddObject(set)
		}
	}
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	set, err := c.sets.DaemonSets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.expected.Forget(key)
		return nil
	}
	if err != nil {
		return err
	}
	if len(set.Spec.Selector.MatchLabels)+len(set.Spec.Selector.MatchExpressions) == 0 {
		c.Events.Event(set, v1.EventTypeWarning, "SelectingAll",
			"This daemon set is selecting all pods. A non-empty selector is required.")
		return nil
	}
	if set.DeletionTimestamp != nil {
		return nil // the garbage collector may have deleted some revisions of a deleted set already
	}
	met := c.pods.Met(set)
	pods, revisions, err := c.claim(ctx, set)
	if err != nil {
		return err
	}
	hash, old, err := c.revise(ctx, set, revisions, pods)
	if err != nil {
		return err
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	s := &state{
		set: set, hash: hash, places: assignPods(set, nodes, pods), now: c.Clock.Now(),
		held: func(node string) time.Duration { return c.held(backoffKey(set, node)) },
	}
	if !met {
		c.queue.AddAfter(key, controller.ExpectationTimeout)
		c.skip(v1.Resource("pods"))
		return c.writeStatus(ctx, s, false)
	}
	if err := c.carryOut(ctx, key, s); err != nil {
		return errors.Join(err, c.writeStatus(ctx, s, true))
	}
	return errors.Join(c.truncate(ctx, set, old, pods), c.writeStatus(ctx, s, true))
}

// claim returns the DaemonSet's pods and its revisions, which it adopts and releases by the set's
// selector. The revisions are ordered by number.
func (c *Controller) claim(ctx context.Context, set *appsv1.DaemonSet) ([]*v1.Pod, []*appsv1.ControllerRevision,
	error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, nil, fmt.Errorf("selector: %w", err)
	}
	owner := controller.Owner{
		Object: set, Kind: kind, Selector: selector,
		GetLive: func() (metav1.Object, error) {
			return c.Client.AppsV1().DaemonSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		},
		Patch: func(pod metav1.Object, patch []byte) error {
			_, err := c.Client.CoreV1().Pods(set.Namespace).Patch(ctx, pod.GetName(),
				types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	}
	candidates, err := controller.Candidates[*v1.Pod](c.podCache, set)
	if err != nil {
		return nil, nil, err
	}
	pods, err := controller.Claim(owner, candidates)
	if err != nil {
		return nil, nil, err
	}
	known, err := c.history.Candidates(set)
	if err != nil {
		return nil, nil, err
	}
	revisions, err := c.history.Claim(ctx, owner, known)
	return pods, revisions, err
}

// backoffKey returns the key of the back-off for replacing a DaemonSet's failed pods on a node. It
// contains the set's generation, so that a change of the set resets the back-off.
func backoffKey(set *appsv1.DaemonSet, node string) string {
	return fmt.Sprintf("%s/%d/%s", set.UID, set.Status.ObservedGeneration, node)
}

func (c *Controller) held(key string) time.Duration {
	if !c.backoff.IsInBackOffSinceUpdate(key, c.Clock.Now()) {
		return 0
	}
	return c.backoff.Get(key)
}

// carryOut makes a plan for the DaemonSet's pods and carries it out.
func (c *Controller) carryOut(ctx context.Context, key string, s *state) error {
	p, err := decide(s)
	if err != nil {
		return err
	}
	if p.again > 0 {
		c.queue.AddAfter(key, p.again)
	}
	for _, pod := range p.failed {
		node := target(pod)
		c.backoff.Next(backoffKey(s.set, node), c.Clock.Now())
		c.Events.Eventf(s.set, v1.EventTypeWarning, "FailedDaemonPod",
			"Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, node)
	}
	for _, pod := range p.succeeded {
		c.Events.Eventf(s.set, v1.EventTypeNormal, "SucceededDaemonPod",
			"Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, target(pod))
	}
	create, remove := p.create[:min(len(p.create), burst)], p.delete[:min(len(p.delete), burst)]
	return errors.Join(c.create(ctx, key, s, create), c.pods.DeleteAll(ctx, s.set, remove, key))
}

func (c *Controller) create(ctx context.Context, key string, s *state, nodes []string) error {
	_, err := c.expected.Create(key, len(nodes), func(i int) (types.UID, error) {
		return c.pods.Create(ctx, s.set, nodes[i], newPod(s.set, s.hash, nodes[i]))
	})
	return err
}

func (c *Controller) writeStatus(ctx context.Context, s *state, acted bool) error {
	want, again := status(s, acted)
	if again > 0 {
		c.queue.AddAfter(controller.Key(s.set), again)
	}
	if equality.Semantic.DeepEqual(s.set.Status, want) {
		return nil
	}
	next := s.set.DeepCopy()
	next.Status = want
	_, err := c.Client.AppsV1().DaemonSets(next.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}
