// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func inGang(name, size, cpus string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnGang: name, v1alpha1.AnnGangSize: size}
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpus)
	}
}

func mustBeUnbound(t *testing.T, c kubernetes.Interface, names ...string) {
	t.Helper()
	for _, name := range names {
		p, err := c.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || bound(p) {
			t.Fatalf("pod %s is on %q, want none; error %v", name, p.Spec.NodeName, err)
		}
	}
}

// TestGangFitsAsAWhole checks that no pod of a gang gets a node while one of them does not fit, and
// that other pods can use the room meanwhile.
func TestGangFitsAsAWhole(t *testing.T) {
	c := setup(t)
	addNode(t, c, "a", nil)
	addNode(t, c, "b", nil)
	var names []string
	for i := range 5 {
		names = append(names, fmt.Sprint("g", i))
		create(t, c, pod(names[i], inGang("g", "5", "1"))) // the nodes have four CPUs in all
	}
	for _, name := range names {
		await(t, c, name, "refused", refused("0/2 nodes are available: "))
	}
	mustBeUnbound(t, c, names...)
	create(t, c, pod("other", cpu("2")))
	await(t, c, "other", "bound", bound)
	addNode(t, c, "c", nil)
	addNode(t, c, "d", nil)
	if err := c.CoreV1().Pods("default").Delete(t.Context(), "other",
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		await(t, c, name, "bound", bound)
	}
}

// TestGangWaitsForItsPods checks that a gang is not tried before all its pods exist. A pod of the
// gang that is created after the gang was bound is placed on its own.
func TestGangWaitsForItsPods(t *testing.T) {
	c := setup(t)
	addNode(t, c, "a", nil)
	create(t, c, pod("g0", inGang("g", "3", "100m")))
	create(t, c, pod("g1", inGang("g", "3", "100m")))
	create(t, c, pod("after", nil)) // when this pod is bound, the earlier pods have been tried
	await(t, c, "after", "bound", bound)
	mustBeUnbound(t, c, "g0", "g1")
	create(t, c, pod("g2", inGang("g", "3", "100m")))
	for i := range 3 {
		await(t, c, fmt.Sprint("g", i), "bound", bound)
	}
	create(t, c, pod("g3", inGang("g", "3", "100m")))
	await(t, c, "g3", "bound", bound)
	create(t, c, pod("bad", inGang("h", "many", "100m")))
	const want = "0/1 nodes are available: the annotation scheduling.keelson.dev/gang-size is not a number from 1 to 8192."
	await(t, c, "bad", want, refused(want))
	p, err := c.CoreV1().Pods("default").Get(t.Context(), "bad", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations[v1alpha1.AnnGangSize] = "1"
	if _, err := c.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, c, "bad", "bound", bound)
}

// TestGangWithDevices checks that devices are allocated to all pods of a gang or to none.
func TestGangWithDevices(t *testing.T) {
	c := withDevices(t) // there are three devices
	addClaim(t, c, "extra", exactly("any", 1))
	create(t, c, pod("extra", uses("extra")))
	await(t, c, "extra", "bound", bound)
	for i := range 3 {
		name := fmt.Sprint("g", i)
		addClaim(t, c, name, exactly("any", 1))
		create(t, c, pod(name, func(p *v1.Pod) {
			inGang("g", "3", "100m")(p)
			uses(name)(p)
		}))
	}
	for i := range 3 {
		await(t, c, fmt.Sprint("g", i), "refused", refused("0/2 nodes are available: "))
	}
	mustBeUnbound(t, c, "g0", "g1", "g2")
	for i := range 3 {
		if claim := getClaim(t, c, fmt.Sprint("g", i)); claim.Status.Allocation != nil {
			t.Errorf("claim %d has devices", i)
		}
	}
	extra := getClaim(t, c, "extra")
	extra.Status.Allocation, extra.Status.ReservedFor = nil, nil
	if _, err := c.ResourceV1().ResourceClaims("default").UpdateStatus(t.Context(), extra,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		await(t, c, fmt.Sprint("g", i), "bound", bound)
	}
}

// TestGangPreempts checks that a gang evicts as few pods of lower priority as it needs, and evicts
// no pod if the gang would not fit even then.
func TestGangPreempts(t *testing.T) {
	c := setup(t)
	addNode(t, c, "a", nil)
	addNode(t, c, "b", nil)
	if _, err := c.SchedulingV1().PriorityClasses().Create(t.Context(),
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 { // there are two nodes with two CPUs each
		name := fmt.Sprint("low", i)
		create(t, c, pod(name, func(p *v1.Pod) {
			cpu("1")(p)
			p.Labels = map[string]string{"low": ""}
		}))
		await(t, c, name, "bound", bound)
	}
	gang := func(name, size string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			inGang(name, size, "1")(p)
			p.Spec.PriorityClassName = "high"
		}
	}
	for i := range 5 {
		create(t, c, pod(fmt.Sprint("large", i), gang("large", "5")))
	}
	for i := range 5 {
		name := fmt.Sprint("large", i)
		await(t, c, name, "refused", refused("0/2 nodes are available: "))
		end(t, c, name)
	}
	if lows := ending(t, c, 0); len(lows) > 0 {
		t.Fatalf("%v are evicted for a gang that does not fit", lows)
	}
	for i := range 3 {
		create(t, c, pod(fmt.Sprint("g", i), gang("g", "3")))
	}
	for i := range 3 {
		await(t, c, fmt.Sprint("g", i), "nominated", func(p *v1.Pod) bool { return p.Status.NominatedNodeName != "" })
	}
	for _, name := range ending(t, c, 3) {
		mustBeUnbound(t, c, "g0", "g1", "g2")
		end(t, c, name)
	}
	for i := range 3 {
		await(t, c, fmt.Sprint("g", i), "bound", bound)
	}
	if lows := ending(t, c, 0); len(lows) > 0 {
		t.Errorf("%v are evicted although the gang has enough room", lows)
	}
}

// end deletes a pod without a grace period, as its kubelet does when the containers have stopped.
func end(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	if err := c.CoreV1().Pods("default").Delete(t.Context(), name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
}

// ending waits until at least some pods with low priority are terminating, and returns the names of
// all such pods.
func ending(t *testing.T, c kubernetes.Interface, some int) []string {
	t.Helper()
	found := map[string]bool{}
	lows, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "low"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range lows.Items {
		if lows.Items[i].DeletionTimestamp != nil {
			found[lows.Items[i].Name] = true
		}
	}
	w, err := c.CoreV1().Pods("default").Watch(t.Context(),
		metav1.ListOptions{LabelSelector: "low", ResourceVersion: lows.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for len(found) < some {
		e, open := <-w.ResultChan()
		if !open {
			t.Fatal("watch ended")
		}
		if p, ok := e.Object.(*v1.Pod); ok && p.DeletionTimestamp != nil {
			found[p.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// BenchmarkGang places gangs of 5,000 pods on 5,000 nodes. It measures the time from the creation
// of the last pod until the watch shows all pods bound.
func BenchmarkGang(b *testing.B) {
	const pods = 5000
	c := testserver.Start(b, testserver.Options{Etcd: embedded.Start}).Client
	addAccount(b, c)
	createAll(b, pods, func(i int) error {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n, err := c.CoreV1().Nodes().Create(b.Context(), n, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = nil
		if n, err = c.CoreV1().Nodes().Update(b.Context(), n, metav1.UpdateOptions{}); err != nil {
			return err
		}
		n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("32"),
			v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("110")}
		n.Status.Capacity = n.Status.Allocatable
		_, err = c.CoreV1().Nodes().UpdateStatus(b.Context(), n, metav1.UpdateOptions{})
		return err
	})
	follow(b, c)
	round := 0
	for b.Loop() {
		b.StopTimer()
		round++
		w, err := c.CoreV1().Pods("default").Watch(b.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
		if err != nil {
			b.Fatal(err)
		}
		add := func(i int) error {
			p := pod(fmt.Sprintf("r%d-%d", round, i), inGang(fmt.Sprint("g", round), fmt.Sprint(pods), "100m"))
			_, err := c.CoreV1().Pods("default").Create(b.Context(), p, metav1.CreateOptions{})
			return err
		}
		createAll(b, pods-1, add)
		b.StartTimer()
		if err := add(pods - 1); err != nil {
			b.Fatal(err)
		}
		seen := map[string]bool{}
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*v1.Pod); ok && p.Annotations[v1alpha1.AnnGang] == fmt.Sprint("g", round) {
				if seen[p.Name] = true; len(seen) == pods {
					break
				}
			}
		}
		w.Stop()
	}
}

// createAll creates n objects, several at the same time.
func createAll(tb testing.TB, n int, create func(int) error) {
	tb.Helper()
	var g errgroup.Group
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error { return create(i) })
	}
	if err := g.Wait(); err != nil {
		tb.Fatal(err)
	}
}
