// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/apiserver/http2server/http2test"
	"keelson.dev/apiserver/rest"
)

// fillLarge creates so many config maps that their list is larger than the flow-control window of
// an HTTP/2 client.
func fillLarge(t *testing.T, e *env) {
	t.Helper()
	for i := range 400 {
		e.must(t, "POST", "/api/v1/namespaces/a/configmaps",
			fmt.Sprintf(`{"metadata":{"name":"c-%d"},"data":{"x":%q}}`, i, strings.Repeat("y", 20_000)))
	}
}

// large returns a client that does not decompress responses.
func large(t *testing.T) *http.Client {
	tr := &http.Transport{ForceAttemptHTTP2: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server is the test's
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// listed returns the header, without the date, and the body of the response to a list.
func listed(t *testing.T, client *http.Client, host, accept, encoding string) (http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, host+"/api/v1/configmaps", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Encoding", encoding)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // the whole body has been read
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d after %d bytes, %v", accept, resp.StatusCode, len(body), err)
	}
	resp.Header.Del("Date")
	return resp.Header, body
}

// sizes returns the sum of all response sizes that the metric of response sizes has recorded.
func sizes(t *testing.T, registry *prometheus.Registry) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "apiserver_response_sizes" {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetHistogram().GetSampleSum()
		}
	}
	return sum
}

// TestLargeLists reads lists over HTTP/2, several at the same time on one connection, and without a
// network. The header, the body and the metric of sizes must be the same in all cases.
func TestLargeLists(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := newEnv(t, func(c *rest.Config) { c.Metrics = registry })
	fillLarge(t, e)
	returned := make(chan string, 8)
	host, client := listen(t, e, returned), large(t)
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		for _, encoding := range []string{"identity", "gzip"} {
			header, want := listed(t, &e.client, "http://server", accept, encoding)
			before := sizes(t, registry)
			const times = 3
			var all sync.WaitGroup
			for range times {
				all.Go(func() {
					h, got := listed(t, client, host, accept, encoding)
					if !bytes.Equal(got, want) {
						t.Errorf("%s, %s: %d bytes, want %d", accept, encoding, len(got), len(want))
					}
					if !maps.EqualFunc(h, header, func(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
						t.Errorf("%s, %s: header %v, want %v", accept, encoding, h, header)
					}
				})
			}
			all.Wait()
			for range times {
				<-returned
			}
			if got := sizes(t, registry) - before; got != float64(times*len(want)) {
				t.Errorf("%s, %s: %v bytes counted for %d lists of %d", accept, encoding, got, times, len(want))
			}
		}
	}
}

// TestLargeListIsCut checks that a client gets an error if the server can send only a part of a
// list.
func TestLargeListIsCut(t *testing.T) {
	e := newEnv(t, nil)
	fillLarge(t, e)
	end, ended := make(chan struct{}), make(chan struct{})
	host := "https://" + http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			<-end
			cancel()
			close(ended)
		}()
		e.handler.ServeHTTP(w, r.WithContext(ctx))
	}))
	resp, err := large(t).Get(host + "/api/v1/configmaps")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // the response is incomplete anyway
	close(end)              // the client has read nothing, and the server waits for it
	<-ended
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer ends after %d bytes as if it were complete", len(body))
	}
}
