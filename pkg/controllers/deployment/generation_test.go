// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// rollout is a Deployment for tests of single syncs: its controller syncs only when the test calls
// sync. The test fills the caches, and sets in each ReplicaSet's status how many pods it has.
type rollout struct {
	*testing.T
	s         *testserver.Server
	c         *Controller
	clock     *clocktesting.FakeClock
	informers informers.SharedInformerFactory
	name      string
}

func newRollout(t *testing.T, s *testserver.Server, name string, strategy appsv1.DeploymentStrategyType) *rollout {
	t.Helper()
	r := &rollout{T: t, s: s, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)), name: name}
	r.informers = controller.NewInformers(s.Client, 0)
	made, err := New(controller.Deps{
		Client: s.Client, Informers: r.informers, Events: &record.FakeRecorder{}, Clock: r.clock,
		Log: slog.New(slog.DiscardHandler), Options: controller.Options{Workers: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.c = made.(*Controller)
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), ProgressDeadlineSeconds: ptr.To[int32](600),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Strategy: appsv1.DeploymentStrategy{Type: strategy},
		Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "one"}}},
		},
	}}
	if _, err := s.Client.AppsV1().Deployments(metav1.NamespaceDefault).Create(t.Context(), d,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// sync fills the caches from the API server and syncs the Deployment, again and again until nothing
// changes.
func (r *rollout) sync() *appsv1.Deployment {
	r.Helper()
	for {
		before := r.get()
		if err := r.informers.Apps().V1().Deployments().Informer().GetIndexer().Update(before); err != nil {
			r.Fatal(err)
		}
		for _, set := range r.sets() {
			if err := r.c.setCache.GetIndexer().Update(&set); err != nil {
				r.Fatal(err)
			}
			r.c.setChanged(nil, &set)
		}
		sets, err := json.Marshal(r.sets())
		if err != nil {
			r.Fatal(err)
		}
		_ = r.c.sync(r.Context(), controller.Key(before)) // ignore the error, because the status shows it
		r.honest()
		after, err := json.Marshal(r.sets())
		if err != nil {
			r.Fatal(err)
		}
		if d := r.get(); d.ResourceVersion == before.ResourceVersion && string(sets) == string(after) {
			return d
		}
	}
}

func (r *rollout) get() *appsv1.Deployment {
	r.Helper()
	d, err := r.s.Client.AppsV1().Deployments(metav1.NamespaceDefault).Get(r.Context(), r.name, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return d
}

func (r *rollout) sets() []appsv1.ReplicaSet {
	r.Helper()
	list, err := r.s.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault).List(r.Context(),
		metav1.ListOptions{LabelSelector: "app=" + r.name})
	if err != nil {
		r.Fatal(err)
	}
	return list.Items
}

// honest fails the test if status.observedGeneration is the present generation but the Progressing
// condition names the ReplicaSet of another template.
func (r *rollout) honest() {
	r.Helper()
	d := r.get()
	c := conditionOf(&d.Status, appsv1.DeploymentProgressing)
	if d.Status.ObservedGeneration != d.Generation || c == nil {
		return
	}
	for _, set := range r.sets() {
		if strings.Contains(c.Message, set.Name) && !sameTemplate(d, &set) {
			r.Errorf("generation %d is observed with the condition of another template: %s, %s", d.Generation,
				c.Reason, c.Message)
		}
	}
}

// pods sets the number of pods in the status of each ReplicaSet to its spec.replicas. The pods of a
// ReplicaSet are ready and available if its image is in ready.
func (r *rollout) pods(ready ...string) {
	r.Helper()
	for _, set := range r.sets() {
		set.Status = appsv1.ReplicaSetStatus{Replicas: *set.Spec.Replicas, ObservedGeneration: set.Generation}
		for _, image := range ready {
			if set.Spec.Template.Spec.Containers[0].Image == image {
				set.Status.ReadyReplicas, set.Status.AvailableReplicas = *set.Spec.Replicas, *set.Spec.Replicas
			}
		}
		if _, err := r.s.Client.AppsV1().ReplicaSets(metav1.NamespaceDefault).UpdateStatus(r.Context(), &set,
			metav1.UpdateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
}

// roll calls sync and pods in turn until nothing changes.
func (r *rollout) roll(ready ...string) *appsv1.Deployment {
	r.Helper()
	for {
		before := r.sync()
		r.pods(ready...)
		if d := r.sync(); d.ResourceVersion == before.ResourceVersion {
			return d
		}
	}
}

func (r *rollout) patch(spec string) {
	r.Helper()
	body := []byte(`{"spec":` + spec + `}`)
	if _, err := r.s.Client.AppsV1().Deployments(metav1.NamespaceDefault).Patch(r.Context(), r.name,
		types.StrategicMergePatchType, body, metav1.PatchOptions{}); err != nil {
		r.Fatal(err)
	}
}

func image(name string) string {
	return `"template":{"spec":{"containers":[{"name":"c","image":"` + name + `"}]}}`
}

// want fails the test unless the Progressing condition has the given reason and the status shows
// the present generation.
func (r *rollout) want(what string, d *appsv1.Deployment, reason string) {
	r.Helper()
	c := conditionOf(&d.Status, appsv1.DeploymentProgressing)
	if c == nil || c.Reason != reason || d.Status.ObservedGeneration != d.Generation {
		r.Errorf("%s: generation %d, observed %d: %+v, want %s", what, d.Generation, d.Status.ObservedGeneration, c, reason)
	}
}

// TestConditionOfGeneration checks that a status with the present generation never has a
// Progressing condition of an earlier template. Each case makes different changes after a rollout
// that timed out.
func TestConditionOfGeneration(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	type change struct{ spec, reason string }
	for name, tc := range map[string]struct {
		strategy appsv1.DeploymentStrategyType
		changes  []change
	}{
		"rolled back":                 {"", []change{{`{` + image("one") + `}`, reasonUpdated}}},
		"another template":            {"", []change{{`{` + image("three") + `}`, reasonNewSet}}},
		"scaled":                      {"", []change{{`{"replicas":3}`, reasonTimedOut}}},
		"other deadline":              {"", []change{{`{"progressDeadlineSeconds":700}`, reasonTimedOut}}},
		"scaled and rolled back":      {"", []change{{`{"replicas":3,` + image("one") + `}`, reasonUpdated}}},
		"scaled and another template": {"", []change{{`{"replicas":3,` + image("three") + `}`, reasonNewSet}}},
		"paused": {"",
			[]change{{`{"paused":true}`, reasonTimedOut}, {`{"paused":false}`, reasonTimedOut}}},
		"paused and another template": {"", []change{{`{"paused":true,` + image("three") + `}`, reasonPaused},
			{`{"paused":false}`, reasonNewSet}}},
		"paused and rolled back": {"", []change{{`{"paused":true,` + image("one") + `}`, reasonPaused},
			{`{"paused":false}`, reasonResumed}}},
		"paused, then rolled back": {"",
			[]change{{`{"paused":true}`, reasonTimedOut}, {`{` + image("one") + `}`, reasonPaused}}},
		"rolled back twice": {"",
			[]change{{`{` + image("one") + `}`, reasonUpdated}, {`{` + image("two") + `}`, reasonFound}}},
		"recreate, rolled back": {appsv1.RecreateDeploymentStrategyType,
			[]change{{`{` + image("one") + `}`, reasonFound}}},
		"recreate, another template": {appsv1.RecreateDeploymentStrategyType,
			[]change{{`{` + image("three") + `}`, reasonUpdated}}},
		"recreate, two more templates": {appsv1.RecreateDeploymentStrategyType,
			[]change{{`{` + image("three") + `}`, reasonUpdated}, {`{` + image("four") + `}`, reasonUpdated}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(t, s, strings.NewReplacer(" ", "-", ",", "").Replace(name), tc.strategy)
			r.want("first rollout", r.roll("one"), reasonComplete)
			r.patch(`{` + image("two") + `}`)
			r.roll("one")
			r.clock.Step(601 * time.Second)
			r.want("second rollout", r.sync(), reasonTimedOut)
			for _, c := range tc.changes {
				r.patch(c.spec)
				r.want(c.spec, r.sync(), c.reason)
				if c.reason == reasonUpdated && tc.strategy == appsv1.RecreateDeploymentStrategyType {
					// There is no new ReplicaSet yet. The progress deadline applies nevertheless.
					r.clock.Step(601 * time.Second)
					r.want(c.spec+" and time passes", r.sync(), reasonTimedOut)
				}
			}
			last := r.get()
			if last.Spec.Paused {
				return
			}
			r.roll("one") // only pods with the image "one" become ready
			r.clock.Step(2000 * time.Second)
			want := reasonTimedOut
			if last.Spec.Template.Spec.Containers[0].Image == "one" {
				want = reasonComplete
			}
			r.want("in the end", r.sync(), want)
		})
	}
}

// TestConditionOfRollback checks that during a rollback after a complete rollout the Progressing
// condition does not report that the rollout is complete.
func TestConditionOfRollback(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	r := newRollout(t, s, "web", "")
	r.want("first rollout", r.roll("one"), reasonComplete)
	r.patch(`{` + image("two") + `}`)
	r.want("second rollout", r.roll("one", "two"), reasonComplete)
	r.patch(`{` + image("one") + `}`)
	r.want("back", r.sync(), reasonFound)
	r.want("back, completed", r.roll("one", "two"), reasonComplete)
	// If pods are lost after a complete rollout, the condition does not change.
	r.pods()
	r.want("pods are lost", r.sync(), reasonComplete)
}
