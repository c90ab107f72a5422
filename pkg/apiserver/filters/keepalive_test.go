// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestConnectionAfterDeadline sends two requests over one HTTP/1.1 connection, and the first may
// exceed its deadline. Then the server must either close the connection, or serve the second
// request with a context that is not canceled.
func TestConnectionAfterDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		query  string
		body   string // the body that the client sends; Content-Length is always 3
		read   bool   // whether the handler reads the body
		flush  bool   // whether the handler sends the header before the deadline
		status int
		closed bool
	}{
		"in time":                {"", "abc", true, false, http.StatusOK, false},
		"body read":              {"?timeout=20ms", "abc", true, false, http.StatusGatewayTimeout, true},
		"body not read":          {"?timeout=20ms", "abc", false, false, http.StatusGatewayTimeout, true},
		"incomplete body":        {"?timeout=20ms", "a", true, false, http.StatusGatewayTimeout, true},
		"incomplete and ignored": {"?timeout=20ms", "a", false, false, http.StatusGatewayTimeout, true},
		"answer has begun":       {"?timeout=3s", "abc", true, true, http.StatusOK, false},
	} {
		t.Run(name, func(t *testing.T) {
			api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					if err := r.Context().Err(); err != nil {
						t.Errorf("the second request begins with: %v", err)
					}
					return
				}
				if tc.flush {
					if err := http.NewResponseController(w).Flush(); err != nil {
						t.Error(err)
					}
				}
				if tc.read {
					_, _ = io.ReadAll(r.Body) // returns at the deadline at the latest
				}
				if tc.query != "" {
					<-r.Context().Done()
				}
				if !tc.flush {
					w.WriteHeader(tc.status)
				}
			})
			server := httptest.NewServer(Chain(api, wrapping(authorizer.DecisionAllow)))
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close() //nolint:errcheck // the test needs the connection no longer
			replies := bufio.NewReader(conn)
			if _, err := fmt.Fprintf(conn,
				"POST /api/v1/namespaces/a/pods%s HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n%s", tc.query,
				tc.body); err != nil {
				t.Fatal(err)
			}
			first, err := http.ReadResponse(replies, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, first.Body); err != nil {
				t.Fatal(err)
			}
			if first.StatusCode != tc.status || first.Close != tc.closed {
				t.Fatalf("got status %d, closed %t; want %d, %t", first.StatusCode, first.Close, tc.status, tc.closed)
			}
			if first.Close {
				return
			}
			if _, err := io.WriteString(conn, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			second, err := http.ReadResponse(replies, nil)
			if err != nil {
				t.Fatal(err)
			}
			if second.StatusCode != http.StatusOK {
				t.Errorf("the second request got status %d", second.StatusCode)
			}
		})
	}
}
