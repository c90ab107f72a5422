// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/garbagecollector"
)

// bench is an API server with the controller and simulated kubelets that make pods ready.
type bench struct {
	*testing.T
	*testserver.Server
	mu   sync.Mutex
	sick map[string]bool // names of pods that stay pending
	log  []string        // creations (+name) and deletions (-name) of pods, in order
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, Server: testserver.Start(t, testserver.Options{}), sick: map[string]bool{}}
	controllertest.Account(t, b.Server)
	controllertest.RunAs(t, b.Server, "statefulset-controller", controller.Options{}, New)
	controllertest.Run(t, b.Server, controller.Options{}, garbagecollector.New)
	w, err := b.Client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			pod, ok := e.Object.(*v1.Pod)
			if !ok {
				return // the test has ended, or will fail because it times out
			}
			b.mu.Lock()
			switch e.Type {
			case watch.Added:
				b.log = append(b.log, "+"+pod.Name)
			case watch.Deleted:
				b.log = append(b.log, "-"+pod.Name)
			}
			b.mu.Unlock()
		}
	}()
	controllertest.Kubelets(t, b.Server, func(pod *v1.Pod) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.sick[pod.Name] {
			controllertest.Ready(pod)
		}
	})
	return b
}

// seen waits until there were n creations and deletions of pods, and returns them.
func (b *bench) seen(n int) []string {
	b.Helper()
	var out []string
	controllertest.Eventually(b.T, fmt.Sprintf("%d pods come or go", n), func(context.Context) (any, bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		out = slices.Clone(b.log)
		if len(out) < n {
			return out, false
		}
		b.log = nil
		return out, true
	})
	return out
}

func (b *bench) want(log ...string) {
	b.Helper()
	if got := b.seen(len(log)); !slices.Equal(got, log) {
		b.Fatalf("pods: %v, want %v", got, log)
	}
}

// status waits until ok returns true for the StatefulSet with the given name, and returns the set.
func (b *bench) status(name, what string, ok func(*appsv1.StatefulSet) bool) *appsv1.StatefulSet {
	b.Helper()
	var out *appsv1.StatefulSet
	controllertest.Eventually(b.T, what, func(ctx context.Context) (any, bool) {
		set, err := b.Client.AppsV1().StatefulSets("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err, false
		}
		out = set
		return set.Status, set.Status.ObservedGeneration == set.Generation && ok(set)
	})
	return out
}

func (b *bench) patch(name, patch string) {
	b.Helper()
	if _, err := b.Client.AppsV1().StatefulSets("default").Patch(b.Context(), name,
		types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) create(set *appsv1.StatefulSet) {
	b.Helper()
	if _, err := b.Client.AppsV1().StatefulSets("default").Create(b.Context(), set, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func sample(n int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "svc",
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "one"}}}},
	}}
}

func image(name string) string {
	return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, name)
}

func (b *bench) images() string {
	b.Helper()
	pods, err := b.Client.CoreV1().Pods("default").List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var out []string
	for i := range pods.Items {
		out = append(out, pods.Items[i].Spec.Containers[0].Image)
	}
	return strings.Join(out, " ") // the API server returns the pods sorted by name
}

func TestOrdered(t *testing.T) {
	b := newBench(t)
	b.sick["web-1"] = true
	b.create(sample(3))
	b.want("+web-0", "+web-1")
	b.status("web", "one ready, two there", func(s *appsv1.StatefulSet) bool {
		return s.Status.Replicas == 2 &&
			s.Status.ReadyReplicas == 1
	})
	pod, err := b.Client.CoreV1().Pods("default").Get(t.Context(), "web-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.Hostname != "web-1" || pod.Spec.Subdomain != "svc" ||
		pod.Labels[appsv1.StatefulSetPodNameLabel] != "web-1" || pod.Labels[appsv1.PodIndexLabel] != "1" {
		t.Errorf("identity: %v %v %v", pod.Spec.Hostname, pod.Spec.Subdomain, pod.Labels)
	}
	controllertest.Ready(pod)
	if _, err := b.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.want("+web-2")
	b.status("web", "three ready", func(s *appsv1.StatefulSet) bool {
		return s.Status.AvailableReplicas == 3 && s.Status.CurrentReplicas == 3 &&
			s.Status.CurrentRevision == s.Status.UpdateRevision
	})
	b.patch("web", `{"spec":{"replicas":1}}`)
	b.want("-web-2", "-web-1")
	b.status("web", "one left", func(s *appsv1.StatefulSet) bool { return s.Status.Replicas == 1 })

	failed, err := b.Client.CoreV1().Pods("default").Get(t.Context(), "web-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	failed.Status.Phase = v1.PodFailed
	if _, err := b.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), failed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.want("-web-0", "+web-0")
}

func TestRollingUpdate(t *testing.T) {
	b := newBench(t)
	b.create(sample(3))
	b.want("+web-0", "+web-1", "+web-2")
	before := b.status("web", "all ready", func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 3 })

	b.patch("web", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`)
	b.patch("web", image("two"))
	b.want("-web-2", "+web-2")
	during := b.status("web", "the one above the partition updated", func(s *appsv1.StatefulSet) bool {
		return s.Status.UpdatedReplicas == 1 && s.Status.ReadyReplicas == 3 && s.Status.CurrentReplicas == 2
	})
	if during.Status.CurrentRevision != before.Status.CurrentRevision ||
		during.Status.UpdateRevision == before.Status.UpdateRevision {
		t.Errorf("revisions: %+v", during.Status)
	}
	if got := b.images(); got != "one one two" {
		t.Errorf("images: %v", got)
	}
	if err := b.Client.CoreV1().Pods("default").Delete(t.Context(), "web-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.want("-web-0", "+web-0")
	if got := b.images(); got != "one one two" {
		t.Errorf("images: %v; below the partition a pod comes again as it was", got)
	}
	b.patch("web", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	b.want("-web-1", "+web-1", "-web-0", "+web-0")
	b.status("web", "update complete", func(s *appsv1.StatefulSet) bool {
		return s.Status.CurrentRevision == during.Status.UpdateRevision && s.Status.CurrentReplicas == 3
	})

	b.patch("web", image("one"))
	b.want("-web-2", "+web-2", "-web-1", "+web-1", "-web-0", "+web-0")
	b.status("web", "rolled back to the same revision",
		func(s *appsv1.StatefulSet) bool { return s.Status.CurrentRevision == before.Status.CurrentRevision })
	list, err := b.Client.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]int64{}
	for _, r := range list.Items {
		numbers[r.Name] = r.Revision
	}
	if len(numbers) != 2 || numbers[before.Status.CurrentRevision] != 3 || numbers[during.Status.UpdateRevision] != 2 {
		t.Errorf("revisions: %v", numbers)
	}
}

func TestClaims(t *testing.T) {
	b := newBench(t)
	set := sample(2)
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	set.Spec.VolumeClaimTemplates = []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		}}}
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenScaled: remove, WhenDeleted: remove}
	b.create(set)
	b.seen(2)
	b.claims("both claims are the set's", "data-web-0:StatefulSet data-web-1:StatefulSet")
	pod, err := b.Client.CoreV1().Pods("default").Get(t.Context(), "web-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v := pod.Spec.Volumes[0]; v.Name != "data" || v.PersistentVolumeClaim == nil ||
		v.PersistentVolumeClaim.ClaimName != "data-web-1" {
		t.Errorf("volume: %+v", v)
	}
	b.patch("web", `{"spec":{"replicas":1}}`)
	b.want("-web-1")
	b.claims("the claim of the pod that went is gone", "data-web-0:StatefulSet")
	b.patch("web", `{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Retain"}}}`)
	b.claims("the claim is to stay", "data-web-0:")
	b.patch("web", `{"spec":{"replicas":0}}`)
	b.want("-web-0")
	b.claims("the claim stays", "data-web-0:")
}

// claims waits until the claims have the owners in want, in the form "claim:kind of owner".
func (b *bench) claims(what, want string) {
	b.Helper()
	controllertest.Eventually(b.T, what, func(ctx context.Context) (any, bool) {
		list, err := b.Client.CoreV1().PersistentVolumeClaims("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err, false
		}
		var out []string
		for _, c := range list.Items {
			owner := ""
			for _, ref := range c.OwnerReferences {
				owner += ref.Kind
			}
			if c.DeletionTimestamp != nil && len(c.Finalizers) == 1 {
				// Remove the finalizer that protects claims, because the controller that does so
				// does not run here.
				_, err := b.Client.CoreV1().PersistentVolumeClaims("default").Patch(ctx, c.Name,
					types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				return err, false
			}
			out = append(out, c.Name+":"+owner)
		}
		got := strings.Join(out, " ")
		return got, got == want
	})
}

// TestAdoption checks that a StatefulSet adopts the pods and the revision of a deleted StatefulSet
// of the same name, and that it releases and replaces a pod that it no longer selects.
func TestAdoption(t *testing.T) {
	b := newBench(t)
	b.create(sample(2))
	b.want("+web-0", "+web-1")
	b.status("web", "all ready", func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 2 })
	orphan := metav1.DeletePropagationOrphan
	if err := b.Client.AppsV1().StatefulSets("default").Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the set is gone", func(ctx context.Context) (any, bool) {
		_, err := b.Client.AppsV1().StatefulSets("default").Get(ctx, "web", metav1.GetOptions{})
		return err, apierrors.IsNotFound(err)
	})
	b.create(sample(2))
	set := b.status("web", "the pods are its own",
		func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 2 && s.Status.CurrentReplicas == 2 })
	controllertest.Eventually(t, "the revision is its own", func(ctx context.Context) (any, bool) {
		revisions, err := b.Client.AppsV1().ControllerRevisions("default").List(ctx, metav1.ListOptions{})
		if err != nil || len(revisions.Items) != 1 {
			return revisions, false
		}
		owner := metav1.GetControllerOf(&revisions.Items[0])
		return owner, owner != nil && owner.UID == set.UID
	})
	if got := b.seen(0); len(got) != 0 {
		t.Errorf("pods came or went: %v", got)
	}
	pods := b.Client.CoreV1().Pods("default")
	if _, err := pods.Patch(t.Context(), "web-1", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the pod is nobody's", func(ctx context.Context) (any, bool) {
		pod, err := pods.Get(ctx, "web-1", metav1.GetOptions{})
		return pod, err == nil && metav1.GetControllerOf(pod) == nil
	})
	if err := pods.Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.want("-web-1", "+web-1")
}

// TestLateRevision checks that the update revision keeps the highest number if the cache shows another
// revision only after the sync of the StatefulSet, and that a deleted revision is created again.
func TestLateRevision(t *testing.T) {
	b := newBench(t)
	b.create(sample(1))
	set := b.status("web", "ready", func(s *appsv1.StatefulSet) bool {
		return s.Status.CurrentReplicas == 1 &&
			s.Status.AvailableReplicas == 1
	})
	revisions := b.Client.AppsV1().ControllerRevisions("default")
	update, err := revisions.Get(t.Context(), set.Status.UpdateRevision, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	late := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "web-late", OwnerReferences: update.OwnerReferences, Labels: update.Labels},
		Revision:   7,
	}
	late.Data.Raw = []byte(strings.Replace(string(update.Data.Raw), `"one"`, `"late"`, 1))
	if _, err := revisions.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the update revision has the highest number", func(ctx context.Context) (any, bool) {
		r, err := revisions.Get(ctx, update.Name, metav1.GetOptions{})
		return r, err == nil && r.Revision == 8
	})
	if err := revisions.Delete(t.Context(), update.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the update revision exists again", func(ctx context.Context) (any, bool) {
		r, err := revisions.Get(ctx, update.Name, metav1.GetOptions{})
		return err, err == nil && r.UID != update.UID
	})
}
