// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// bench is an API server with the controller and simulated kubelets. The kubelets make pods ready
// even if they are not bound to a node.
type bench struct {
	*testing.T
	*testserver.Server
}

func newBench(t *testing.T, nodes ...string) *bench {
	b := &bench{t, testserver.Start(t, testserver.Options{})}
	for _, name := range nodes {
		b.addNode(name)
	}
	controllertest.Account(t, b.Server)
	controllertest.RunAs(t, b.Server, "daemon-set-controller", controller.Options{}, New)
	controllertest.Kubelets(t, b.Server, func(pod *v1.Pod) {
		if pod.Spec.Containers[0].Image != "sick" {
			controllertest.Ready(pod)
		}
	})
	return b
}

func (b *bench) addNode(name string) {
	b.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	if _, err := b.Client.CoreV1().Nodes().Create(b.Context(), node, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	// Remove the taint node.kubernetes.io/not-ready, which every new node has.
	b.node(name, `{"spec":{"taints":null}}`)
}

func sample() *appsv1.DaemonSet {
	l := map[string]string{"app": "d"}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: l},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "one"}}}},
	}}
}

func (b *bench) create(set *appsv1.DaemonSet) {
	b.Helper()
	if _, err := b.Client.AppsV1().DaemonSets("default").Create(b.Context(), set, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) image(name string) {
	b.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, name)
	if _, err := b.Client.AppsV1().DaemonSets("default").Patch(b.Context(), "d", types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) node(name, patch string) {
	b.Helper()
	if _, err := b.Client.CoreV1().Nodes().Patch(b.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
}

// runs waits until exactly the pods in want are running, which it lists as node:image, and until ok
// returns true for the DaemonSet's status.
func (b *bench) runs(what, want string, ok func(appsv1.DaemonSetStatus) bool) {
	b.Helper()
	controllertest.Eventually(b.T, what, func(ctx context.Context) (any, bool) {
		pods, err := b.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err, false
		}
		set, err := b.Client.AppsV1().DaemonSets("default").Get(ctx, "d", metav1.GetOptions{})
		if err != nil {
			return err, false
		}
		var out []string
		for i := range pods.Items {
			out = append(out, target(&pods.Items[i])+":"+pods.Items[i].Spec.Containers[0].Image)
		}
		slices.Sort(out)
		got := strings.Join(out, " ")
		return fmt.Sprintf("%s; %+v", got, set.Status), got == want &&
			set.Status.ObservedGeneration == set.Generation && ok(set.Status)
	})
}

func (b *bench) uids() map[types.UID]bool {
	b.Helper()
	pods, err := b.Client.CoreV1().Pods("default").List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	out := map[types.UID]bool{}
	for i := range pods.Items {
		out[pods.Items[i].UID] = true
	}
	return out
}

func all(n int32) func(appsv1.DaemonSetStatus) bool {
	return func(s appsv1.DaemonSetStatus) bool {
		return s.DesiredNumberScheduled == n && s.CurrentNumberScheduled == n &&
			s.UpdatedNumberScheduled == n && s.NumberAvailable == n &&
			s.NumberReady == n && s.NumberUnavailable == 0 && s.NumberMisscheduled == 0
	}
}

func TestPlaces(t *testing.T) {
	b := newBench(t, "n1", "n2")
	b.create(sample())
	b.runs("one on each node", "n1:one n2:one", all(2))
	b.addNode("n3")
	b.runs("one on the new node", "n1:one n2:one n3:one", all(3))
	if err := b.Client.CoreV1().Nodes().Delete(t.Context(), "n3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.runs("what waits for a node that is gone goes", "n1:one n2:one", all(2))
	b.node("n1", `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`)
	b.runs("what is there stays", "n1:one n2:one", func(s appsv1.DaemonSetStatus) bool {
		return s.DesiredNumberScheduled == 1 && s.NumberMisscheduled == 1
	})
	b.node("n1", `{"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`)
	b.runs("it is driven off", "n2:one", all(1))
	b.node("n1", `{"spec":{"taints":null}}`)
	b.runs("it is back", "n1:one n2:one", all(2))
	if _, err := b.Client.AppsV1().DaemonSets("default").Patch(t.Context(), "d", types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"nodeSelector":{"name":"n2"}}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	b.runs("only on the one that is selected", "n2:one", all(1))

	pods, err := b.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &pods.Items[0]
	pod.Status.Phase = v1.PodFailed
	if _, err := b.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "a failed pod is replaced", func(ctx context.Context) (any, bool) {
		pods, err := b.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return pods, err == nil && len(pods.Items) == 1 && pods.Items[0].UID != pod.UID
	})
}

func TestRollingUpdate(t *testing.T) {
	b := newBench(t, "n1", "n2", "n3")
	b.create(sample())
	b.runs("one on each node", "n1:one n2:one n3:one", all(3))
	b.image("sick")
	b.runs("one unavailable, no more", "n1:sick n2:one n3:one", func(s appsv1.DaemonSetStatus) bool {
		return s.UpdatedNumberScheduled == 1 && s.NumberUnavailable == 1
	})
	before := b.uids()
	b.image("one")
	b.runs("back", "n1:one n2:one n3:one", all(3))
	kept := 0
	for uid := range b.uids() {
		if before[uid] {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%d pods were there before, want the 2 that were not updated yet", kept)
	}
	b.image("two")
	b.runs("another one", "n1:two n2:two n3:two", all(3))
	revisions, err := b.Client.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	newest := revisions.Items[0]
	for _, r := range revisions.Items {
		if r.Revision > newest.Revision {
			newest = r
		}
	}
	if len(revisions.Items) != 3 || newest.Revision != 4 || !strings.Contains(string(newest.Data.Raw), `"image":"two"`) {
		t.Errorf("%d revisions, the newest is %d: %s", len(revisions.Items), newest.Revision, newest.Data.Raw)
	}
}

func TestSurge(t *testing.T) {
	b := newBench(t, "n1", "n2")
	set := sample()
	one, zero := intstr.FromInt32(1), intstr.FromInt32(0)
	set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &one, MaxUnavailable: &zero},
	}
	b.create(set)
	b.runs("one on each node", "n1:one n2:one", all(2))
	b.image("sick")
	b.runs("a new one beside the old one", "n1:one n1:sick n2:one", func(s appsv1.DaemonSetStatus) bool {
		return s.CurrentNumberScheduled == 2
	})
	b.image("two")
	b.runs("updated", "n1:two n2:two", all(2))
}

// TestRevisions checks that the controller keeps only one of two revisions of the same template,
// and that the pod keeps running.
func TestRevisions(t *testing.T) {
	b := newBench(t, "n1")
	b.create(sample())
	b.runs("one", "n1:one", all(1))
	before := b.uids()
	revisions := b.Client.AppsV1().ControllerRevisions("default")
	list, err := revisions.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(len(list.Items), err)
	}
	twin := list.Items[0].DeepCopy()
	// This revision has no owner, so the controller adopts it.
	twin.ObjectMeta = metav1.ObjectMeta{Name: "twin", Labels: map[string]string{"app": "d", hashLabel: "twin"}}
	twin.Revision = 5
	if _, err := revisions.Create(t.Context(), twin, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the newer one is adopted, the other one is deleted, and the pod gets the label",
		func(ctx context.Context) (any, bool) {
			list, err := revisions.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err, false
			}
			pods, err := b.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: hashLabel + "=twin"})
			return list, err == nil && len(list.Items) == 1 && list.Items[0].Name == "twin" &&
				metav1.GetControllerOf(&list.Items[0]) != nil && len(pods.Items) == 1
		})
	b.runs("as before", "n1:one", all(1))
	for uid := range b.uids() {
		if !before[uid] {
			t.Error("the pod was replaced")
		}
	}
	b.image("two")
	b.runs("goes on", "n1:two", all(1))
	if list, err = revisions.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 ||
		list.Items[0].Revision+list.Items[1].Revision != 11 {
		t.Errorf("revisions: %+v, %v", list, err)
	}
	for uid := range b.uids() {
		if before[uid] {
			t.Error("the pod was not replaced")
		}
	}
}

// TestLateRevision checks that the revision of the present template keeps the highest number if the cache
// shows another revision only after the sync of the DaemonSet.
func TestLateRevision(t *testing.T) {
	b := newBench(t, "n1")
	b.create(sample())
	b.runs("one on the node", "n1:one", all(1))
	revisions := b.Client.AppsV1().ControllerRevisions("default")
	list, err := revisions.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	present := list.Items[0]
	late := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "d-late", OwnerReferences: present.OwnerReferences,
			Labels: map[string]string{"app": "d", hashLabel: "late"}},
		Revision: 7,
	}
	late.Data.Raw = []byte(strings.Replace(string(present.Data.Raw), `"one"`, `"late"`, 1))
	if _, err := revisions.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the present template has the highest number", func(ctx context.Context) (any, bool) {
		r, err := revisions.Get(ctx, present.Name, metav1.GetOptions{})
		return r, err == nil && r.Revision == 8
	})
}
