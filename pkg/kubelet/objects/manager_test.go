// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

const testNode = "n1"

// cluster is an API server, and a Manager whose client has the permissions of a kubelet.
type cluster struct {
	t       *testing.T
	admin   kubernetes.Interface
	m       *Manager
	changes chan string
}

func start(t *testing.T) *cluster {
	t.Helper()
	api := testserver.Start(t, testserver.Options{})
	client, err := kubernetes.NewForConfig(api.UserConfig(t, "system:node:"+testNode, "system:nodes"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, admin: api.Client, changes: make(chan string, 100)}
	c.m = New(Config{Client: client, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	c.m.Subscribe(func(ref Ref, pods []*v1.Pod) {
		var names []string
		for _, p := range pods {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		c.changes <- fmt.Sprintf("%s %s %v", ref.Kind, ref.Name, names)
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.m.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// pod creates a pod on the node that refers to the ConfigMaps.
func (c *cluster) pod(name string, configMaps ...string) *v1.Pod {
	c.t.Helper()
	ctx := c.t.Context()
	if _, err := c.admin.CoreV1().ServiceAccounts("default").Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1.PodSpec{NodeName: testNode, ServiceAccountName: "default",
			Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
	for _, cm := range configMaps {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: cm, VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: cm}},
		}})
	}
	pod, err := c.admin.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	c.must(err)
	return pod
}

func (c *cluster) configMap(name, data string, immutable bool) {
	c.t.Helper()
	_, err := c.admin.CoreV1().ConfigMaps("default").Create(c.t.Context(), &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": data}, Immutable: &immutable,
	}, metav1.CreateOptions{})
	c.must(err)
}

func (c *cluster) expect(want string) {
	c.t.Helper()
	if got := <-c.changes; got != want {
		c.t.Fatalf("change %q, want %q", got, want)
	}
}

// value returns the value in a ConfigMap. It retries errors other than NotFound, because the Node
// authorizer may learn about the pod slightly later.
func (c *cluster) value(name string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	defer cancel()
	for {
		cm, err := c.m.ConfigMap(ctx, "default", name)
		switch {
		case apierrors.IsNotFound(err):
			return "not found"
		case err == nil:
			return cm.Data["k"]
		case ctx.Err() != nil:
			c.t.Fatal(err)
		}
	}
}

func TestWatch(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	c.configMap("cm", "1", false)
	pod := c.pod("p1", "cm", "later")
	c.m.RegisterPod(pod)
	if got := c.value("cm"); got != "1" {
		t.Fatalf("got %q", got)
	}
	if got := c.value("later"); got != "not found" {
		t.Fatalf("got %q", got)
	}
	second := c.pod("p2", "cm")
	c.m.RegisterPod(second)

	cm, err := c.admin.CoreV1().ConfigMaps("default").Get(ctx, "cm", metav1.GetOptions{})
	c.must(err)
	cm.Data["k"] = "2"
	_, err = c.admin.CoreV1().ConfigMaps("default").Update(ctx, cm, metav1.UpdateOptions{})
	c.must(err)
	c.expect("ConfigMap cm [p1 p2]")
	if got := c.value("cm"); got != "2" {
		t.Errorf("got %q", got)
	}

	c.m.UnregisterPod(pod)
	c.must(c.admin.CoreV1().ConfigMaps("default").Delete(ctx, "cm", metav1.DeleteOptions{}))
	c.expect("ConfigMap cm [p2]")
	if got := c.value("cm"); got != "not found" {
		t.Errorf("got %q", got)
	}
	c.configMap("cm", "3", true) // true makes the ConfigMap immutable
	c.expect("ConfigMap cm [p2]")
	if got := c.value("cm"); got != "3" {
		t.Errorf("got %q", got)
	}
	c.m.UnregisterPod(second)
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if len(c.m.items) != 0 || len(c.m.pods) != 0 {
		t.Errorf("left: %v %v", c.m.items, c.m.pods)
	}
}

// TestReplace checks that registering a new version of a pod drops the objects to which only the
// old version referred.
func TestReplace(t *testing.T) {
	m := New(Config{Client: fake.NewClientset(), Log: slog.New(slog.DiscardHandler), Clock: clock.Real()})
	pod := func(uid types.UID, secrets ...string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "ns"}}
		for _, s := range secrets {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: s})
		}
		return p
	}
	known := func() (out []string) {
		for ref := range m.items {
			out = append(out, ref.Name)
		}
		slices.Sort(out)
		return out
	}
	for i, step := range []struct {
		do   func()
		want []string
	}{
		{func() { m.RegisterPod(pod("1", "a", "b")) }, []string{"a", "b"}},
		{func() { m.RegisterPod(pod("2", "b", "c")) }, []string{"a", "b", "c"}},
		{func() { m.RegisterPod(pod("1", "b", "d")) }, []string{"b", "c", "d"}},
		{func() { m.UnregisterPod(pod("2")) }, []string{"b", "d"}},
		{func() { m.UnregisterPod(pod("3", "d")) }, []string{"b", "d"}},
		{func() { m.UnregisterPod(pod("1")) }, nil},
	} {
		if step.do(); !slices.Equal(known(), step.want) {
			t.Fatalf("step %d: %v, want %v", i, known(), step.want)
		}
	}
}

func TestToken(t *testing.T) {
	c := start(t)
	pod := c.pod("p1")
	get := func(audiences ...string) string {
		t.Helper()
		tr, err := c.m.ServiceAccountToken(t.Context(), pod, "default", audiences, time.Hour)
		if apierrors.IsForbidden(err) { // the authorizer does not have the pod yet
			return ""
		}
		c.must(err)
		return tr.Token
	}
	first := get()
	for first == "" {
		first = get()
	}
	if again := get(); again != first {
		t.Error("a token that is good was not kept")
	}
	if other := get("vault"); other == first {
		t.Error("audiences share a token")
	}
	c.m.UnregisterPod(pod)
	if again := get(); again == first {
		t.Error("a token outlived its pod's registration")
	}
	if _, err := c.m.ServiceAccountToken(t.Context(), pod, "absent", nil, time.Hour); err == nil {
		t.Error("token of a service account that is not the pod's")
	}
}

func TestRenewAt(t *testing.T) {
	end := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		life, jitter time.Duration
		before       time.Duration // time before the token's expiry
	}{
		"an hour":      {time.Hour, 0, 12 * time.Minute},
		"ten minutes":  {10 * time.Minute, 0, 2 * time.Minute},
		"jitter":       {time.Hour, 5 * time.Second, 12*time.Minute + 5*time.Second},
		"thirty hours": {30 * time.Hour, 0, 6 * time.Hour},
		"a week":       {7 * 24 * time.Hour, 0, 6 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if got := end.Sub(renewAt(end, c.life, c.jitter)); got != c.before {
				t.Errorf("renewed %v before its end, want %v", got, c.before)
			}
		})
	}
}
