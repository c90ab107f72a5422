// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"keelson.dev/api/clock"
)

func TestLogsOverWebSocket(t *testing.T) {
	const want = "container is alive\n"
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, want)
	}))
	defer kubelet.Close()
	location, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if err := stream(w, r, location, http.DefaultTransport, "web"); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()

	conn, err := websocket.Dial("ws"+strings.TrimPrefix(server.URL, "http"), "binary.k8s.io", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // read to its end
	var got []string
	for {
		var message []byte
		if err := websocket.Message.Receive(conn, &message); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(message))
	}
	if len(got) == 0 || got[0] != "" || strings.Join(got, "") != want {
		t.Errorf("messages %q, want an empty one and %q", got, want)
	}
}

// TestMaxBytesPerSecond checks that an upgraded connection is limited to MaxBytesPerSecond.
func TestMaxBytesPerSecond(t *testing.T) {
	const size = 3000
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"+strings.Repeat("a", size))
		_ = conn.Close()
	}))
	defer kubelet.Close()
	location, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	pods := &Pods{Kubelets: &Kubelets{cfg: KubeletConfig{Clock: clock.Real()},
		current: &transports{streams: kubelet.Client().Transport.(*http.Transport)}}, MaxBytesPerSecond: size / 2}
	server := httptest.NewServer(pods.upgrading(location))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "x")
	begun := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // read to its end
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusSwitchingProtocols || len(body) != size {
		t.Fatalf("%s, %d bytes, %v", resp.Status, len(body), err)
	}
	if took := time.Since(begun); took < 300*time.Millisecond {
		t.Errorf("%d bytes took %s", size, took)
	}
}
