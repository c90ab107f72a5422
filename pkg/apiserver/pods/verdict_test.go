// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func postVerdicts(t *testing.T, c kubernetes.Interface, batch v1alpha1.VerdictBatch) (v1alpha1.VerdictBatch, error) {
	t.Helper()
	body, err := json.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.CoreV1().RESTClient().Post().AbsPath(v1alpha1.VerdictPath).SetHeader("Content-Type",
		"application/json").Body(body).DoRaw(t.Context())
	var result v1alpha1.VerdictBatch
	if err == nil {
		err = json.Unmarshal(answer, &result)
	}
	return result, err
}

// TestVerdicts checks that verdicts change the status of their pods, and that victims are deleted
// and get a condition with the reason. If the pod of a verdict does not exist, its victims are not
// deleted.
func TestVerdicts(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	ctx := t.Context()
	if _, err := c.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ref := map[string]v1alpha1.PodRef{"absent": {Namespace: "default", Name: "absent"}}
	for _, name := range []string{"waits", "victim", "spared", "told", "bound"} {
		pod, err := c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			// With a finalizer, the pod can still be read after it has been deleted.
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/hold"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ref[name] = v1alpha1.PodRef{Namespace: "default", Name: name, UID: pod.UID}
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "bound"},
		Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if err := c.CoreV1().Pods("default").Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	other := ref["spared"]
	other.UID = "not-it"
	result, err := postVerdicts(t, c,
		v1alpha1.VerdictBatch{ReportingController: "test", ReportingInstance: "test-1", Verdicts: []v1alpha1.Verdict{
			{PodRef: ref["waits"], Reason: "Unschedulable", Message: "no room", Generation: 1, NominatedNode: "n1",
				Event: true, Victims: []v1alpha1.PodRef{ref["victim"], other}},
			{PodRef: ref["absent"], Reason: "Unschedulable", Message: "no room", NominatedNode: "n1",
				Victims: []v1alpha1.PodRef{ref["spared"]}},
			{PodRef: ref["told"], NominatedNode: "n2"},
			{PodRef: ref["bound"], Reason: "Unschedulable", Message: "no room", Generation: 1, NominatedNode: "n2"},
		}})
	if err != nil {
		t.Fatal(err)
	}
	var codes []int32
	for _, r := range result.Results {
		codes = append(codes, r.Code)
		for _, v := range r.Victims {
			codes = append(codes, v.Code)
		}
	}
	if want := []int32{http.StatusOK, http.StatusOK, http.StatusConflict, http.StatusNotFound,
		http.StatusNotFound, http.StatusOK, http.StatusOK}; !slices.Equal(codes, want) {
		t.Errorf("codes %v, want %v", codes, want)
	}
	get := func(name string) *corev1.Pod {
		p, err := c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := get("waits"); p.Status.NominatedNodeName != "n1" ||
		!has(p, corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "no room") {
		t.Errorf("status of the pod: %+v", p.Status)
	}
	if p := get("victim"); p.DeletionTimestamp == nil ||
		!has(p, corev1.DisruptionTarget, corev1.ConditionTrue, "PreemptionByScheduler",
			"test: preempting to accommodate a higher priority pod") {
		t.Errorf("victim: deleted %v, status %+v", p.DeletionTimestamp, p.Status)
	}
	if p := get("spared"); p.DeletionTimestamp != nil || len(p.Status.Conditions) != 0 {
		t.Errorf("spared: deleted %v, status %+v", p.DeletionTimestamp, p.Status)
	}
	if p := get("told"); p.Status.NominatedNodeName != "n2" || len(p.Status.Conditions) != 0 {
		t.Errorf("told: %+v", p.Status)
	}
	if s := get("bound").Status; s.NominatedNodeName != "" || len(s.Conditions) != 1 ||
		s.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("bound before the verdict arrived: %+v", s)
	}
	events, err := c.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, e := range events.Items {
		said = append(said, e.Regarding.Name+" "+e.Type+" "+e.Reason+" "+e.Action+" "+e.Note)
	}
	slices.Sort(said)
	want := []string{
		"victim Normal Preempted Preempting Preempted by pod " + string(ref["waits"].UID) + " on node n1",
		"waits Warning FailedScheduling Scheduling no room",
	}
	if !slices.Equal(said, want) {
		t.Errorf("events %q, want %q", said, want)
	}
}

func has(p *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == status && c.Reason == reason && c.Message == message &&
			c.ObservedGeneration == p.Generation-deleted(p)
	})
}

// deleted returns 1 if p is being deleted, because the deletion has incremented its generation.
func deleted(p *corev1.Pod) int64 {
	if p.DeletionTimestamp != nil {
		return 1
	}
	return 0
}

// TestVerdictsAreBounded checks that batches with too many verdicts or victims are rejected, and
// that batches of users without the right to send them are, too.
func TestVerdictsAreBounded(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	many := v1alpha1.VerdictBatch{Verdicts: make([]v1alpha1.Verdict, v1alpha1.MaxVerdicts+1)}
	if _, err := postVerdicts(t, s.Client, many); !apierrors.IsBadRequest(err) {
		t.Errorf("%d verdicts: %v", len(many.Verdicts), err)
	}
	crowded := v1alpha1.VerdictBatch{
		Verdicts: []v1alpha1.Verdict{{Victims: make([]v1alpha1.PodRef, v1alpha1.MaxVictims+1)}}}
	if _, err := postVerdicts(t, s.Client, crowded); !apierrors.IsBadRequest(err) {
		t.Errorf("%d victims: %v", v1alpha1.MaxVictims+1, err)
	}
	nobody, err := kubernetes.NewForConfig(s.UserConfig(t, "nobody"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postVerdicts(t, nobody, v1alpha1.VerdictBatch{}); !apierrors.IsForbidden(err) {
		t.Errorf("without the right: %v", err)
	}
}

// TestVictimsEndInOneWrite checks that a victim's condition and deletion cause a single watch
// event. A victim that is already being deleted gets the condition, too.
func TestVictimsEndInOneWrite(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	ctx := t.Context()
	if _, err := c.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ref := map[string]v1alpha1.PodRef{}
	for name, grace := range map[string]int64{"slow": 30, "fast": 0, "ending": 30, "waits": 0} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: "n1", TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}
		if name == "waits" {
			pod.Spec.NodeName = ""
		}
		pod, err := c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ref[name] = v1alpha1.PodRef{Namespace: "default", Name: name, UID: pod.UID}
	}
	if err := c.CoreV1().Pods("default").Delete(ctx, "ending", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	result, err := postVerdicts(t, c, v1alpha1.VerdictBatch{ReportingController: "test", Verdicts: []v1alpha1.Verdict{
		{PodRef: ref["waits"], NominatedNode: "n1", Victims: []v1alpha1.PodRef{ref["slow"], ref["ending"], ref["fast"]}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range result.Results[0].Victims {
		if v.Code != http.StatusOK {
			t.Errorf("victim %d: %+v", i, v)
		}
	}
	seen := map[string][]watch.EventType{}
	for e := range w.ResultChan() {
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("%+v", e)
		}
		if p.Name == "waits" {
			continue
		}
		seen[p.Name] = append(seen[p.Name], e.Type)
		if p.DeletionTimestamp == nil ||
			!slices.ContainsFunc(p.Status.Conditions,
				func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }) {
			t.Errorf("%s: %s: deleted %v, conditions %+v", p.Name, e.Type, p.DeletionTimestamp, p.Status.Conditions)
		}
		if e.Type == watch.Deleted {
			break // the deletion of "fast" is the last expected event
		}
	}
	want := map[string][]watch.EventType{"slow": {watch.Modified}, "ending": {watch.Modified},
		"fast": {watch.Modified, watch.Deleted}}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("events %v, want %v", seen, want)
	}
}
