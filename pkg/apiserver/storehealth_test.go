// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/storehealth/report"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// storeStatus returns the state of the server's only database. The server observes it for the answer.
func storeStatus(t *testing.T, s *testserver.Server, usage bool) report.Database {
	t.Helper()
	request := s.Client.Discovery().RESTClient().Get().AbsPath(report.Path)
	if usage {
		request = request.Param(report.UsageParameter, "true")
	}
	body, err := request.DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var doc report.Document
	if err := json.Unmarshal(body, &doc); err != nil || len(doc.Databases) != 1 || len(doc.Databases[0].Members) != 1 {
		t.Fatal(err, string(body))
	}
	return doc.Databases[0]
}

// TestStoreReport checks that only a server that protects its store serves the report, only for GET.
func TestStoreReport(t *testing.T) {
	for warn, want := range map[int]map[string]int{
		0:  {http.MethodGet: http.StatusNotFound, http.MethodPost: http.StatusNotFound},
		80: {http.MethodGet: http.StatusOK, http.MethodPost: http.StatusMethodNotAllowed},
	} {
		s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.Store.WarningPercent = warn }})
		for method, status := range want {
			var got int
			s.Client.Discovery().RESTClient().Verb(method).AbsPath(report.Path).Do(t.Context()).StatusCode(&got)
			if got != status {
				t.Errorf("warning at %d %%: %s gets %d, want %d", warn, method, got, status)
			}
		}
		s.Stop(t)
	}
}

func bigConfigMap(name string, size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/keep"}},
		Data: map[string]string{"a": strings.Repeat("x", size)}}
}

// TestStoreFillsUp fills the database of a server until the server refuses new objects, and checks that
// everything that makes room, or keeps nodes alive, still works. Then it deletes objects, and checks
// that the server accepts new objects again without help.
func TestStoreFillsUp(t *testing.T) {
	const size, namespace = 500 << 10, "large"
	// The end of the objects writes each of them once more. The quota is large enough for that, because etcd
	// may compact and count them only later.
	s := testserver.Start(t, testserver.Options{Etcd: embedded.Start, Configure: func(c *config.Config) {
		c.Store = config.Store{EmbeddedQuota: 128 << 20, WarningPercent: 6, RefusalPercent: 12, Defragmentation: true,
			Interval: 20 * time.Millisecond}
	}})
	ctx, client := t.Context(), s.Client.CoreV1()
	_, err := client.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created := fillStore(t, s, namespace, size)
	update := metav1.UpdateOptions{}

	t.Run("refused", func(t *testing.T) {
		rest := client.RESTClient()
		for what, request := range map[string]*restclient.Request{
			"create": rest.Post().Body(bigConfigMap("small", 1)),
			"growth": rest.Put().Name("cm0").Body(bigConfigMap("cm0", size+4096)),
		} {
			err := once(t, request, namespace)
			if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != 1 ||
				!strings.Contains(err.Error(), "ctl store status") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	t.Run("accepted", func(t *testing.T) {
		if _, err := client.ConfigMaps(namespace).Update(ctx, bigConfigMap("cm0", 10), update); err != nil {
			t.Error("shrink: ", err)
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		_, err := s.Client.CoordinationV1().Leases("kube-system").Create(ctx, lease, metav1.CreateOptions{})
		if err != nil {
			t.Error("lease: ", err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		node, err = client.Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil {
			t.Fatal("node: ", err)
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			Message: strings.Repeat("m", 2048)}}
		if _, err := client.Nodes().UpdateStatus(ctx, node, update); err != nil {
			t.Error("status of a node: ", err)
		}
		// The finalizer turns the delete into an update that makes the object larger.
		if err := client.ConfigMaps(namespace).Delete(ctx, "cm1", metav1.DeleteOptions{}); err != nil {
			t.Error("delete: ", err)
		}
	})
	t.Run("events", func(t *testing.T) {
		for _, in := range []string{metav1.NamespaceSystem, namespace} {
			awaitStoreEvent(t, s, in, "StoreFillingUp")
			awaitStoreEvent(t, s, in, "StoreRefusesWrites")
		}
	})
	t.Run("usage", func(t *testing.T) {
		status := storeStatus(t, s, true)
		if u := status.Usage; u == nil || u.Namespaces[0].Name != namespace || u.Resources[0].Name != "configmaps" ||
			u.Resources[0].Bytes < int64(created-1)*size {
			t.Errorf("usage: %+v", u)
		}
	})
	for i := range created {
		_, err := client.ConfigMaps(namespace).Patch(ctx, fmt.Sprint("cm", i), "application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal("delete of the namespace: ", err)
	}
	err = client.ConfigMaps(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for level := ""; level != "Ample" && level != "Warning"; level = storeStatus(t, s, false).Level {
	}
	if _, err := client.ConfigMaps("default").Create(ctx, bigConfigMap("small", 1), metav1.CreateOptions{}); err != nil {
		t.Error("after the recovery: ", err)
	}
}

// fillStore creates ConfigMaps until the server refuses them, and returns their number.
func fillStore(t *testing.T, s *testserver.Server, namespace string, size int) int {
	t.Helper()
	for i := 0; ; i++ {
		name := fmt.Sprint("cm", i)
		err := once(t, s.Client.CoreV1().RESTClient().Post().Body(bigConfigMap(name, size)), namespace)
		if apierrors.IsTooManyRequests(err) {
			return i
		}
		if err != nil {
			t.Fatal(err)
		}
		// etcd counts a new object some time later. Without waiting for this, the test could exceed the quota.
		for storeStatus(t, s, false).Members[0].InUse < int64(i*size) {
		}
	}
}

// once sends a request for ConfigMaps without client-go's retries, and returns its error.
func once(t *testing.T, request *restclient.Request, namespace string) error {
	t.Helper()
	return request.MaxRetries(0).Namespace(namespace).Resource("configmaps").Do(t.Context()).Error()
}

// awaitStoreEvent waits for an event about the store in a namespace.
func awaitStoreEvent(t *testing.T, s *testserver.Server, namespace, reason string) {
	t.Helper()
	w, err := s.Client.CoreV1().Events(namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if event, ok := e.Object.(*corev1.Event); ok && event.InvolvedObject.Name == namespace &&
			strings.Contains(event.Message, "% of etcd's quota is in use") {
			return
		}
	}
	t.Errorf("no event %s in %s", reason, namespace)
}
