// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/kubelet/cri"
)

// emptyRuntime is a container runtime without pods.
type emptyRuntime struct {
	runtimeapi.RuntimeServiceClient
}

func (emptyRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest,
	...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (emptyRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest,
	...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

// recordingPool records the pods that were set and those that were ended because no source has them.
type recordingPool struct {
	mu      sync.Mutex
	pods    map[types.UID]bool
	orphans []types.UID
}

func (p *recordingPool) Set(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[pod.UID] = true
}

func (p *recordingPool) HasWorker(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[uid]
}

func (p *recordingPool) Orphan(seen *cri.Pod) { p.orphans = append(p.orphans, seen.UID) }

func (*recordingPool) Remove(types.UID) {}

func (*recordingPool) Wake(types.UID) {}

// TestUnreadURL checks that the kubelet ends no pod, and releases nothing that a pod holds, before it
// has read the URL of static pods: an earlier kubelet may have got the pod from there.
func TestUnreadURL(t *testing.T) {
	answer := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-answer:
			_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "uid": "static"},
				"spec": {"containers": [{"name": "c", "image": "img"}]}}`)
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	cfg := Config{
		Client: testserver.Start(t, testserver.Options{}).Client, NodeName: "n1", Hostname: "n1",
		Kubelet: &kubeletconfig.KubeletConfiguration{EventRecordQPS: ptr.To[int32](0), StaticPodURL: server.URL,
			FileCheckFrequency: metav1.Duration{Duration: time.Hour}, HTTPCheckFrequency: metav1.Duration{Duration: time.Hour}},
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, api, client := newShared(cfg), newAPICache(cfg), &cri.Client{Runtime: emptyRuntime{}}
	passes := make(chan struct{}) // receives after each pass of the loop that runs static pods
	sources := newSources(s, api, func() {
		select {
		case passes <- struct{}{}:
		case <-ctx.Done():
		}
	})
	defer s.events.stop()
	pool := &recordingPool{pods: map[types.UID]bool{}}
	events := newPodEvents(s, client, sources.listed)
	clean := &cleanup{client: client, workers: pool, listed: sources.listed}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	sources.static.Start(pool)
	running.Go(func() { _ = sources.static.Run(ctx) })
	if events.changed(ctx, pool, "orphan") || sources.listed() {
		t.Error("a pod is ended before the API was read")
	}
	running.Go(func() { api.pods.Run(ctx) })
	if err := follow.Wait(ctx, api.pods); err != nil {
		t.Fatal(err)
	}
	check := func(known bool) {
		t.Helper()
		pool.orphans = nil
		unknown, err := clean.leftovers(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for uid, want := range map[types.UID]bool{"orphan": known, "static": false} {
			if got := unknown(uid); got != want {
				t.Errorf("what the pod %s holds is released: %t, want %t", uid, got, want)
			}
		}
		done := events.changed(ctx, pool, "orphan")
		if ended := len(pool.orphans) == 1; done != known || ended != known || (nodePods{sources: sources}).Ready() != known {
			t.Errorf("the unknown pod is done: %t, ended: %v; want %t", done, pool.orphans, known)
		}
		if done := events.changed(ctx, pool, "static"); done != known || len(pool.orphans) > 1 {
			t.Errorf("the static pod is done: %t, ended: %v", done, pool.orphans)
		}
	}
	check(false)
	close(answer)
	for !sources.listed() {
		<-passes
	}
	check(true)
}
