// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/daemonset"
	"keelson.dev/keelson/pkg/controllers/deployment"
	"keelson.dev/keelson/pkg/controllers/job"
	"keelson.dev/keelson/pkg/controllers/replicaset"
	"keelson.dev/keelson/pkg/controllers/statefulset"
)

// blind wraps an HTTP transport so that the client loses the response to the first create of an
// object of one resource: answer decides what the client gets instead. Until the second create has
// been answered, blind also holds back the watch events of the resource.
type blind struct {
	resource string
	answer   func(*http.Response) (*http.Response, error)

	mu    sync.Mutex
	posts int
	open  chan struct{} // closed while watch events are delivered, open while they are held back
}

func newBlind(resource string, answer func(*http.Response) (*http.Response, error)) *blind {
	b := &blind{resource: resource, answer: answer, open: make(chan struct{})}
	close(b.open)
	return b
}

func (b *blind) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/"+b.resource) {
			return next.RoundTrip(r)
		}
		if r.Method != http.MethodPost {
			answer, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Get("watch") != "" {
				answer.Body = &gate{ReadCloser: answer.Body, b: b, closed: make(chan struct{})}
			}
			return answer, err
		}
		b.mu.Lock()
		b.posts++
		n := b.posts
		if n == 1 {
			b.open = make(chan struct{})
		}
		b.mu.Unlock()
		answer, err := next.RoundTrip(r)
		switch {
		case n == 2:
			close(b.open)
		case n == 1 && err == nil:
			return b.answer(answer)
		}
		return answer, err
	})
}

// gate is the body of a watch response. Its Read holds back the events until blind.open is closed.
type gate struct {
	io.ReadCloser
	b      *blind
	once   sync.Once
	closed chan struct{}
}

func (g *gate) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	g.b.mu.Lock()
	open := g.b.open
	g.b.mu.Unlock()
	select {
	case <-open:
	case <-g.closed:
	}
	return n, err
}

func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.ReadCloser.Close()
}

var errBroken = errors.New("connection broke")

// TestLostCreation checks that no object is created twice if the response to a create is lost and
// the cache does not show the object before the controller retries the create.
func TestLostCreation(t *testing.T) {
	answers := map[string]func(*http.Response) (*http.Response, error){
		"broken connection": func(r *http.Response) (*http.Response, error) {
			_ = r.Body.Close() // the response is lost
			return nil, errBroken
		},
		"gateway timeout": func(r *http.Response) (*http.Response, error) {
			_ = r.Body.Close() // the response is lost
			return &http.Response{StatusCode: http.StatusGatewayTimeout, Header: http.Header{},
				Body: http.NoBody, Request: r.Request}, nil
		},
	}
	for name, tc := range map[string]struct {
		resource string
		members  []constructor
		create   creator
		done     func(ctx context.Context, c kubernetes.Interface) (any, bool)
		want     int
	}{
		"replica set": {
			"pods", []constructor{replicaset.New}, createReplicaSet(3),
			func(ctx context.Context, c kubernetes.Interface) (any, bool) {
				s, err := c.AppsV1().ReplicaSets(ns).Get(ctx, "a", metav1.GetOptions{})
				return s, err == nil && s.Status.ReadyReplicas == 3
			}, 3,
		},
		"replication controller": {
			"pods", []constructor{replicaset.NewReplicationController}, createReplicationController(3),
			func(ctx context.Context, c kubernetes.Interface) (any, bool) {
				s, err := c.CoreV1().ReplicationControllers(ns).Get(ctx, "a", metav1.GetOptions{})
				return s, err == nil && s.Status.ReadyReplicas == 3
			}, 3,
		},
		"daemon set": {
			"pods", []constructor{daemonset.New}, createDaemonSet,
			func(ctx context.Context, c kubernetes.Interface) (any, bool) {
				s, err := c.AppsV1().DaemonSets(ns).Get(ctx, "a", metav1.GetOptions{})
				return s, err == nil && s.Status.NumberReady == 2
			}, 2,
		},
		"stateful set": {
			"pods", []constructor{statefulset.New}, createStatefulSet(2),
			func(ctx context.Context, c kubernetes.Interface) (any, bool) {
				s, err := c.AppsV1().StatefulSets(ns).Get(ctx, "a", metav1.GetOptions{})
				return s, err == nil && s.Status.ReadyReplicas == 2
			}, 2,
		},
		"job":         {"pods", []constructor{job.New}, createJob(3, batchv1.NonIndexedCompletion), jobDone, 3},
		"indexed job": {"pods", []constructor{job.New}, createJob(3, batchv1.IndexedCompletion), jobDone, 3},
		"deployment": {
			"replicasets", []constructor{deployment.New, replicaset.New}, createDeployment(2),
			func(ctx context.Context, c kubernetes.Interface) (any, bool) {
				s, err := c.AppsV1().Deployments(ns).Get(ctx, "a", metav1.GetOptions{})
				return s, err == nil && s.Status.ReadyReplicas == 2
			}, 2,
		},
	} {
		for how, answer := range answers {
			t.Run(name+", "+how, func(t *testing.T) {
				s := start(t, "n1", "n2")
				w, err := s.Client.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Stop()
				disturbed := disturb(s, newBlind(tc.resource, answer).wrap)
				if disturbed.Client, err = kubernetes.NewForConfig(disturbed.Config); err != nil {
					t.Fatal(err)
				}
				controllertest.Run(t, disturbed, controller.Options{}, tc.members...)
				controllertest.Kubelets(t, s, func(pod *v1.Pod) {
					controllertest.Ready(pod)
					if pod.Spec.RestartPolicy == v1.RestartPolicyNever {
						pod.Status = v1.PodStatus{Phase: v1.PodSucceeded}
					}
				})
				if err := tc.create(t.Context(), s.Client, "a", "a"); err != nil {
					t.Fatal(err)
				}
				controllertest.Eventually(t, "all pods are ready", func(ctx context.Context) (any, bool) {
					return tc.done(ctx, s.Client)
				})
				if got := created(t, s.Client, w); got != tc.want {
					t.Errorf("%d pods were created, want %d", got, tc.want)
				}
			})
		}
	}
}

func jobDone(ctx context.Context, c kubernetes.Interface) (any, bool) {
	j, err := c.BatchV1().Jobs(ns).Get(ctx, "a", metav1.GetOptions{})
	return j, err == nil && j.Status.CompletionTime != nil && j.Status.Succeeded == 3
}

// created returns the number of different pods that the watch w has reported so far. It creates a
// last pod to find the end of the events up to now.
func created(t *testing.T, c kubernetes.Interface, w watch.Interface) int {
	t.Helper()
	last := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "last"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}
	if _, err := c.CoreV1().Pods(ns).Create(t.Context(), last, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	seen := map[types.UID]bool{}
	for e := range w.ResultChan() {
		pod, ok := e.Object.(*v1.Pod)
		if !ok {
			t.Fatalf("watch: %v", e.Object)
		}
		if pod.Name == last.Name {
			return len(seen)
		}
		seen[pod.UID] = true
	}
	t.Fatal("the watch ended")
	return 0
}
