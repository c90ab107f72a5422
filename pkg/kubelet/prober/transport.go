// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	maxAnswer  = 1 << 20 // maximum number of bytes that are read from a connection
	maxInterim = 5       // maximum number of responses with a status of 1xx before the final one
)

// once is an HTTP/1.1 transport that sends each request on a new connection, so that a probe
// experiences what a new client would. It runs entirely in the calling goroutine. [http.Transport]
// starts two goroutines for each connection and one to dial, which would be most of the cost of
// probes on an idle node.
type once struct{}

// RoundTrip implements [http.RoundTripper].
func (once) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	conn, err := dial(ctx, req)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	end := func() {
		stop()
		_ = conn.Close()
	}
	resp, err := exchange(conn, req)
	if err != nil {
		end()
		return nil, cmp.Or(ctx.Err(), err)
	}
	resp.Body = &lastBody{resp.Body, end}
	return resp, nil
}

// lastBody is the body of a response. Its Close closes the connection.
type lastBody struct {
	io.ReadCloser
	end func()
}

func (b *lastBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// dial connects to the host of the request, with TLS for https.
func dial(ctx context.Context, req *http.Request) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", req.URL.Host)
	if err != nil || req.URL.Scheme != "https" {
		return conn, err
	}
	// A probe does not verify the identity of the server.
	secure := tls.Client(conn, &tls.Config{ServerName: req.URL.Hostname(), InsecureSkipVerify: true})
	if err := secure.HandshakeContext(ctx); err != nil {
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && string(plain.RecordHeader[:]) == "HTTP/" {
			err = http.ErrSchemeMismatch
		}
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// exchange sends the request and reads the header of the response.
func exchange(conn net.Conn, req *http.Request) (*http.Response, error) {
	last := *req
	last.Close = true
	if err := last.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	if _, err := r.Peek(1); err != nil {
		return nil, err // the server closed the connection without a response
	}
	for range maxInterim {
		resp, err := http.ReadResponse(r, &last)
		if err != nil || resp.StatusCode >= http.StatusOK || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
	return nil, errors.New("too many 1xx informational responses")
}
