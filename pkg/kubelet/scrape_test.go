// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/objects"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/server"
	"keelson.dev/keelson/pkg/kubelet/status"
	"keelson.dev/keelson/pkg/kubelet/volume"
)

// measured is a container runtime with one pod that has one container.
type measured struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
}

func (measured) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (
	*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{
		Items: []*runtimeapi.PodSandbox{
			{Id: "box", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"}}}}, nil
}

func (measured) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (
	*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{
		Id: "id", CreatedAt: 5e9, ImageRef: "img",
		Labels: map[string]string{cri.LabelPodUID: "u", cri.LabelContainerName: "c"},
	}}}, nil
}

func (measured) ListPodSandboxStats(context.Context, *runtimeapi.ListPodSandboxStatsRequest) (
	*runtimeapi.ListPodSandboxStatsResponse, error) {
	cpu := &runtimeapi.CpuUsage{Timestamp: 1, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: 3e9}}
	memory := &runtimeapi.MemoryUsage{Timestamp: 1, WorkingSetBytes: &runtimeapi.UInt64Value{Value: 4096}}
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: []*runtimeapi.PodSandboxStats{{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: "box",
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"}},
		Linux: &runtimeapi.LinuxPodSandboxStats{Cpu: cpu, Memory: memory, Containers: []*runtimeapi.ContainerStats{{
			Attributes: &runtimeapi.ContainerAttributes{Id: "id",
				Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}, Cpu: cpu, Memory: memory,
		}}},
	}}}, nil
}

// runtimeOf serves the fake runtime measured, and returns a client that is connected to it.
func runtimeOf(t *testing.T, registry *prometheus.Registry) *cri.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, measured{})
	runtimeapi.RegisterImageServiceServer(s, measured{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	client, err := cri.Dial(cri.Target{Endpoint: socket, Timeout: time.Minute}, cri.NewMetrics(clock.Real(), registry))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// scraped is the HTTPS server of a kubelet that runs no pods but has one pod in its runtime.
type scraped struct {
	api    *testserver.Server
	probes *prometheus.Registry
	url    string
}

func newScraped(t *testing.T) *scraped {
	t.Helper()
	s := &scraped{api: testserver.Start(t, testserver.Options{})}
	c := &kubeletconfig.KubeletConfiguration{CgroupRoot: "/", PodLogsDir: t.TempDir()}
	c.EventRecordQPS = ptr.To[int32](0)
	c.Authentication.X509.ClientCAFile = filepath.Join(s.api.Dir, "ca.crt")
	c.Authentication.Anonymous.Enabled, c.Authentication.Webhook.Enabled = ptr.To(false), ptr.To(true)
	c.Authentication.Webhook.CacheTTL = metav1.Duration{Duration: time.Minute}
	c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	c.Authorization.Webhook = kubeletconfig.KubeletWebhookAuthorization{
		CacheAuthorizedTTL:   metav1.Duration{Duration: time.Minute},
		CacheUnauthorizedTTL: metav1.Duration{Duration: time.Minute}}
	registry := prometheus.NewRegistry()
	cfg := Config{
		Client: s.api.Client, Kubelet: c, NodeName: "n1", Hostname: "n1", NodeIPs: []string{"127.0.0.1"},
		RootDir: t.TempDir(), CertDir: t.TempDir(),
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Metrics: registry,
	}
	sh := newShared(cfg)
	r := newRuntime(runtimeOf(t, registry), nil, cfg, nil)
	src := &sources{api: newAPICache(cfg)}
	statuses := status.NewManager(status.Config{Client: cfg.Client, Clock: cfg.Clock, Log: cfg.Log,
		Metrics: sh.metrics.pods})
	m, err := node.ReadMachine(cfg.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	cgroups, err := cgroup.New(cgroup.Config{Mount: cgroupMount, Root: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if err := src.api.pods.Add(s.pod()); err != nil {
		t.Fatal(err)
	}
	volumes := volume.New(volume.Config{
		RootDir: cfg.RootDir, Clock: cfg.Clock, Log: cfg.Log,
		Objects: objects.New(objects.Config{Client: cfg.Client, Clock: cfg.Clock, Log: cfg.Log}),
	})
	u := &usage{
		cfg: cfg, begun: cfg.Clock.Now(), machine: m, runtime: r, sources: src, cgroups: cgroups, volumes: volumes,
	}
	t.Cleanup(func() { // ends the goroutines of the queues and of the event recorder
		over, cancel := context.WithCancel(context.Background())
		cancel()
		if err := errors.Join(statuses.Run(over), volumes.Run(over)); err != nil {
			t.Error(err)
		}
		sh.events.stop()
	})
	s.probes = sh.metrics.probes
	s.serve(t, serverConfig(sh, &podView{src, statuses, r.client}, r.client, u))
	return s
}

func (s *scraped) pod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "img"}}},
	}
}

func (s *scraped) serve(t *testing.T, config server.Config) {
	t.Helper()
	var err error
	if config.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + config.Listener.Addr().String()
	srv, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// account creates a service account and returns a token of it. Unless role is "", account also
// binds the service account to this ClusterRole. It then waits until the API server grants the
// role's permissions, which it tests with one of them: to get the subresource knownBy of nodes.
func (s *scraped) account(t *testing.T, name, role, knownBy string) string {
	t.Helper()
	ctx, c := t.Context(), s.api.Client
	sa, err := c.CoreV1().ServiceAccounts("default").Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if role != "" {
		_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: sa.Namespace, Name: sa.Name}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:default:" + name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: knownBy},
		}}
		err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 3*time.Minute, true,
			func(ctx context.Context) (bool, error) {
				got, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
				return err == nil && got.Status.Allowed, err
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

func (s *scraped) get(t *testing.T, token, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// The kubelet's certificate is self-signed, so the client does not verify it.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// probe starts a readiness probe of the container and waits for its first result.
func (s *scraped) probe(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	changed := make(chan struct{}, 1)
	m := prober.NewManager(ctx, prober.Config{
		Clock: clock.Real(), Handler: &prober.Handler{Clock: clock.Real()}, Metrics: s.probes,
		Changed: func(types.UID) { changed <- struct{}{} }, Event: func(*v1.Pod, string, string, string, string) {},
	})
	t.Cleanup(func() { cancel(); m.Wait() })
	host, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	pod := s.pod()
	pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: host, Port: intstr.Parse(port)}},
		PeriodSeconds: 3600, TimeoutSeconds: 60, SuccessThreshold: 1, FailureThreshold: 1,
	}
	m.Start(pod, &pod.Spec.Containers[0], "id", host, time.Now(), prober.Result{})
	<-changed
}

// TestScrape reads the metrics that Prometheus, metrics-server and dashboards read from the
// kubelet's HTTPS server, and checks which permission each path requires.
func TestScrape(t *testing.T) {
	s := newScraped(t)
	s.probe(t)
	_, err := s.api.Client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "stats"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/stats"},
			Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	monitor, stats, nobody := s.account(t, "monitor", "system:monitoring", "metrics"),
		s.account(t, "stats", "stats", "stats"), s.account(t, "nobody", "", "")
	const pod = `container="c",namespace="ns",pod="p"`
	for path, want := range map[string][]string{
		"/metrics": {
			"# TYPE kubelet_http_requests_total counter",
			`kubelet_http_requests_total{long_running="false",method="GET",path="metrics",server_type="readwrite"} `,
		},
		"/metrics/cadvisor": {
			`container_cpu_usage_seconds_total{container="",cpu="total",id="/",`, "machine_cpu_cores{",
			`container_start_time_seconds{container="c",id="/kubepods/besteffort/podu/id",image="img",` +
				`name="id",namespace="ns",pod="p"} 5 `,
		},
		"/metrics/resource": {
			"container_cpu_usage_seconds_total{" + pod + "} 3 ", "container_memory_working_set_bytes{" + pod +
				"} 4096 ", `pod_cpu_usage_seconds_total{namespace="ns",pod="p"} 3 `,
			"# TYPE node_cpu_usage_seconds_total counter", "resource_scrape_error 0",
		},
		"/metrics/probes": {`prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="u",` +
			`probe_type="Readiness",result="successful"} 1`},
		"/stats/summary": {`"nodeName":"n1"`, `"usageCoreNanoSeconds":3000000000`},
	} {
		t.Run(path, func(t *testing.T) {
			may, mayNot, right := monitor, stats, "metrics"
			if path == "/stats/summary" {
				may, mayNot, right = stats, monitor, "stats"
			}
			code, body := s.get(t, may, path)
			if code != http.StatusOK {
				t.Errorf("%d %s", code, body)
			}
			for _, text := range want {
				if !strings.Contains(body, text) {
					t.Errorf("%s has no %s:\n%s", path, text, body)
				}
			}
			for user, token := range map[string]string{"nobody": nobody,
				map[string]string{monitor: "monitor", stats: "stats"}[mayNot]: mayNot} {
				forbidden := fmt.Sprintf(
					"Forbidden (user=system:serviceaccount:default:%s, verb=get, resource=nodes, subresource(s)=[%s])\n", user, right)
				if code, body := s.get(t, token, path); code != http.StatusForbidden || body != forbidden {
					t.Errorf("%s: %d %s", user, code, body)
				}
			}
			if code, body := s.get(t, "", path); code != http.StatusUnauthorized || body != "Unauthorized" {
				t.Errorf("without a token: %d %s", code, body)
			}
		})
	}
	var summary statsapi.Summary
	if _, body := s.get(t, stats, "/stats/summary"); json.Unmarshal([]byte(body), &summary) != nil ||
		len(summary.Pods) != 1 || summary.Pods[0].PodRef.Name != "p" || len(summary.Pods[0].Containers) != 1 {
		t.Errorf("summary %s", body)
	}
	if summary.Node.Fs == nil || summary.Node.Memory == nil || value(summary.Node.Memory.WorkingSetBytes) == 0 {
		t.Errorf("node %+v", summary.Node)
	}
}
