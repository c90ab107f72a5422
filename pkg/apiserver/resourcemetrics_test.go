// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestResourceMetrics checks that metrics.k8s.io serves the statistics of the kubelets and is in
// discovery, until an APIService names another server.
func TestResourceMetrics(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.ResourceMetrics = true }})
	mustCreateAccount(t, s)
	p := running(t, s, "p", "n1")
	pending := running(t, s, "elsewhere", "n2") // the kubelet of n2 does not answer
	var asked atomic.Int64
	node(t, s, "n1", kubelet(t, &asked, &statsapi.Summary{
		Node: statsapi.NodeStats{NodeName: "n1", CPU: cpuUsed(1_500_000_000), Memory: memoryUsed(1 << 30)},
		Pods: []statsapi.PodStats{{
			PodRef:     statsapi.PodReference{Name: "p", Namespace: "default", UID: string(p.UID)},
			Containers: []statsapi.ContainerStats{{Name: "main", CPU: cpuUsed(250_000_000), Memory: memoryUsed(64 << 20)}},
		}},
	}))
	node(t, s, "n2", "127.0.0.1:1")

	client, err := metrics.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	api := client.MetricsV1beta1()
	poll(t, "the group is discovered", func(context.Context) bool {
		list, err := s.Client.Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1")
		return err == nil && len(list.APIResources) == 2
	})
	nodes, err := api.NodeMetricses().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != "n1" {
		t.Fatalf("nodes: %+v, %v", nodes, err)
	}
	if u := nodes.Items[0].Usage; u.Cpu().MilliValue() != 1500 || u.Memory().Value() != 1<<30 {
		t.Errorf("node uses %v", u)
	}
	pods, err := api.PodMetricses("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=p"})
	if err != nil || len(pods.Items) != 1 || len(pods.Items[0].Containers) != 1 {
		t.Fatalf("pods: %+v, %v", pods, err)
	}
	if u := pods.Items[0].Containers[0].Usage; u.Cpu().MilliValue() != 250 || u.Memory().Value() != 64<<20 ||
		pods.Items[0].Timestamp.IsZero() {
		t.Errorf("pod uses %v at %v", u, pods.Items[0].Timestamp)
	}
	if got, err := api.PodMetricses("default").Get(t.Context(), "p", metav1.GetOptions{}); err != nil ||
		got.Labels["app"] != "p" {
		t.Errorf("one pod: %+v, %v", got, err)
	}
	for _, name := range []string{pending.Name, "nobody"} {
		if _, err := api.PodMetricses("default").Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("pod %s: %v", name, err)
		}
	}
	if got, err := api.PodMetricses("").List(t.Context(),
		metav1.ListOptions{LabelSelector: "app=none"}); err != nil || len(got.Items) != 0 {
		t.Errorf("no pods: %+v, %v", got, err)
	}
	if _, err := api.PodMetricses("default").List(t.Context(),
		metav1.ListOptions{LabelSelector: "!!"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a selector that is none: %v", err)
	}
	if _, err := api.PodMetricses("default").Watch(t.Context(),
		metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a watch: %v", err)
	}
	if _, err := clientFor(t, s.UserConfig(t, "eve")).Discovery().RESTClient().Get().AbsPath(
		"/apis/metrics.k8s.io/v1beta1/pods").DoRaw(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("somebody without rights: %v", err)
	}
	if asked.Load() == 0 {
		t.Error("nobody asked the kubelet")
	}

	// An APIService that names a service replaces the built-in handler.
	registry, err := aggregator.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "another server answers", func(ctx context.Context) bool {
		svc, err := registry.ApiregistrationV1().APIServices().Get(ctx, "v1beta1.metrics.k8s.io", metav1.GetOptions{})
		if err != nil {
			return false
		}
		svc.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server",
			Port: ptr.To(int32(443))}
		svc.Spec.InsecureSkipTLSVerify = true
		_, _ = registry.ApiregistrationV1().APIServices().Update(ctx, svc, metav1.UpdateOptions{})
		_, err = api.NodeMetricses().List(ctx, metav1.ListOptions{})
		return apierrors.IsServiceUnavailable(err)
	})
}

func cpuUsed(nanocores uint64) *statsapi.CPUStats {
	return &statsapi.CPUStats{Time: metav1.Now(), UsageNanoCores: &nanocores}
}

func memoryUsed(bytes uint64) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{Time: metav1.Now(), WorkingSetBytes: &bytes}
}

// kubelet serves a stats summary, counts requests in asked, and returns its address.
func kubelet(t *testing.T, asked *atomic.Int64, summary *statsapi.Summary) string {
	t.Helper()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/stats/summary" || r.URL.Query().Get("only_cpu_and_memory") != "true" {
			t.Errorf("asked for %s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(summary)
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// node creates a node whose kubelet has the given address.
func node(t *testing.T, s *testserver.Server, name, at string) {
	t.Helper()
	host, text, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Client.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	if n, err = s.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The metrics handler reads nodes from the cache. This read waits until the cache has n.
	o := metav1.GetOptions{ResourceVersion: n.ResourceVersion}
	if _, err := s.Client.CoreV1().Nodes().Get(t.Context(), name, o); err != nil {
		t.Fatal(err)
	}
}

// running creates a pod that runs on a node.
func running(t *testing.T, s *testserver.Server, name, on string) *corev1.Pod {
	t.Helper()
	p := pod(name, on)
	p.Labels = map[string]string{"app": name}
	p, err := s.Client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	if p, err = s.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return p
}
