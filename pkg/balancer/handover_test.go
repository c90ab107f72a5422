// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/balancer"
)

// chain is a balancer that is restarted again and again. The test keeps what systemd keeps.
type chain struct {
	*testing.T
	servers []string
	kept    *os.File // the listener
	address string

	mu    sync.Mutex
	files [][]*os.File // the connections
	stop  context.CancelFunc
	ended chan error
}

func newChain(t *testing.T, servers ...string) *chain {
	t.Helper()
	l := listen(t)
	kept, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	c := &chain{T: t, servers: servers, kept: kept, address: l.Addr().String()}
	_ = l.Close() // kept is a copy of it
	c.start()
	t.Cleanup(func() {
		c.end()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, files := range c.files {
			for _, f := range files {
				_ = f.Close()
			}
		}
	})
	return c
}

// keep is the function that the balancer calls for each connection when it ends.
func (c *chain) keep(conn balancer.Connection) error {
	var files []*os.File
	for _, tcp := range []*net.TCPConn{conn.Client, conn.Server} {
		if tcp == nil {
			continue
		}
		f, err := tcp.File()
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files = append(c.files, files)
	return nil
}

// start starts the next balancer with what the last one has handed over.
func (c *chain) start() {
	c.Helper()
	l, err := net.FileListener(c.kept)
	if err != nil {
		c.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var inherited []balancer.Connection
	for _, files := range c.files {
		var conns [2]*net.TCPConn
		for i, f := range files {
			conn, err := net.FileConn(f)
			if err != nil {
				c.Fatal(err)
			}
			_ = f.Close()
			conns[i], _ = conn.(*net.TCPConn)
		}
		inherited = append(inherited, balancer.Connection{Client: conns[0], Server: conns[1]})
	}
	c.files = nil
	b := balancer.New(clock.Real(), slog.New(slog.DiscardHandler))
	b.HandOver(c.keep)
	b.SetServers(c.servers)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	c.stop, c.ended = cancel, make(chan error, 1)
	go func() { c.ended <- b.Serve(ctx, l, inherited...) }()
}

func (c *chain) end() {
	c.Helper()
	c.stop()
	if err := <-c.ended; err != nil {
		c.Error(err)
	}
}

// TestHandOver restarts a balancer while clients write without a pause, with both versions of HTTP and TLS.
// No request may fail, and no connection may be opened again.
func TestHandOver(t *testing.T) {
	const clients, restarts = 4, 30
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			_, _ = w.Write(body)
		}
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	c := newChain(t, server.Listener.Addr().String())
	var written atomic.Int64
	var writers sync.WaitGroup
	writing, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range clients {
		transport := server.Client().Transport.(*http.Transport).Clone()
		if i%2 == 0 {
			transport.ForceAttemptHTTP2 = false
			transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
		client := &http.Client{Transport: transport}
		defer client.CloseIdleConnections()
		body := bytes.Repeat([]byte{byte(i)}, 1000<<(4*i)) // up to 4 MB: a restart interrupts it in the middle
		writers.Go(func() {
			for writing.Err() == nil {
				if err := put(client, "https://"+c.address, body); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				written.Add(1)
			}
		})
	}
	for range restarts {
		for before := written.Load(); written.Load() < before+clients && !t.Failed(); {
			if err := put(server.Client(), server.URL, nil); err != nil { // takes some time
				t.Fatal(err)
			}
		}
		c.end()
		c.start()
	}
	stop()
	writers.Wait()
	t.Logf("%d requests", written.Load())
	if n := opened.Load(); n != clients+1 {
		t.Errorf("%d connections, want %d", n, clients+1)
	}
}

var errDifferent = errors.New("the answer is not the request")

// put sends a request whose method is not repeated by a client after an error.
func put(client *http.Client, url string, body []byte) error {
	req, err := http.NewRequest(http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.GetBody = nil // so that the transport does not repeat it either
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Equal(got, body) {
		err = fmt.Errorf("%w: %d bytes, want %d", errDifferent, len(got), len(body))
	}
	return err
}

// TestHandOverWithoutServer checks that a client that waits for a server when the balancer ends gets one from
// the next balancer, and that a connection to a server that has left the list is closed.
func TestHandOverWithoutServer(t *testing.T) {
	down := listen(t)
	_ = down.Close()
	c := newChain(t, down.Addr().String())
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	one, _ := talker(t, "1")
	c.end()
	c.servers = []string{one}
	c.start()
	name := make([]byte, 1)
	if _, err := io.ReadFull(conn, name); err != nil || string(name) != "1" {
		t.Errorf("server %q, %v", name, err)
	}
	two, _ := talker(t, "2")
	c.end()
	c.servers = []string{two}
	c.start()
	client{Conn: conn}.ends(t)
}
