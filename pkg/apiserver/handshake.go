// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// handshaking is a listener whose connections have shaken hands before they are accepted,
// each in a goroutine that ends with it: cryptography needs a deep stack, which the one
// that goes on to serve the connection would keep for as long as that lasts. That is half
// of what an idle connection takes in stacks.
type handshaking struct {
	net.Listener
	config   *tls.Config
	patience time.Duration

	once  sync.Once
	ctx   context.Context // until Close
	end   context.CancelFunc
	ready chan accepted
}

// accepted is what Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

// newHandshaking returns a listener that gives clients patience to shake hands.
func newHandshaking(l net.Listener, config *tls.Config, patience time.Duration) *handshaking {
	h := &handshaking{Listener: l, config: config, patience: patience, ready: make(chan accepted)}
	h.ctx, h.end = context.WithCancel(context.Background())
	return h
}

// Accept returns the next connection that is ready, a *[tls.Conn]. One whose handshake
// failed is among them: it gives the same error to who asks for the handshake again,
// which is how the HTTP server notes it and answers those who do not speak TLS.
func (h *handshaking) Accept() (net.Conn, error) {
	h.once.Do(func() { go h.take() })
	select {
	case a := <-h.ready:
		return a.conn, a.err
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the handshakes that go on.
func (h *handshaking) Close() error {
	h.end()
	return h.Listener.Close()
}

// take accepts connections until Close. It goes on after an error when Accept has
// returned that: the server waits then, or closes.
func (h *handshaking) take() {
	for {
		conn, err := h.Listener.Accept()
		if err == nil {
			go h.shake(tls.Server(conn, h.config))
		} else if !h.give(accepted{err: err}) {
			return
		}
	}
}

func (h *handshaking) shake(conn *tls.Conn) {
	ctx, cancel := context.WithTimeout(h.ctx, h.patience)
	defer cancel()
	_ = conn.HandshakeContext(ctx) // the connection remembers it
	if !h.give(accepted{conn: conn}) {
		_ = conn.NetConn().Close()
	}
}

// give reports whether Accept has returned a.
func (h *handshaking) give(a accepted) bool {
	select {
	case h.ready <- a:
		return true
	case <-h.ctx.Done():
		return false
	}
}
