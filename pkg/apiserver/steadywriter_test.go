// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// TestSteadyWriter checks that writes to a client that stops reading fail, with HTTP/1 and HTTP/2.
func TestSteadyWriter(t *testing.T) {
	for major := 1; major <= 2; major++ {
		t.Run(fmt.Sprint("HTTP", major), func(t *testing.T) {
			ended := make(chan error, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				out, part := &steadyWriter{w, 50 * time.Millisecond}, make([]byte, 1<<20)
				for {
					if _, err := out.Write(part); err != nil {
						ended <- err
						return
					}
				}
			}))
			server.EnableHTTP2 = major == 2
			server.StartTLS()
			defer server.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if err := <-ended; resp.ProtoMajor != major || major == 1 && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: writes end with %v", resp.Proto, err)
			}
		})
	}
}
