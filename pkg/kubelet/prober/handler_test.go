// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

// serve starts an HTTP server. It returns a target with the server's IP address, and the server's
// port.
func serve(t *testing.T, h http.Handler, start func(*httptest.Server)) (Target, intstr.IntOrString) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	start(s)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	c := &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}
	return Target{Container: c, ID: "id", IP: u.Hostname()}, intstr.FromInt(port)
}

func TestHTTP(t *testing.T) {
	var seen *http.Request
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { seen = r })
	mux.HandleFunc("/fails", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/fails", http.StatusFound)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/round", http.StatusFound)
	})
	target, port := serve(t, mux, (*httptest.Server).Start)
	h := &Handler{}
	ask := func(g v1.HTTPGetAction) (bool, string) {
		seen = nil
		ok, text, err := h.Probe(t.Context(), target, &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &g}})
		if err != nil {
			return false, err.Error()
		}
		return ok, text
	}
	for name, c := range map[string]struct {
		g    v1.HTTPGetAction
		ok   bool
		text string
	}{
		"fine":               {v1.HTTPGetAction{Path: "/x?y=z", Port: port}, true, ""},
		"by the port's name": {v1.HTTPGetAction{Port: intstr.FromString("web")}, true, ""},
		"no such name": {v1.HTTPGetAction{Port: intstr.FromString("metrics")}, false,
			"invalid port number: metrics"},
		"failure": {v1.HTTPGetAction{Path: "/fails", Port: port}, false,
			"HTTP probe failed with statuscode: 500"},
		"redirect to the same host": {v1.HTTPGetAction{Path: "/here", Port: port}, false,
			"HTTP probe failed with statuscode: 500"},
		"redirect to another host is success": {v1.HTTPGetAction{Path: "/away", Port: port}, true,
			"Probe terminated redirects, Response body: <a href="},
		"redirect loop": {v1.HTTPGetAction{Path: "/round", Port: port}, false,
			"stopped after 10 redirects"},
	} {
		if ok, text := ask(c.g); ok != c.ok || !strings.Contains(text, c.text) || ok && c.text == "" && text != "" {
			t.Errorf("%s: %t %q", name, ok, text)
		}
	}
	ask(v1.HTTPGetAction{Port: port})
	if seen.UserAgent() != "kube-probe/1.37" || seen.Header.Get("Accept") != "*/*" {
		t.Errorf("headers %v", seen.Header)
	}
	ask(v1.HTTPGetAction{Port: port, HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "a.example"},
		{Name: "user-agent", Value: "mine"}, {Name: "Accept", Value: ""}, {Name: "X", Value: "1"}, {Name: "X", Value: "2"}}})
	if seen.Host != "a.example" || seen.UserAgent() != "mine" || seen.Header["Accept"] != nil ||
		len(seen.Header["X"]) != 2 {
		t.Errorf("host %q, headers %v", seen.Host, seen.Header)
	}
}

func TestHTTPSVerifiesNoCertificate(t *testing.T) {
	target, port := serve(t, http.NotFoundHandler(), (*httptest.Server).StartTLS)
	ok, text, _ := (&Handler{}).Probe(t.Context(), target,
		&v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Port: port}}})
	if ok || text != "HTTP probe failed with statuscode: 404" {
		t.Errorf("%t %q", ok, text)
	}
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	probe := func(port int) (bool, string) {
		target := Target{Container: &v1.Container{}, IP: "127.0.0.1"}
		ok, text, err := (&Handler{}).Probe(t.Context(), target,
			&v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}}})
		if err != nil {
			t.Error(err)
		}
		return ok, text
	}
	if ok, text := probe(l.Addr().(*net.TCPAddr).Port); !ok {
		t.Errorf("a port that is listened at: %s", text)
	}
	// No process listens on port 1.
	if ok, text := probe(1); ok || !strings.Contains(text, "refused") {
		t.Errorf("closed port: %t %q", ok, text)
	}
}

func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, state := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(s, state)
	state.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	target := Target{Container: &v1.Container{}, IP: "127.0.0.1"}
	for service, want := range map[string]string{"": "",
		"down": `service unhealthy (responded with "NOT_SERVING")`,
		"none": "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		ok, text, _ := (&Handler{}).Probe(ctx, target,
			&v1.Probe{ProbeHandler: v1.ProbeHandler{
				GRPC: &v1.GRPCAction{Port: int32(l.Addr().(*net.TCPAddr).Port), Service: &service}}})
		cancel()
		if ok != (want == "") || text != want {
			t.Errorf("service %q: %t %q, want %q", service, ok, text, want)
		}
	}
}

func TestExec(t *testing.T) {
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"cat", "/f"}}}}
	for name, c := range map[string]struct {
		output string
		exit   int32
		err    error
		ok     bool
		want   string
	}{
		"success": {"fine", 0, nil, true, ""},
		"failure": {"no such file", 1, nil, false, "no such file"},
		"late": {"", 0, fmt.Errorf("the runtime: %w", context.DeadlineExceeded), false,
			`command timed out: "cat /f" timed out`},
	} {
		h := &Handler{Exec: func(_ context.Context, id string, command []string) (string, int32, error) {
			if id != "id" || len(command) != 2 {
				t.Errorf("command %q in %q", command, id)
			}
			return c.output, c.exit, c.err
		}}
		if ok, text, err := h.Probe(t.Context(), Target{Container: &v1.Container{}, ID: "id"},
			probe); ok != c.ok || text != c.want || err != nil {
			t.Errorf("%s: %t %q %v", name, ok, text, err)
		}
	}
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	h := &Handler{Exec: func(context.Context, string, []string) (string, int32, error) { return "", 0, errors.New("cut") }}
	if ok, text, err := h.Probe(late, Target{Container: &v1.Container{}, ID: "id"}, probe); ok ||
		text != `command timed out: "cat /f" timed out` || err != nil {
		t.Errorf("timeout: %t %q %v", ok, text, err)
	}
	if ok, text, err := h.Probe(t.Context(), Target{Container: &v1.Container{}, ID: "id"}, probe); ok ||
		text != "" || err == nil || err.Error() != "cut" {
		t.Errorf("a runtime that fails: %t %q %v", ok, text, err)
	}
	http := &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("nowhere")}}}
	if ok, _, err := h.Probe(t.Context(), Target{Container: &v1.Container{}, IP: "127.0.0.1"}, http); ok || err == nil {
		t.Errorf("unknown port name: %t, %v", ok, err)
	}
}

// TestLifecycle checks that an HTTP handler succeeds with any response, that HTTPS falls back to
// HTTP, and that a tcpSocket handler fails although the API accepts it.
func TestLifecycle(t *testing.T) {
	var seen []*http.Request
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r) })
	mux.HandleFunc("/fails", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	mux.HandleFunc("/missing", http.NotFound)
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/round", http.StatusFound)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4*maxBody)) })
	plain, port := serve(t, mux, (*httptest.Server).Start)
	secure, securePort := serve(t, mux, (*httptest.Server).StartTLS)
	silent := says(t, "nothing")
	closed, _ := strconv.Atoi(silent[strings.LastIndexByte(silent, ':')+1:])
	const https = v1.URISchemeHTTPS
	secret := []v1.HTTPHeader{{Name: "Authorization", Value: "Bearer x"}, {Name: "X-Hook", Value: "1"}}
	for name, c := range map[string]struct {
		target  Target
		h       v1.LifecycleHandler
		err     string // part of the error; empty if the hook succeeds
		fell    bool
		headers map[string]string // headers of the last request
	}{
		"command": {plain,
			v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"a", "b"}}},
			"command 'a b' exited with 3: oops", false, nil},
		"success": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/x?y=z", Port: port}}, "", false,
			map[string]string{"User-Agent": "kube-lifecycle/1.37", "Accept": "*/*"}},
		"by the port's name": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("web")}}, "", false, nil},
		"no such port": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("none")}},
			"invalid port number: none", false, nil},
		"status 500": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/fails", Port: port}}, "", false, nil},
		"status 404": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/missing", Port: port}}, "", false, nil},
		"redirect to another host": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/away", Port: port}}, "", false, nil},
		"redirect loop": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/round", Port: port}},
			"stopped after 10 redirects", false, nil},
		"long response": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/long", Port: port}}, "", false, nil},
		"no answer": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt(closed)}}, "EOF", false, nil},
		"no address": {Target{Container: plain.Container},
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: port}}, "failed to find networking container", false, nil},
		"explicit host": {Target{Container: plain.Container},
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Host: plain.IP, Port: port}}, "", false, nil},
		"https": {secure,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Scheme: https, Port: securePort,
				HTTPHeaders: secret}}, "", false, map[string]string{"Authorization": "Bearer x"}},
		"HTTPS to an HTTP server": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Scheme: https, Path: "/x", Port: port,
				HTTPHeaders: secret}}, "", true,
			map[string]string{"Authorization": "", "X-Hook": "1", "User-Agent": "kube-lifecycle/1.37"}},
		"HTTPS to a closed port": {plain,
			v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Scheme: https, Port: intstr.FromInt(closed)}}, "EOF", false, nil},
		"tcp": {plain, v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{Port: port}},
			"invalid handler", false, nil},
		"none": {plain, v1.LifecycleHandler{}, "invalid handler", false, nil},
	} {
		seen = nil
		fell := false
		h := &Handler{
			Clock: clock.RealClock{}, Exec: func(context.Context, string, []string) (string, int32, error) {
				return "oops", 3, nil
			},
			FellBack: func(_ Target, host string) {
				fell = host == net.JoinHostPort(plain.IP, port.String())
			},
		}
		err := h.Lifecycle(t.Context(), c.target, &c.h)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if fell != c.fell {
			t.Errorf("%s: fell back to HTTP: %t", name, fell)
		}
		for key, value := range c.headers {
			if len(seen) == 0 || seen[len(seen)-1].Header.Get(key) != value {
				t.Errorf("%s: requests %+v, want header %s %q", name, seen, key, value)
			}
		}
	}
}

// TestExecExpandsStaticVariables checks that the container's environment variables are expanded in
// the command of a probe, but not in the command of a lifecycle handler.
func TestExecExpandsStaticVariables(t *testing.T) {
	var got []string
	h := &Handler{Exec: func(_ context.Context, _ string, command []string) (string, int32, error) {
		got = command
		return "", 0, nil
	}}
	target := Target{Container: &v1.Container{Env: []v1.EnvVar{{Name: "FILE", Value: "/ready"},
		{Name: "REF", ValueFrom: &v1.EnvVarSource{}}}}}
	action := &v1.ExecAction{Command: []string{"test", "-f", "$(FILE)", "$(OTHER)", "$$(FILE)", "[$(REF)]"}}
	if ok, text, err := h.Probe(t.Context(), target,
		&v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: action}}); !ok || err != nil {
		t.Fatal(ok, text, err)
	}
	if want := []string{"test", "-f", "/ready", "$(OTHER)", "$(FILE)", "[]"}; !slices.Equal(got, want) {
		t.Errorf("the probe ran %q, want %q", got, want)
	}
	if err := h.Lifecycle(t.Context(), target, &v1.LifecycleHandler{Exec: action}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, action.Command) {
		t.Errorf("the hook ran %q, want %q", got, action.Command)
	}
}

func TestSleep(t *testing.T) {
	c := testclock.NewFakeClock(time.Unix(0, 0))
	h := &Handler{Clock: c}
	done := make(chan error, 1)
	go func() {
		done <- h.Lifecycle(t.Context(), Target{}, &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}})
	}()
	for !c.HasWaiters() {
		select {
		case <-done:
			t.Fatal("did not sleep")
		default:
		}
	}
	c.Step(5 * time.Second)
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Lifecycle(ctx, Target{}, &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}); !errors.Is(
		err, ErrSleepCut) {
		t.Errorf("a sleep that was cut short: %v", err)
	}
}
