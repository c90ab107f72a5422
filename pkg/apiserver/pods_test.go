// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func TestBinding(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	api := s.Client.CoreV1().Pods("default")
	p, err := api.Create(t.Context(), pod("p", ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bind := func(meta metav1.ObjectMeta, node string, options metav1.CreateOptions) error {
		meta.Name = "p"
		return api.Bind(t.Context(),
			&corev1.Binding{ObjectMeta: meta, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, options)
	}
	err = bind(metav1.ObjectMeta{UID: "another"}, "n1", metav1.CreateOptions{})
	want := `Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, Key: ` +
		`/registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: ` +
		`Precondition failed: UID in precondition: another, UID in object meta: ` + string(p.UID)
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := bind(metav1.ObjectMeta{}, "n1", metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if err := bind(metav1.ObjectMeta{UID: p.UID, Annotations: map[string]string{"a": "b"}}, "n1",
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err = api.Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := p.Status.Conditions
	if p.Spec.NodeName != "n1" || p.Annotations["a"] != "b" || len(c) != 1 ||
		c[0].Type != corev1.PodScheduled || c[0].Status != corev1.ConditionTrue {
		t.Errorf("after binding: %s %v %v", p.Spec.NodeName, p.Annotations, c)
	}
	err = bind(metav1.ObjectMeta{}, "n2", metav1.CreateOptions{})
	want = `Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"`
	if !apierrors.IsConflict(err) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestEviction(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	api := s.Client.CoreV1().Pods("default")
	running := func(name string, ready corev1.ConditionStatus) {
		t.Helper()
		p, err := api.Create(t.Context(), pod(name, "n1"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		if _, err := api.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	evict := func(name string, dryRun ...string) error {
		return s.Client.CoreV1().RESTClient().Post().MaxRetries(0).Resource("pods").Namespace("default").Name(
			name).SubResource("eviction").
			Body(&policyv1.Eviction{
				TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
				ObjectMeta:    metav1.ObjectMeta{Name: name, Namespace: "default"},
				DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)), DryRun: dryRun},
			}).Do(t.Context()).Error()
	}
	running("ready", corev1.ConditionTrue)
	running("ready2", corev1.ConditionTrue)
	running("sick", corev1.ConditionFalse)
	if _, err := api.Create(t.Context(), pod("pending", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pdbs := s.Client.PolicyV1().PodDisruptionBudgets("default")
	pdb, err := pdbs.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cause := func(err error) string {
		status := err.(apierrors.APIStatus).Status() // panics if err is no error of the API, which fails the test
		if !apierrors.IsTooManyRequests(err) || len(status.Details.Causes) != 1 ||
			status.Details.Causes[0].Type != policyv1.DisruptionBudgetCause {
			t.Fatalf("not a refusal by a budget: %#v", status)
		}
		return status.Details.Causes[0].Message
	}
	if got := cause(evict("ready")); got != "The disruption budget b is still being processed by the server." {
		t.Error(got)
	}
	pdb.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: pdb.Generation, CurrentHealthy: 2,
		DesiredHealthy: 2, ExpectedPods: 3}
	if pdb, err = pdbs.UpdateStatus(t.Context(), pdb, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := cause(evict("ready")); got != "The disruption budget b needs 2 healthy pods and has 2 currently" {
		t.Error(got)
	}
	if err := evict("pending"); err != nil {
		t.Errorf("a pending pod serves nobody: %v", err)
	}
	if err := evict("sick"); err != nil {
		t.Errorf("an unready pod may go while the budget is met: %v", err)
	}
	pdb.Status.DisruptionsAllowed = 1
	if _, err = pdbs.UpdateStatus(t.Context(), pdb, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := evict("ready", "All"); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if err := evict("ready"); err != nil {
		t.Errorf("within the budget: %v", err)
	}
	pdb, err = pdbs.Get(t.Context(), "b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, noted := pdb.Status.DisruptedPods["ready"]; !noted || pdb.Status.DisruptionsAllowed != 0 {
		t.Errorf("the budget after an eviction: %+v", pdb.Status)
	}
	if err := evict("ready2"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("beyond the budget: %v", err)
	}
	list, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "ready2" {
		t.Errorf("pods left: %v, %v", list.Items, err)
	}
}
