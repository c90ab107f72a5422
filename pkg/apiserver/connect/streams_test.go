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

	"golang.org/x/net/websocket"
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
