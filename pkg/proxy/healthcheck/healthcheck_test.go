// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestProxy(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := clocktesting.NewFakeClock(start)
	counted := map[string]int{}
	p := NewProxy(clock, time.Minute, func(path string, code int) { counted[path+strconv.Itoa(code)]++ })
	get := func(h http.HandlerFunc) (int, string) {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code, w.Body.String()
	}
	expect := func(why string, h http.HandlerFunc, code int, body string) {
		t.Helper()
		c, b := get(h)
		if c != code || body != "" && b != body {
			t.Errorf("%s: %d %s\nwant %d %s", why, c, b, code, body)
		}
	}
	expect("without a node", p.Healthz, 503, "")
	if p.Synced() {
		t.Error("synced before the first update")
	}
	p.Node(&corev1.Node{})
	p.Queued(corev1.IPv4Protocol)
	p.Updated(corev1.IPv4Protocol)
	clock.Step(time.Second)
	expect("healthy", p.Healthz, 200, `{"lastUpdated":"2030-01-02T03:04:06Z",`+
		`"currentTime":"2030-01-02T03:04:06Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2030-01-02T03:04:05Z","healthy":true}}}`)
	expect("live", p.Livez, 200, `{"lastUpdated":"2030-01-02T03:04:06Z",`+
		`"currentTime":"2030-01-02T03:04:06Z","healthy":true,"status":{"IPv4":{"lastUpdated":"2030-01-02T03:04:05Z","healthy":true}}}`)

	p.Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: start}}})
	expect("a node that is deleted", p.Healthz, 503, "")
	expect("a node that is deleted lives", p.Livez, 200, "")
	p.Node(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: toBeDeleted}}}})
	expect("a node that the autoscaler removes", p.Healthz, 503, "")
	p.Node(&corev1.Node{})

	p.Queued(corev1.IPv4Protocol)
	clock.Step(59 * time.Second)
	p.Queued(corev1.IPv4Protocol) // does not count, because an older change is still pending
	expect("a change waits, not too long", p.Livez, 200, "")
	clock.Step(2 * time.Second)
	expect("a change waits too long", p.Livez, 503, "")
	p.Updated(corev1.IPv4Protocol)
	expect("well again", p.Healthz, 200, "")
	if counted["healthz503"] != 3 || counted["livez503"] != 1 || counted["livez200"] != 3 {
		t.Errorf("counted %v", counted)
	}
}

func TestServices(t *testing.T) {
	healthy := true
	var failures []error
	s := NewServices(func() bool { return healthy }, func() []string { return []string{"127.0.0.1"} },
		func(_ types.NamespacedName, err error) { failures = append(failures, err) },
		slog.New(slog.DiscardHandler))
	defer s.Close()
	var port uint16
	name := types.NamespacedName{Namespace: "ns", Name: "lb"}
	ctx := context.Background()
	expect := func(why string, code int, weight, body string) {
		t.Helper()
		res, err := http.Get("http://127.0.0.1:" + strconv.Itoa(int(port)))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != code || res.Header.Get("X-Load-Balancing-Endpoint-Weight") != weight ||
			body != "" && string(got) != body {
			t.Errorf("%s: %d %v %s", why, res.StatusCode, res.Header, got)
		}
	}
	for { // retry, because another process may have taken the free port
		port = freePort(t)
		if s.Set(ctx, name, port, 2); len(failures) == 0 {
			break
		}
		s.Set(ctx, name, 0, 0)
		failures = nil
	}
	expect("two", 200, "2", "{\n\t\"service\": {\n\t\t\"namespace\": \"ns\",\n\t\t\"name\": "+
		"\"lb\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}")
	s.Set(ctx, name, port, 0)
	expect("none", 503, "0", "")
	s.Set(ctx, name, port, 1)
	healthy = false
	expect("an ill proxy", 503, "1", "")

	s.Set(ctx, types.NamespacedName{Namespace: "ns", Name: "other"}, port, 1)
	if len(failures) != 1 {
		t.Errorf("a port that is taken: %v", failures)
	}
	s.Set(ctx, name, 0, 0)
	if _, err := http.Get("http://127.0.0.1:" + strconv.Itoa(int(port))); err == nil {
		t.Error("still served")
	}
}

func freePort(t *testing.T) uint16 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}
