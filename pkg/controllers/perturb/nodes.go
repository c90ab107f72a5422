// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// Kubelet simulates a kubelet: it sets the status of a pod of the given age. It is called when a
// pod was created or changed, and again after the duration that it returns, unless that is 0.
type Kubelet func(pod *v1.Pod, age time.Duration) (again time.Duration)

// nodes simulates the scheduler and the kubelets of all nodes.
type nodes struct {
	cell    *Cell
	kubelet Kubelet
}

// tick is the interval at which the simulated nodes handle changes.
const tick = 200 * time.Millisecond

// run runs the simulation until ctx ends. It handles all pods together at fixed intervals, so that
// the result does not depend on the order in which pods were created.
func (n *nodes) run(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(n.cell.Client, 0)
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	pods := factory.Core().V1().Pods()
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() }, UpdateFunc: func(any, any) { wake() }, DeleteFunc: func(any) { wake() },
	})
	if err != nil {
		panic("perturb: handler of a new informer: " + err.Error()) // cannot happen: the informer has not stopped
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	for ctx.Err() == nil {
		list, err := pods.Lister().List(labels.Everything())
		if err != nil {
			panic("perturb: list of a cache: " + err.Error()) // cannot happen: List of a cache returns no error
		}
		var again time.Duration
		for _, pod := range list {
			if d := n.handle(ctx, pod.DeepCopy()); d > 0 && (again == 0 || d < again) {
				again = d
			}
		}
		var timer <-chan time.Time
		if again > 0 {
			timer = n.cell.clock.After(again)
		}
		select {
		case <-ctx.Done():
		case <-timer:
		case <-changed:
			select {
			case <-ctx.Done():
			case <-n.cell.clock.After(tick):
			}
		}
	}
}

// handle binds a pod, updates its status, or deletes it. It returns the time until it must be
// called again, or 0. If a write fails, handle retries it when the pod changes.
func (n *nodes) handle(ctx context.Context, pod *v1.Pod) time.Duration {
	pods := n.cell.Client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		zero := int64(0)
		_ = pods.Delete(ctx, pod.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	case pod.Spec.NodeName == "":
		binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
			Target: v1.ObjectReference{Kind: "Node", Name: nodeFor(pod)}}
		_ = pods.Bind(ctx, binding, metav1.CreateOptions{})
	case pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed:
		before := pod.DeepCopy()
		again := n.kubelet(pod, n.cell.clock.Since(pod.CreationTimestamp.Time))
		if before.Status.Phase != pod.Status.Phase || len(before.Status.Conditions) != len(pod.Status.Conditions) {
			_, _ = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		}
		return again
	}
	return 0
}

// DefaultNode is the node of pods that have no node affinity for a node's name.
const DefaultNode = "node-0"

// nodeFor returns the node that a pod's node affinity names, as that of daemon pods does, or
// DefaultNode.
func nodeFor(pod *v1.Pod) string {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
					return f.Values[0]
				}
			}
		}
	}
	return DefaultNode
}

// Running is a Kubelet that makes every pod running and ready at once.
func Running(pod *v1.Pod, _ time.Duration) time.Duration {
	if pod.Status.Phase == v1.PodRunning {
		return 0
	}
	pod.Status.Phase = v1.PodRunning
	pod.Status.PodIP, pod.Status.PodIPs = "10.244.0.9", []v1.PodIP{{IP: "10.244.0.9"}}
	Ready(pod)
	return 0
}

// Ready sets a pod's Ready condition to True.
func Ready(pod *v1.Pod) {
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue,
		LastTransitionTime: pod.CreationTimestamp}}
}

// Ending returns a Kubelet that makes every pod succeed when it has the given age.
func Ending(after time.Duration) Kubelet {
	return func(pod *v1.Pod, age time.Duration) time.Duration {
		if age < after {
			Running(pod, age)
			return after - age
		}
		End(pod, v1.PodSucceeded)
		return 0
	}
}

// End sets a pod's status to phase, which is Succeeded or Failed.
func End(pod *v1.Pod, phase v1.PodPhase) {
	pod.Status.Phase = phase
	code := int32(0)
	if phase == v1.PodFailed {
		code = 1
	}
	pod.Status.Conditions = nil
	pod.Status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{
			Name: c.Name, Image: c.Image,
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code,
				FinishedAt: pod.CreationTimestamp}},
		})
	}
}
