// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/moby/spdystream"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/apimachinery/pkg/util/proxy"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
)

const (
	// createTimeout is how long the server may take to accept a stream.
	createTimeout = 30 * time.Second
	// pollPeriod is the interval at which wait checks whether the connection has ended.
	pollPeriod = 100 * time.Millisecond
	// maxErrorText is how many bytes of the answer are read if a server does not upgrade the
	// connection.
	maxErrorText = 64 << 10
)

// upgrade opens one SPDY connection. For an executor of client-go, it is both the transport and the
// upgrader.
type upgrade struct {
	target Target
	conn   net.Conn
	// stop prevents that the connection is closed when the context of the request is done. It is the
	// result of context.AfterFunc.
	stop func() bool
}

// RoundTrip sends the request on a new connection, which is closed when the context of the request
// is done. It does not follow redirects.
func (u *upgrade) RoundTrip(r *http.Request) (*http.Response, error) {
	conn, err := proxy.DialURL(r.Context(), r.URL, u.target.Transport)
	if err != nil {
		return nil, err
	}
	u.conn = conn
	u.stop = context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	r = r.Clone(r.Context())
	r.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	r.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	if err := r.Write(conn); err != nil {
		u.close()
		return nil, err
	}
	// After the response, a SPDY server sends nothing before the client does. So the buffer of this
	// reader, which is dropped here, contains no frame.
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		u.close()
		return nil, err
	}
	resp.Header.Del("Location") // so that http.Client does not follow it
	return resp, nil
}

// NewConnection implements spdy.Upgrader of client-go.
func (u *upgrade) NewConnection(resp *http.Response) (httpstream.Connection, error) {
	if resp.StatusCode != http.StatusSwitchingProtocols ||
		resp.Header.Get(httpstream.HeaderUpgrade) != spdy.HeaderSpdy31 ||
		resp.Header.Get(httpstream.HeaderProtocolVersion) != constants.StreamProtocolV4Name {
		defer u.close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorText))
		if err != nil {
			return nil, fmt.Errorf("unable to upgrade connection: %w", err)
		}
		return nil, fmt.Errorf("unable to upgrade connection: %s", bytes.TrimSpace(text))
	}
	c := &connection{close: u.close}
	if u.target.Paced {
		var err error
		if c.pace, err = newPace(u.conn, u.target.Clock); err != nil {
			u.close()
			return nil, err
		}
		u.conn = c.pace
	}
	var err error
	if c.Connection, err = spdystream.NewConnection(u.conn, false); err != nil {
		u.close()
		return nil, err
	}
	go c.Serve(func(s *spdystream.Stream) { _ = s.Refuse() })
	return c, nil
}

func (u *upgrade) close() {
	u.stop()
	_ = u.conn.Close()
}

// connection is a SPDY connection that returns an error if no result arrives. If Target.Paced is
// set, it sends input only as fast as the server reads it.
type connection struct {
	*spdystream.Connection
	pace  *pace // nil unless Target.Paced is set
	close func()
}

// CreateStream implements httpstream.Connection.
func (c *connection) CreateStream(h http.Header) (httpstream.Stream, error) {
	s, err := c.Connection.CreateStream(h, nil, false)
	if err != nil {
		return nil, err
	}
	if err := c.wait(s); err != nil {
		return nil, err
	}
	switch kind := h.Get(v1.StreamType); {
	case kind == v1.StreamTypeError:
		return &result{Stream: s}, nil
	case kind == v1.StreamTypeStdin && c.pace != nil:
		return &input{Stream: s, conn: c.Connection, pace: c.pace}, nil
	}
	return s, nil
}

// wait waits until the server has accepted a stream. It returns an error if the connection ends
// before that.
func (c *connection) wait(s *spdystream.Stream) error {
	for range createTimeout / pollPeriod {
		if err := s.WaitTimeout(pollPeriod); !errors.Is(err, spdystream.ErrTimeout) {
			return err
		}
		select {
		case <-c.CloseChan():
			return errNoResult
		default:
		}
	}
	return spdystream.ErrTimeout
}

// RemoveStreams implements httpstream.Connection. It does nothing, because all streams stay until
// the connection is closed.
func (*connection) RemoveStreams(...httpstream.Stream) {}

// Close implements httpstream.Connection. It ends all streams.
func (c *connection) Close() error {
	c.close()
	return nil
}

// result is the stream on which the server sends the result of the command. A server that ends a
// command always sends a result.
type result struct {
	httpstream.Stream
	received bool
}

var errNoResult = errors.New("the connection to the container ended before the result of the command arrived")

// Read returns an error if the stream ends without any data.
func (r *result) Read(p []byte) (int, error) {
	n, err := r.Stream.Read(p)
	r.received = r.received || n > 0
	if errors.Is(err, io.EOF) && !r.received {
		err = errNoResult
	}
	return n, err
}
