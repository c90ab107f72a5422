// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"encoding/json"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func TestBatchBindsWhatItCan(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	ctx := t.Context()
	if _, err := c.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	batch := v1alpha1.BindingBatch{ReportingController: "test", ReportingInstance: "test-1"}
	for _, name := range []string{"a", "b", "other-uid"} {
		pod, err := c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b := v1alpha1.Binding{Namespace: "default", Name: name, UID: pod.UID, Node: "node-of-" + name}
		if name == "other-uid" {
			b.UID = "not-it"
		}
		batch.Bindings = append(batch.Bindings, b)
	}
	batch.Bindings = append(batch.Bindings, v1alpha1.Binding{Namespace: "default", Name: "absent", Node: "n"},
		v1alpha1.Binding{Namespace: "default", Name: "a"})
	result := sendBatch(t, c, &batch)
	want := []int32{http.StatusCreated, http.StatusCreated, http.StatusConflict, http.StatusNotFound,
		http.StatusUnprocessableEntity}
	for i, code := range want {
		if result.Results[i].Code != code {
			t.Errorf("%s: %+v, want %d", batch.Bindings[i].Name, result.Results[i], code)
		}
	}
	for name, node := range map[string]string{"a": "node-of-a", "b": "node-of-b", "other-uid": ""} {
		pod, err := c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil || pod.Spec.NodeName != node {
			t.Errorf("pod %s is on %q, want %q; error %v", name, pod.Spec.NodeName, node, err)
		}
	}
	events, err := c.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(events.Items) != 2 ||
		events.Items[0].Note != "Successfully assigned default/a to node-of-a" &&
			events.Items[0].Note != "Successfully assigned default/b to node-of-b" {
		t.Errorf("events %+v, error %v", events, err)
	}
}

// TestAllOrNothing checks that all pods of a batch with AllOrNothing are bound, or none of them.
func TestAllOrNothing(t *testing.T) {
	c := testserver.Start(t, testserver.Options{}).Client
	const pods = v1alpha1.MaxBindings + 8 // more pods than a batch without AllOrNothing may have
	batch := gangOn(t, c, pods)
	send := func() map[int32]int {
		t.Helper()
		result := sendBatch(t, c, &batch)
		codes := map[int32]int{}
		for _, r := range result.Results {
			codes[r.Code]++
		}
		return codes
	}
	last := &batch.Bindings[pods-1]
	name := last.Name
	last.Name = "absent"
	if codes := send(); codes[http.StatusConflict] != pods-1 || codes[http.StatusNotFound] != 1 ||
		boundTo(t, c, "n") != 0 {
		t.Errorf("with a pod that is absent: %v, %d pods are bound", codes, boundTo(t, c, "n"))
	}
	last.Name = name
	if codes := send(); codes[http.StatusCreated] != pods || boundTo(t, c, "n") != pods {
		t.Errorf("with all pods there: %v, %d pods are bound", codes, boundTo(t, c, "n"))
	}
	if codes := send(); codes[http.StatusConflict] != pods {
		t.Errorf("once more: %v", codes)
	}
}

// sendBatch sends a batch and returns the answer.
func sendBatch(t *testing.T, c kubernetes.Interface, batch *v1alpha1.BindingBatch) v1alpha1.BindingBatch {
	t.Helper()
	body, err := json.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.CoreV1().RESTClient().Post().AbsPath(v1alpha1.BatchPath).SetHeader("Content-Type",
		"application/json").Body(body).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var result v1alpha1.BindingBatch
	if err := json.Unmarshal(answer, &result); err != nil {
		t.Fatal(err)
	}
	return result
}
