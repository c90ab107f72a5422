// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"keelson.dev/apiserver/http2server/http2test"
)

// listen serves e over HTTP/2 and returns the URL of the server. When a handler returns, listen
// sends the query of its request to returned.
func listen(t *testing.T, e *env, returned chan<- string) string {
	t.Helper()
	return "https://" + http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.handler.ServeHTTP(w, r)
		returned <- r.URL.RawQuery
	}))
}

// watching opens a watch of config maps, and returns a function that reads the watch up to the word
// last. It leaves out what follows, because a read can end anywhere in an event.
func watching(t *testing.T, client *http.Client, host, query, accept, last string) func() []byte {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/api/v1/configmaps?watch=true&"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return func() []byte {
		defer cancel()
		defer resp.Body.Close() //nolint:errcheck // the test reads no further
		var got []byte
		buf := make([]byte, 64<<10)
		for {
			n, err := resp.Body.Read(buf)
			begin := max(0, len(got)-len(last))
			got = append(got, buf[:n]...)
			if at := bytes.Index(got[begin:], []byte(last)); at >= 0 {
				return got[:begin+at+len(last)]
			}
			if err != nil {
				t.Errorf("%s: %v after %d bytes", query, err, len(got))
				return got
			}
		}
	}
}

// TestWatchesTogether opens watches in several forms, each on a connection of its own, on a shared
// connection, and without a network. All watches in one form must receive the same bytes, even if
// the client begins to read after the last event.
func TestWatchesTogether(t *testing.T) {
	e := newEnv(t, nil)
	returned := make(chan string, 64)
	host := listen(t, e, returned)
	for i := range 300 { // these objects exist when the watches begin
		e.must(t, "POST", "/api/v1/namespaces/a/configmaps",
			fmt.Sprintf(`{"metadata":{"name":"old-%d"},"data":{"x":%q}}`, i, strings.Repeat("y", 1000)))
	}
	const last = "the-last-one"
	type pair struct {
		name                    string
		plain, alone, alongside func() []byte
	}
	var pairs []pair
	clients := func() *http.Client {
		tr := &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server is the test's
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	shared := clients()
	for _, query := range []string{"", "labelSelector=l",
		"resourceVersion=0&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"} {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf;stream=watch",
			"application/json;as=Table;g=meta.k8s.io;v=v1"} {
			pairs = append(pairs, pair{
				name:      query + " " + accept,
				plain:     watching(t, &e.client, "http://server", query, accept, last),
				alone:     watching(t, clients(), host, query, accept, last),
				alongside: watching(t, shared, host, query, accept, last),
			})
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	early := map[int][]byte{}
	var reading sync.WaitGroup
	var mu sync.Mutex
	for i := range pairs { // the remaining watches are read after the last event
		reading.Go(func() {
			got := pairs[i].alongside()
			mu.Lock()
			defer mu.Unlock()
			early[i] = got
		})
	}
	for n := range 600 {
		i := random.IntN(20)
		label := []string{"", `"l":"1"`}[random.IntN(2)]
		body := fmt.Sprintf(`{"metadata":{"name":"n%d","labels":{%s}},"data":{"n":"%d","x":%q}}`, i, label, n,
			strings.Repeat("z", random.IntN(30_000)))
		if r := e.do(t, "PUT", fmt.Sprintf("/api/v1/namespaces/a/configmaps/n%d", i), body); r.code == 404 {
			e.must(t, "POST", "/api/v1/namespaces/a/configmaps", body)
		}
	}
	e.must(t, "POST", "/api/v1/namespaces/a/configmaps", `{"metadata":{"name":"`+last+`","labels":{"l":"2"}}}`)
	reading.Wait()
	for i, p := range pairs {
		want := p.plain()
		for how, got := range map[string][]byte{"read at once": early[i], "read later": p.alone()} {
			if !bytes.Equal(got, want) {
				at := 0
				for at < len(got) && at < len(want) && got[at] == want[at] {
					at++
				}
				t.Errorf("%s, %s: %d bytes, want %d; they differ at %d: %.200q, want %.200q", p.name, how,
					len(got), len(want), at, got[at:], want[at:])
			}
		}
	}
	for range 2 * len(pairs) {
		<-returned
	}
}

// TestWatchTimeout checks that a watch ends after its timeout.
func TestWatchTimeout(t *testing.T) {
	e := newEnv(t, nil)
	returned := make(chan string, 8)
	host := listen(t, e, returned)
	transport := &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server is the test's
	defer transport.CloseIdleConnections()
	e.must(t, "POST", "/api/v1/namespaces/a/configmaps", `{"metadata":{"name":"a"}}`)
	resp, err := (&http.Client{Transport: transport}).Get(host + "/api/v1/configmaps?watch=true&timeoutSeconds=1")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // the whole body has been read
	if err != nil || !strings.HasPrefix(string(body), `{"type":"ADDED","object":{"kind":"ConfigMap"`) ||
		strings.Count(string(body), "\n") != 1 {
		t.Errorf("got %s, %v", body, err)
	}
	<-returned
}
