// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"

	"keelson.dev/api/clock"
)

// CAFile is a bundle of certificate authorities that follows its file.
type CAFile struct {
	name, path string
	state      atomic.Pointer[caState]
}

// caState is one reading of the file. It is immutable.
type caState struct {
	pem  string
	pool *x509.CertPool
	ends []time.Time // of the authorities' own certificates
}

// LoadCAFile reads the bundle at path. name says in errors which of the server's bundles it is.
func LoadCAFile(name, path string) (*CAFile, error) {
	c := &CAFile{name: name, path: path}
	return c, c.Reload()
}

// Reload reads the file again; on an error the former bundle stays.
func (c *CAFile) Reload() error {
	data, err := os.ReadFile(c.path)
	if err != nil {
		return err
	}
	if old := c.state.Load(); old != nil && old.pem == string(data) {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return fmt.Errorf("error loading CA bundle for %q: data does not contain any valid RSA or ECDSA certificates", c.name+"::"+c.path)
	}
	state := &caState{pem: string(data), pool: pool}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		// What cannot be read is not in the pool either.
		if a, err := x509.ParseCertificate(block.Bytes); err == nil {
			state.ends = append(state.ends, a.NotAfter)
		}
	}
	c.state.Store(state)
	return nil
}

// Shares reports whether c and other have a certificate in common.
func (c *CAFile) Shares(other *CAFile) bool {
	have := map[string]bool{}
	for block, rest := pem.Decode([]byte(c.PEM())); block != nil; block, rest = pem.Decode(rest) {
		have[string(block.Bytes)] = true
	}
	for block, rest := pem.Decode([]byte(other.PEM())); block != nil; block, rest = pem.Decode(rest) {
		if have[string(block.Bytes)] {
			return true
		}
	}
	return false
}

// PEM is the bundle as it was read.
func (c *CAFile) PEM() string { return c.state.Load().pem }

// Pool is the bundle as a pool. It is not to be modified.
func (c *CAFile) Pool() *x509.CertPool { return c.state.Load().pool }

// verifyOptions is what a client certificate is held against.
func (c *CAFile) verifyOptions() (x509.VerifyOptions, bool) {
	o := requestx509.DefaultVerifyOptions()
	o.Roots = c.Pool()
	return o, true
}

// Connection remembers what a connection's client certificate proved. TLS
// certificates belong to connections, so one verification serves all requests,
// until the certificate ends or the authorities change.
type Connection struct {
	mu    sync.Mutex
	state *caState // nil: nothing remembered
	resp  *authenticator.Response
	until time.Time
}

type connectionKey struct{}

// WithConnection marks ctx as that of one connection (http.Server.ConnContext).
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, connectionKey{}, &Connection{})
}

// clientCerts authenticates by client certificate: common name is the user,
// organizations are the groups.
type clientCerts struct {
	ca     *CAFile
	verify authenticator.Request
	clock  clock.Clock
}

func newClientCerts(ca *CAFile, c clock.Clock) *clientCerts {
	return &clientCerts{ca: ca, verify: requestx509.NewDynamic(ca.verifyOptions, requestx509.CommonNameUserConversion), clock: c}
}

// AuthenticateRequest answers from the connection's memory where it can.
func (a *clientCerts) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	conn, _ := r.Context().Value(connectionKey{}).(*Connection)
	if conn == nil {
		return a.verify.AuthenticateRequest(r)
	}
	state := a.ca.state.Load()
	conn.mu.Lock()
	defer conn.mu.Unlock()
	now := a.clock.Now()
	if conn.state == state && now.Before(conn.until) {
		return conn.resp, true, nil
	}
	resp, ok, err := a.verify.AuthenticateRequest(r)
	if err != nil || !ok {
		return resp, ok, err
	}
	conn.state, conn.resp, conn.until = state, resp, chainEnd(r.TLS.PeerCertificates, state.ends, now)
	return resp, true, nil
}

// chainEnd is when the first certificate of a chain ends that was valid now, the
// authority's included. Intermediates and other authorities may not be part of
// the verified chain; an early end only costs a verification.
func chainEnd(chain []*x509.Certificate, authorities []time.Time, now time.Time) time.Time {
	end := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	for _, a := range authorities {
		if a.After(now) && a.Before(end) {
			end = a
		}
	}
	return end
}
