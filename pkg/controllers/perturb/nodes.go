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

// Kubelet says what becomes of a pod some time after it was created or changed;
// again is when it has to be asked again, 0 never.
type Kubelet func(pod *v1.Pod, age time.Duration) (again time.Duration)

// nodes play the scheduler and the kubelets of all nodes.
type nodes struct {
	cell    *Cell
	kubelet Kubelet
}

// tick is how often they look.
const tick = 200 * time.Millisecond

// run plays until ctx ends. Pods are looked at together, at set times: what
// becomes of them does not depend on which came first.
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
		panic("perturb: handler of a new informer: " + err.Error()) // it has not stopped
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	for ctx.Err() == nil {
		list, err := pods.Lister().List(labels.Everything())
		if err != nil {
			panic("perturb: list of a cache: " + err.Error()) // it does not fail
		}
		var again time.Duration
		for _, pod := range list {
			if d := n.look(ctx, pod.DeepCopy()); d > 0 && (again == 0 || d < again) {
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

// look does what is to be done for a pod. What fails is tried when it changes.
func (n *nodes) look(ctx context.Context, pod *v1.Pod) time.Duration {
	pods := n.cell.Client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		zero := int64(0)
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	case pod.Spec.NodeName == "":
		binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: v1.ObjectReference{Kind: "Node", Name: nodeFor(pod)}}
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

// DefaultNode is where pods go that do not ask for a node.
const DefaultNode = "node-0"

// nodeFor is the node that the pod of a daemon asks for by name, or DefaultNode.
func nodeFor(pod *v1.Pod) string {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
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

// Running has every pod ready.
func Running(pod *v1.Pod, _ time.Duration) time.Duration {
	if pod.Status.Phase == v1.PodRunning {
		return 0
	}
	pod.Status.Phase = v1.PodRunning
	pod.Status.PodIP, pod.Status.PodIPs = "10.244.0.9", []v1.PodIP{{IP: "10.244.0.9"}}
	Ready(pod)
	return 0
}

// Ready makes a pod ready.
func Ready(pod *v1.Pod) {
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp}}
}

// Ending has every pod end after a while, with success.
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

// End ends a pod.
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
			Name: c.Name, Image: c.Image, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, FinishedAt: pod.CreationTimestamp}},
		})
	}
}
