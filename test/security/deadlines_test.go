// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/config"
)

const (
	// shortRequest is the time limit for ordinary requests in these tests.
	shortRequest = 4 * time.Second
	// wrongWait is how long a test waits for an expected event before it fails.
	wrongWait = 2 * time.Minute
	// stuck is the number of requests that hang at the same time. It is larger than the number of
	// seats, which is the server's limit of concurrent requests.
	stuck = 40
)

// newShortLab returns a lab whose server has few seats (allows few concurrent requests) and a short
// time limit for requests.
func newShortLab(t *testing.T, change func(*config.Config)) *lab {
	t.Helper()
	return newLab(t, func(c *config.Config) {
		c.RequestTimeout, c.MaxReads, c.MaxWrites = shortRequest, 8, 8
		if change != nil {
			change(c)
		}
	})
}

// dialAs opens a TLS connection with the client certificate of c. Its receive buffer is small, so
// that the server's writes block soon.
func dialAs(t *testing.T, c *rest.Config, protocol string) *tls.Conn {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(c)
	check(t, err)
	tlsConfig.NextProtos, tlsConfig.ServerName = []string{protocol}, "127.0.0.1"
	below, err := net.Dial("tcp", strings.TrimPrefix(c.Host, "https://"))
	check(t, err)
	check(t, below.(*net.TCPConn).SetReadBuffer(16<<10))
	conn := tls.Client(below, tlsConfig)
	t.Cleanup(func() { _ = below.Close() })
	check(t, conn.Handshake())
	return conn
}

// slowClient is an HTTP/2 client that sends only the frames that a test requests.
type slowClient struct {
	*http2.Framer
	conn *tls.Conn
	mu   sync.Mutex // guards writes to the connection
}

func dialSlow(t *testing.T, c *rest.Config, settings ...http2.Setting) *slowClient {
	t.Helper()
	conn := dialAs(t, c, "h2")
	_, err := io.WriteString(conn, http2.ClientPreface)
	check(t, err)
	s := &slowClient{Framer: http2.NewFramer(conn, conn), conn: conn}
	check(t, s.WriteSettings(settings...))
	return s
}

// begin sends the headers of a request. If body is true, they announce a body, but no part of the
// body is sent.
func (s *slowClient) begin(t *testing.T, stream uint32, method, path string, body bool) {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	fields := []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"},
		{Name: ":path", Value: path}, {Name: ":authority", Value: "x"}}
	if body {
		fields = append(fields, hpack.HeaderField{Name: "content-type", Value: "application/json"},
			hpack.HeaderField{Name: "content-length", Value: "500"})
	}
	for _, f := range fields {
		check(t, e.WriteField(f))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	check(t, s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(),
		EndStream: !body, EndHeaders: true}))
}

// ends reads until all streams have ended. It returns for each stream its status, or "reset". It
// does not increase the flow-control window, but it answers pings.
func (s *slowClient) ends(t *testing.T, streams int) map[uint32]string {
	t.Helper()
	check(t, s.conn.SetReadDeadline(time.Now().Add(wrongWait)))
	out, done := map[uint32]string{}, map[uint32]struct{}{}
	decoder := hpack.NewDecoder(4096, nil)
	for len(done) < streams {
		frame, err := s.ReadFrame()
		if err != nil {
			t.Fatalf("after %d of %d answers: %v", len(done), streams, err)
		}
		switch f := frame.(type) {
		case *http2.PingFrame:
			if !f.IsAck() {
				s.mu.Lock()
				check(t, s.WritePing(true, f.Data))
				s.mu.Unlock()
			}
		case *http2.HeadersFrame:
			fields, err := decoder.DecodeFull(f.HeaderBlockFragment())
			check(t, err)
			if len(fields) > 0 && fields[0].Name == ":status" {
				out[f.StreamID] = fields[0].Value
			}
			if f.StreamEnded() {
				done[f.StreamID] = struct{}{}
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				done[f.StreamID] = struct{}{}
			}
		case *http2.RSTStreamFrame:
			// A reset after a response only stops the upload of the request's body.
			if _, ok := done[f.StreamID]; !ok {
				out[f.StreamID], done[f.StreamID] = "reset", struct{}{}
			}
		}
	}
	return out
}

// served waits until requests of another user succeed again.
func served(t *testing.T, victim kubernetes.Interface) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, wrongWait, true,
		func(ctx context.Context) (bool, error) {
			for range 3 {
				_, err := victim.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{
						NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"}}}, metav1.CreateOptions{})
				if err != nil {
					return false, nil
				}
			}
			return true, nil
		})
	if err != nil {
		t.Errorf("another user's request fails: %v", err)
	}
}

// impatient returns a client of the user that does not retry.
func (l *lab) impatient(t *testing.T, user string) kubernetes.Interface {
	t.Helper()
	c := l.UserConfig(t, user)
	c.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil {
				resp.Header.Del("Retry-After")
			}
			return resp, err
		})
	}
	client, err := kubernetes.NewForConfig(c)
	check(t, err)
	return client
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

const reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// TestBodyThatNeverComes checks that requests whose bodies never arrive do not occupy the seats of
// their priority level for long. Otherwise other users of the level would be blocked.
func TestBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		lab := newShortLab(t, nil)
		victim := lab.impatient(t, "victim")
		c := dialSlow(t, lab.UserConfig(t, "attacker"))
		for i := range uint32(stuck) {
			c.begin(t, 2*i+1, http.MethodPost, reviewPath, true)
		}
		timedOut := 0
		for _, end := range c.ends(t, stuck) {
			if end == "504" {
				timedOut++
			} else if end != "429" {
				t.Errorf("a request ended with %s", end)
			}
		}
		if timedOut == 0 {
			t.Error("no request timed out")
		}
		served(t, victim)
	})
	for name, framing := range map[string]string{"HTTP/1.1": "Content-Length: 500",
		"HTTP/1.1 in chunks": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab := newShortLab(t, nil)
			victim, attacker := lab.impatient(t, "victim"), lab.UserConfig(t, "attacker")
			var conns []*tls.Conn
			for range stuck {
				conn := dialAs(t, attacker, "http/1.1")
				_, err := fmt.Fprintf(conn,
					"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n", reviewPath, framing)
				check(t, err)
				conns = append(conns, conn)
			}
			timedOut := 0
			for _, conn := range conns {
				check(t, conn.SetReadDeadline(time.Now().Add(wrongWait)))
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				check(t, err)
				switch resp.StatusCode {
				case http.StatusGatewayTimeout:
					timedOut++
					if !strings.Contains(string(body), "request did not complete within the allotted timeout") {
						t.Errorf("got %s", body)
					}
				case http.StatusTooManyRequests:
				default:
					t.Errorf("a request ended with %s", resp.Status)
				}
			}
			if timedOut == 0 {
				t.Error("no request timed out")
			}
			served(t, victim)
		})
	}
}

// TestBodyOfStranger checks that a client without credentials cannot keep a connection open by
// sending only a part of the body of a rejected request.
func TestBodyOfStranger(t *testing.T) {
	t.Parallel()
	lab := newShortLab(t, nil)
	conn := dialAs(t, lab.TokenConfig(""), "http/1.1")
	_, err := fmt.Fprintf(conn,
		"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n", reviewPath)
	check(t, err)
	check(t, conn.SetReadDeadline(time.Now().Add(wrongWait)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(t, err)
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	check(t, err)
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// TestAnswerThatIsNotRead checks that requests whose responses are not read by the client do not
// occupy their seats for long.
func TestAnswerThatIsNotRead(t *testing.T) {
	t.Parallel()
	none := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
	for name, path := range map[string]string{"large": "/openapi/v2", "small": "/version"} {
		t.Run("HTTP/2 without a window, "+name, func(t *testing.T) {
			t.Parallel()
			lab := newShortLab(t, nil)
			victim := lab.impatient(t, "victim")
			c := dialSlow(t, lab.UserConfig(t, "attacker"), none)
			for i := range uint32(stuck) {
				c.begin(t, 2*i+1, http.MethodGet, path, false)
			}
			for stream, end := range c.ends(t, stuck) {
				if end != "reset" { // a status is accepted too, because rejections with status 429 have a body
					t.Errorf("stream %d ended with %s", stream, end)
				}
			}
			served(t, victim)
		})
	}
	t.Run("HTTP/2 without credentials", func(t *testing.T) {
		t.Parallel()
		lab := newShortLab(t, nil)
		c := dialSlow(t, lab.TokenConfig(""), none)
		c.begin(t, 1, http.MethodGet, "/api/v1/pods?watch=true", false)
		if end := c.ends(t, 1)[1]; end != "reset" {
			t.Errorf("the stream ended with %s", end)
		}
	})
	t.Run("HTTP/2, and nothing else is read", func(t *testing.T) {
		t.Parallel()
		lab := newShortLab(t, nil)
		victim := lab.impatient(t, "victim")
		c := dialSlow(t, lab.UserConfig(t, "attacker"), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		check(t, c.WriteWindowUpdate(0, 1<<30))
		for i := range uint32(stuck) {
			c.begin(t, 2*i+1, http.MethodGet, "/openapi/v2", false)
		}
		// The client sends only frames that the server need not answer, so that the server has no
		// reason to send pings.
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, wrongWait, true,
			func(context.Context) (bool, error) {
				return c.WriteWindowUpdate(0, 1) != nil, nil
			})
		if err != nil {
			t.Error("the connection is still open although its client reads nothing")
		}
		served(t, victim)
	})
	t.Run("HTTP/1.1", func(t *testing.T) {
		t.Parallel()
		lab := newShortLab(t, nil)
		victim, attacker := lab.impatient(t, "victim"), lab.UserConfig(t, "attacker")
		var conns []*tls.Conn
		for range stuck {
			conn := dialAs(t, attacker, "http/1.1")
			// The responses are larger than the socket buffers, so the server's writes block.
			_, err := io.WriteString(conn, strings.Repeat("GET /openapi/v2 HTTP/1.1\r\nHost: x\r\n\r\n", 20))
			check(t, err)
			conns = append(conns, conn)
		}
		// Wait until the server has closed the stuck connections. Requests that were rejected may
		// still be open.
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, wrongWait, true,
			func(context.Context) (bool, error) {
				for _, conn := range conns {
					if _, err := io.WriteString(conn, "\r\n"); err != nil {
						return true, nil
					}
				}
				return false, nil
			})
		if err != nil {
			t.Error("no connection ended although the clients read nothing")
		}
		served(t, victim)
	})
}

// TestWatchThatIsNotRead checks that the server ends a watch whose client does not read. Until
// then, unsent events stay in memory, with the states of the store that they refer to.
func TestWatchThatIsNotRead(t *testing.T) {
	t.Parallel()
	lab := newShortLab(t, nil)
	lab.namespace(t, "a")
	for i := range 3 {
		_, err := lab.Client.CoreV1().ConfigMaps("a").Create(t.Context(), &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", i)},
			Data:       map[string]string{"a": strings.Repeat("a", 100<<10)}}, metav1.CreateOptions{})
		check(t, err)
	}
	const path = "/api/v1/namespaces/a/configmaps?watch=true&timeoutSeconds=100000&resourceVersion=0"
	for name, window := range map[string]uint32{"no window": 0, "a small window": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dialSlow(t, lab.Config, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
			check(t, c.WriteWindowUpdate(0, 1<<30))
			c.begin(t, 1, http.MethodGet, path, false)
			if end := c.ends(t, 1)[1]; end != "reset" && end != "200" {
				t.Errorf("the watch ended with %s", end)
			}
		})
	}
}

// TestLongRunningAfterDeadlines checks that watches, logs and commands may take longer than the
// time limit of ordinary requests.
func TestLongRunningAfterDeadlines(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	kubelet := fakeKubelet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if strings.HasPrefix(r.URL.Path, "/containerLogs/") {
			_, _ = io.WriteString(w, "begun\n")
			_ = control.Flush()
			<-next
			_, _ = io.WriteString(w, "later\n")
			return
		}
		conn, rw, err := control.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString(line)
		_ = rw.Flush()
	}))
	lab := newShortLab(t, reaching)
	lab.namespace(t, "a")
	lab.node(t, "n1", kubelet)
	lab.pod(t, "a", "p", "n1", "192.0.2.10")

	const watched = "/api/v1/namespaces/a/configmaps?watch=true"
	logs := map[string]*bufio.Reader{}
	for name, protocol := range map[string]string{"HTTP/2": "h2", "HTTP/1.1": "http/1.1"} {
		for what, path := range map[string]string{"watch": watched, "log": "/api/v1/namespaces/a/pods/p/log?follow=true"} {
			logs[what+" by "+name] = open(t, lab.Config, protocol, path)
		}
	}
	exec, resp := raw(t, lab.Config, "POST /api/v1/namespaces/a/pods/p/exec?command=id&stdout=1 HTTP/1.1\r\nHost: x\r\n"+
		"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	for name, r := range logs {
		if strings.HasPrefix(name, "log") {
			if line, err := r.ReadString('\n'); line != "begun\n" {
				t.Fatalf("%s: %q, %v", name, line, err)
			}
		}
	}

	// Start an ordinary request after the watches, and wait until it is aborted. By then the
	// deadlines would have passed for the watches too.
	c := dialSlow(t, lab.UserConfig(t, "attacker"), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	c.begin(t, 1, http.MethodPost, reviewPath, true)
	c.begin(t, 3, http.MethodGet, "/version", false)
	for stream, end := range c.ends(t, 2) {
		if end != "reset" {
			t.Errorf("stream %d ended with %s", stream, end)
		}
	}

	close(next)
	_, err := lab.Client.CoreV1().ConfigMaps("a").Create(t.Context(),
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{})
	check(t, err)
	for name, r := range logs {
		line, err := r.ReadString('\n')
		if !strings.Contains(line, "later") {
			t.Errorf("%s: %q, %v", name, line, err)
		}
	}
	_, err = io.WriteString(exec, "echo\n")
	check(t, err)
	if line, err := bufio.NewReader(exec).ReadString('\n'); line != "echo\n" {
		t.Errorf("exec: %q, %v", line, err)
	}
}

// open sends a long-running request, and returns a reader for the response.
func open(t *testing.T, c *rest.Config, protocol, path string) *bufio.Reader {
	t.Helper()
	c = rest.CopyConfig(c)
	c.NextProtos = []string{protocol}
	client, err := rest.HTTPClientFor(c)
	check(t, err)
	client.Timeout = 0
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+path, nil)
	check(t, err)
	resp, err := client.Do(req)
	check(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if h2 := protocol == "h2"; h2 != (resp.ProtoMajor == 2) {
		t.Fatalf("%s speaks %s", protocol, resp.Proto)
	}
	return bufio.NewReader(resp.Body)
}
