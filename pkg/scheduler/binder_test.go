// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"keelson.dev/api/clock"
	"keelson.dev/api/scheduling/v1alpha1"
)

// TestBindingIsRetried checks which errors of a binding make the scheduler send it again.
func TestBindingIsRetried(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		calls int
	}{
		"unavailable":        {apierrors.NewServiceUnavailable("no etcd"), 2},
		"internal error":     {apierrors.NewInternalError(errors.New("no etcd")), 2},
		"connection refused": {syscall.ECONNREFUSED, 2},
		"conflict":           {apierrors.NewConflict(v1.Resource("pods"), "p", errors.New("on another node")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			client, calls := fake.NewSimpleClientset(), 0
			client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if calls++; calls == 1 {
					return true, nil, c.err
				}
				return true, &v1.Binding{}, nil
			})
			b := newBinder(client, newBatches(client, "test"))
			b.clock, b.metrics = clock.Real(), &metrics{}
			var got error
			b.bind(t.Context(), []*binding{{pod: sizedPod("p", 0, "1", ""), node: "n",
				done: func(err error, _ bool) { got = err }}})
			if calls != c.calls || (got == nil) != (c.calls > 1) {
				t.Errorf("%d calls, error %v; want %d calls", calls, got, c.calls)
			}
		})
	}
}

// TestBatchIsRetried checks that a batch is sent again if the server is unavailable, and that a pod
// for which the server then has an internal error is bound on its own.
func TestBatchIsRetried(t *testing.T) {
	var paths []string // the requests come one after the other
	write := func(w http.ResponseWriter, code int, o any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(o); err != nil {
			t.Error(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		switch {
		case len(paths) == 1:
			write(w, http.StatusServiceUnavailable, apierrors.NewServiceUnavailable("no etcd").Status())
		case r.URL.Path == v1alpha1.BatchPath:
			write(w, http.StatusOK, v1alpha1.BindingBatch{Results: []v1alpha1.Result{{Code: http.StatusCreated},
				{Code: http.StatusInternalServerError, Reason: string(metav1.StatusReasonInternalError)}}})
		default:
			write(w, http.StatusCreated, metav1.Status{Status: metav1.StatusSuccess})
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	b := newBinder(client, newBatches(client, "test"))
	b.clock, b.metrics = clock.Real(), &metrics{}
	written := map[string]bool{}
	var some []*binding
	for _, name := range []string{"a", "b"} {
		some = append(some, &binding{pod: sizedPod(name, 0, "1", ""), node: "n", done: func(err error, eventWritten bool) {
			if err != nil {
				t.Errorf("pod %s: %v", name, err)
			}
			written[name] = eventWritten
		}})
	}
	b.bind(t.Context(), some)
	want := []string{v1alpha1.BatchPath, v1alpha1.BatchPath, "/api/v1/namespaces/default/pods/b/binding"}
	if !slices.Equal(paths, want) || !written["a"] || written["b"] || len(written) != 2 {
		t.Errorf("requests %v, events written %v", paths, written)
	}
}
