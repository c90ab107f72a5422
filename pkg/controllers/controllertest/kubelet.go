// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// Ready sets a pod's status to running and ready.
func Ready(pod *v1.Pod) {
	pod.Status.Phase = v1.PodRunning
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue,
		LastTransitionTime: pod.CreationTimestamp}}
}

// Kubelets simulates the kubelets of all nodes until the test ends. For each pending pod it calls
// report, which may change the pod's status, and writes the status if report changed the phase. It
// deletes terminating pods at once.
func Kubelets(t *testing.T, s *testserver.Server, report func(*v1.Pod)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(s.Client, 0)
	act := func(o any) {
		pod := o.(*v1.Pod).DeepCopy()
		pods := s.Client.CoreV1().Pods(pod.Namespace)
		switch {
		case pod.DeletionTimestamp != nil:
			zero := int64(0)
			_ = pods.Delete(ctx, pod.Name,
				metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		case pod.Status.Phase == v1.PodPending:
			if report(pod); pod.Status.Phase != v1.PodPending {
				// A Conflict error can be ignored: an event with the newer version of the pod
				// follows.
				_, _ = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			}
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: act, UpdateFunc: func(_, o any) { act(o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
}
