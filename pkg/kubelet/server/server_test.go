// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	remotecommandserver "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/health"
)

func ptr[T any](v T) *T { return &v }

// kubelet implements the interfaces that the server uses, with one pod.
type kubelet struct {
	pod     *v1.Pod
	log     LogSource
	streams streaming.Server
}

func (k *kubelet) Pods() []*v1.Pod { return []*v1.Pod{k.pod} }

func (k *kubelet) Pod(namespace, name string) (*v1.Pod, bool) {
	return k.pod, namespace == k.pod.Namespace && name == k.pod.Name
}

func (k *kubelet) RunningPods(context.Context) ([]*v1.Pod, error) {
	return nil, errors.New("no runtime")
}

func (k *kubelet) ContainerLog(_ context.Context, pod *v1.Pod, container string, previous bool) (LogSource, error) {
	if previous {
		return LogSource{}, fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
	}
	return k.log, nil
}

func (k *kubelet) Exec(_ context.Context, _ *v1.Pod, container string, command []string,
	o StreamOptions) (*url.URL, error) {
	r, err := k.streams.GetExec(&runtimeapi.ExecRequest{ContainerId: container, Cmd: command, Stdin: o.Stdin,
		Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
	if err != nil {
		return nil, err
	}
	return url.Parse(r.Url)
}

func (k *kubelet) Attach(context.Context, *v1.Pod, string, StreamOptions) (*url.URL, error) {
	return nil, streaming.NewErrorTooManyInFlight()
}

func (k *kubelet) PortForward(_ context.Context, pod *v1.Pod, ports []int32) (*url.URL, error) {
	r, err := k.streams.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: pod.Name, Port: ports})
	if err != nil {
		return nil, err
	}
	return url.Parse(r.Url)
}

func (k *kubelet) Checkpoint(_ context.Context, pod *v1.Pod, container string, seconds int64) (string, error) {
	if seconds < 0 {
		return "", errors.New("no time")
	}
	return fmt.Sprintf("/c/%s-%s-%d.tar", pod.Name, container, seconds), nil
}

func (k *kubelet) Run(_ context.Context, _ *v1.Pod, container string, command []string) ([]byte, error) {
	return []byte(container + ":" + strings.Join(command, "|")), nil
}

func (k *kubelet) Summary(_ context.Context, only bool) (*statsapi.Summary, error) {
	at := metav1.NewTime(time.Unix(1000, 0))
	s := &statsapi.Summary{
		Node: statsapi.NodeStats{NodeName: "n1", CPU: &statsapi.CPUStats{Time: at, UsageCoreNanoSeconds: ptr[uint64](2e9)}}}
	if !only {
		s.Node.Memory = &statsapi.MemoryStats{Time: at, WorkingSetBytes: ptr[uint64](5)}
	}
	return s, nil
}

// echo is a runtime whose commands copy their input to stdout, and in upper case to stderr.
type echo struct{}

func (echo) Exec(_ context.Context, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, _ bool,
	_ <-chan remotecommandserver.TerminalSize) error {
	b, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s:%s", strings.Join(cmd, " "), b)
	_, err2 := errOut.Write(bytes.ToUpper(b))
	return errors.Join(err, err2)
}

func (echo) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool,
	<-chan remotecommandserver.TerminalSize) error {
	return errors.New("no attach")
}

func (echo) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	b := make([]byte, 4)
	if _, err := io.ReadFull(stream, b); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stream, "%d:%s", port, b)
	return err
}

// fixture is a running kubelet server, and the API server that it uses to authenticate and
// authorize requests.
type fixture struct {
	api     *testserver.Server
	kubelet *kubelet
	url     string
	token   map[string]string // tokens, by service account
	loop    *health.Gate      // controls the result of the health check "syncloop"
}

// start starts a server. The service account "operator" may perform every verb on nodes/proxy, and
// "metrics" may read metrics and pods.
func start(t *testing.T) *fixture {
	t.Helper()
	api := testserver.Start(t, testserver.Options{})
	f := &fixture{api: api, token: map[string]string{}, loop: health.NewGate("syncloop", "it hangs")}
	f.loop.Open()
	f.kubelet = &kubelet{pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}}
	f.grant(t, "operator",
		rbacv1.PolicyRule{APIGroups: []string{""},
			Resources: []string{"nodes/proxy", "nodes/stats", "nodes/metrics", "nodes/log", "nodes/checkpoint",
				"nodes/statusz", "nodes/configz"}, Verbs: []string{"*"}})
	f.grant(t, "metrics",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/metrics", "nodes/pods"},
			Verbs: []string{"get"}})
	f.grant(t, "reader", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/proxy"},
		Verbs: []string{"get"}})
	f.grant(t, "drivers", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/csi"},
		Verbs: []string{"create"}})
	f.grant(t, "nobody")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	streams := httptest.NewUnstartedServer(nil)
	base := &url.URL{Scheme: "http", Host: streams.Listener.Addr().String()}
	config := streaming.DefaultConfig
	config.BaseURL = base
	if f.kubelet.streams, err = streaming.NewServer(config, echo{}); err != nil {
		t.Fatal(err)
	}
	streams.Config.Handler = f.kubelet.streams
	streams.Start()
	t.Cleanup(streams.Close)

	s, err := New(Config{
		Listener: l, NodeName: "n1", CertDir: t.TempDir(), NodeAddresses: []string{"127.0.0.1"},
		Client: api.Client, Pods: f.kubelet, Runtime: f.kubelet, Stats: f.kubelet,
		Health:  []health.Check{health.Ping(), f.loop.Check()},
		Flags:   map[string]string{"node-ip": "192.0.2.1"},
		Metrics: prometheus.NewRegistry(), LogDir: t.TempDir(),
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Kubelet: &kubeletconfig.KubeletConfiguration{
			Authentication: kubeletconfig.KubeletAuthentication{
				X509: kubeletconfig.KubeletX509Authentication{ClientCAFile: filepath.Join(api.Dir, "ca.crt")},
				Webhook: kubeletconfig.KubeletWebhookAuthentication{Enabled: ptr(true),
					CacheTTL: metav1.Duration{Duration: time.Minute}},
				Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: ptr(false)},
			},
			Authorization: kubeletconfig.KubeletAuthorization{
				Mode: kubeletconfig.KubeletAuthorizationModeWebhook,
				Webhook: kubeletconfig.KubeletWebhookAuthorization{
					CacheAuthorizedTTL:   metav1.Duration{Duration: time.Minute},
					CacheUnauthorizedTTL: metav1.Duration{Duration: time.Minute}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	f.url = "https://" + l.Addr().String()
	return f
}

func (f *fixture) grant(t *testing.T, account string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	ctx, c := t.Context(), f.api.Client
	sa, err := c.CoreV1().ServiceAccounts("kube-system").Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) > 0 {
		_, err = c.RbacV1().ClusterRoles().Create(ctx,
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: rules}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: sa.Namespace, Name: sa.Name}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.granted(t, sa, rules)
	}
	tr, err := c.CoreV1().ServiceAccounts(sa.Namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.token[account] = tr.Status.Token
}

// granted waits until the API server grants the permissions. The kubelet must not ask earlier,
// because it caches denials.
func (f *fixture) granted(t *testing.T, account *v1.ServiceAccount, rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, rule := range rules {
		resource, sub, _ := strings.Cut(rule.Resources[len(rule.Resources)-1], "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + account.Namespace + ":" + account.Name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Resource: resource, Subresource: sub},
		}}
		err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 3*time.Minute, true,
			func(ctx context.Context) (bool, error) {
				got, err := f.api.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
				return err == nil && got.Status.Allowed, err
			})
		if err != nil {
			t.Fatalf("rights of %s: %v", account.Name, err)
		}
	}
}

func (f *fixture) config(account string) *rest.Config {
	return &rest.Config{Host: f.url, BearerToken: f.token[account], TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func (f *fixture) do(t *testing.T, account, method, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if account != "" {
		req.Header.Set("Authorization", "Bearer "+f.token[account])
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestAuthorization(t *testing.T) {
	f := start(t)
	const exec = "/exec/ns/p/c?command=x&output=1"
	for name, c := range map[string]struct {
		account, method, path string
		code                  int
		body                  string
	}{
		"anonymous": {"", "GET", "/pods", 401, "Unauthorized"},
		"nobody": {"nobody", "GET", "/pods", 403,
			"Forbidden (user=system:serviceaccount:kube-system:nobody, verb=get, resource=nodes, " +
				"subresource(s)=[pods proxy])\n"},
		"fine-grained":     {"metrics", "GET", "/pods", 200, ""},
		"metrics":          {"metrics", "GET", "/metrics", 200, ""},
		"resource metrics": {"metrics", "GET", "/metrics/resource", 200, ""},
		"not stats": {"metrics", "GET", "/stats/summary", 403,
			"Forbidden (user=system:serviceaccount:kube-system:metrics, verb=get, resource=nodes, subresource(s)=[stats])\n"},
		"proxy permission covers pods": {"reader", "GET", "/pods", 200, ""},
		"get does not permit exec": {"reader", "GET", exec, 403,
			"Forbidden (user=system:serviceaccount:kube-system:reader, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		"path with dots": {"metrics", "GET", "/metrics/../exec/ns/p/c", 403, ""},
		"escaped path":   {"metrics", "GET", "/metrics%2F../exec/ns/p/c", 404, ""},
		"proxy does not cover statusz": {"reader", "GET", "/statusz", 403,
			"Forbidden (user=system:serviceaccount:kube-system:reader, verb=get, resource=nodes, subresource(s)=[statusz])\n"},
		"flagz requires configz": {"reader", "GET", "/flagz", 403,
			"Forbidden (user=system:serviceaccount:kube-system:reader, verb=get, resource=nodes, subresource(s)=[configz])\n"},
		// No driver is registered, so the status is 404.
		"driver call":            {"drivers", "POST", "/csi/d/csi.v1.Identity/Probe", 404, ""},
		"driver call with proxy": {"operator", "POST", "/csi/d/csi.v1.Identity/Probe", 404, ""},
		"driver call without permission": {"reader", "POST", "/csi/d/csi.v1.Identity/Probe", 403,
			"Forbidden (user=system:serviceaccount:kube-system:reader, verb=create, resource=nodes, " +
				"subresource(s)=[csi proxy])\n"},
		"csi does not permit run": {"drivers", "POST", "/run/ns/p/c?cmd=x", 403,
			"Forbidden (user=system:serviceaccount:kube-system:drivers, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		"run below a csi path":     {"drivers", "POST", "/csi/../run/ns/p/c?cmd=x", 403, ""},
		"path with the prefix csi": {"drivers", "POST", "/csis", 403, ""},
		"health":                   {"operator", "GET", "/healthz", 200, "ok"},
		"one check":                {"operator", "GET", "/healthz/syncloop", 200, "ok"},
		"no such check":            {"operator", "GET", "/healthz/nope", 404, "404 page not found\n"},
		"running pods":             {"operator", "GET", "/runningpods/", 500, "no runtime"},
		"run":                      {"operator", "POST", "/run/ns/p/c?cmd=echo+a", 200, "c:echo|a"},
		"run needs POST":           {"operator", "GET", "/run/ns/p/c?cmd=x", 405, "Method Not Allowed\n"},
		"no pod":                   {"operator", "POST", "/exec/ns/q/c?command=x&output=1", 404, "pod does not exist"},
		"wrong UID":                {"operator", "POST", "/exec/ns/p/u2/c?command=x&output=1", 404, "pod not found"},
		"no stream": {"operator", "POST", "/exec/ns/p/c?command=x", 400,
			"you must specify at least 1 of stdin, stdout, stderr"},
		"busy": {"operator", "POST", "/attach/ns/p/c?output=1", 429,
			"rpc error: code = ResourceExhausted desc = maximum number of in-flight requests exceeded"},
		"not an upgrade": {"operator", "POST", exec, 500, "Upgrade request required\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := f.do(t, c.account, c.method, c.path)
			if code != c.code || c.body != "" && body != c.body {
				t.Errorf("got %d %q, want %d %q", code, body, c.code, c.body)
			}
		})
	}
}

// TestHealth checks that the response lists failed checks without their reasons, and that a metric
// counts them.
func TestHealth(t *testing.T) {
	f := start(t)
	f.do(t, "operator", "GET", "/healthz")
	f.loop.Close()
	if code, body := f.do(t, "operator", "GET", "/healthz"); code != 500 ||
		body != "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n" {
		t.Errorf("%d %q", code, body)
	}
	code, body := f.do(t, "metrics", "GET", "/metrics/slis")
	for _, want := range []string{
		`kubernetes_healthcheck{name="ping",type="healthz"} 1`, `kubernetes_healthcheck{name="syncloop",type="healthz"} 0`,
		`kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="syncloop",status="success",type="healthz"} 1`,
	} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("%d, no %s: %s", code, want, body)
		}
	}
	if code, _ := f.do(t, "reader", "GET", "/metrics/slis"); code != 403 {
		t.Errorf("status without permission to read metrics: %d", code)
	}
}

func TestInformation(t *testing.T) {
	f := start(t)
	_, body := f.do(t, "operator", "GET", "/pods")
	var list v1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil || list.Kind != "PodList" ||
		len(list.Items) != 1 || list.Items[0].Name != "p" {
		t.Errorf("pods: %v %s", err, body)
	}
	_, body = f.do(t, "operator", "GET", "/configz")
	if !strings.Contains(body, `{"kubeletconfig":{`) || !strings.Contains(body, `"mode":"Webhook"`) {
		t.Errorf("configz: %s", body)
	}
	if _, body = f.do(t, "operator", "GET", "/flagz"); !strings.Contains(body, "kubelet flagz") ||
		!strings.Contains(body, "node-ip") || !strings.Contains(body, "192.0.2.1") {
		t.Errorf("flagz: %s", body)
	}
	if _, body = f.do(t, "operator", "GET", "/statusz"); !strings.Contains(body, "kubelet statusz") ||
		!strings.Contains(body, "/configz /debug /flagz /healthz /metrics") {
		t.Errorf("statusz: %s", body)
	}
	_, body = f.do(t, "operator", "GET", "/metrics/resource")
	want := `# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 2 1000000
# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
# HELP scrape_error [ALPHA] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE scrape_error gauge
scrape_error 0
`
	if body != want {
		t.Error(cmp.Diff(want, body))
	}
}

func TestStreams(t *testing.T) {
	f := start(t)
	target := f.url + "/exec/ns/p/c?command=cat&command=-&input=1&output=1&error=1"
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() (remotecommand.Executor, error){
		"SPDY": func() (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(f.config("operator"), "POST", u)
		},
		"WebSocket": func() (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(f.config("operator"), "GET", target)
		},
	} {
		t.Run(name, func(t *testing.T) {
			executor, err := open()
			if err != nil {
				t.Fatal(err)
			}
			var out, errOut bytes.Buffer
			err = executor.StreamWithContext(t.Context(),
				remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errOut})
			if err != nil || out.String() != "cat -:hello" || errOut.String() != "HELLO" {
				t.Errorf("%v, out %q, err %q", err, out.String(), errOut.String())
			}
		})
	}
}

func TestPortForward(t *testing.T) {
	f := start(t)
	u, err := url.Parse(f.url + "/portForward/ns/p")
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(f.config("operator"))
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	fw, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u),
		[]string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- fw.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	ports, err := fw.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("8080:ping"))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "8080:ping" {
		t.Errorf("%q %v", got, err)
	}
	close(stop)
	<-done
}

func TestCheckpoint(t *testing.T) {
	f := start(t)
	for _, c := range []struct {
		path string
		code int
		body string
	}{
		{"/checkpoint/ns/p/c", 200, `{"items":["/c/p-c-0.tar"]}`},
		{"/checkpoint/ns/p/c?timeout=1&timeout=2", 200, `{"items":["/c/p-c-2.tar"]}`},
		{"/checkpoint/ns/p/c?timeout=-1", 500, "checkpointing of ns/p/c failed (no time)"},
		{"/checkpoint/ns/p/c?timeout=x", 404, "cannot parse value of timeout parameter"},
		{"/checkpoint/ns/q/c", 404, "pod does not exist"},
		{"/checkpoint/ns/p/d", 404, "container d does not exist"},
	} {
		if code, body := f.do(t, "operator", "POST", c.path); code != c.code || strings.TrimSpace(body) != c.body {
			t.Errorf("%s: %d %q", c.path, code, body)
		}
	}
}
