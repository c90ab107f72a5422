// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"keelson.dev/api/clock"
)

const (
	dialTimeout = 10 * time.Second
	// stallTimeout is how long nothing may move on a connection.
	stallTimeout = time.Minute
)

var errNoCertificate = errors.New("the file has no certificates")

// transport returns the transport for the server of c.
func (c *Config) transport() (*http.Transport, error) {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout:     stallTimeout,
		DisableCompression:  true, // of files that are compressed already
	}
	if c.CAFile == "" {
		return t, nil
	}
	data, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", caVariable, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: %s: %w", caVariable, c.CAFile, errNoCertificate)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: roots}
	return t, nil
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &watched{conn}, nil
}

// watched is a connection that fails when nothing has moved for the time stallTimeout. A write extends the
// time of a read that waits, and the other way round.
type watched struct{ net.Conn }

func (w *watched) Read(p []byte) (int, error) {
	if err := w.SetDeadline(clock.Real().Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return w.Conn.Read(p)
}

func (w *watched) Write(p []byte) (int, error) {
	if err := w.SetDeadline(clock.Real().Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}
