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

// CAFile is a file with one or more CA certificates. Reload reads the file again.
type CAFile struct {
	name, path string
	state      atomic.Pointer[caState]
}

// caState is what CAFile has read from its file. It is immutable.
type caState struct {
	pem  string
	pool *x509.CertPool
	ends []time.Time // times at which the CAs' certificates expire
}

// LoadCAFile reads the CA certificates at path. name is the name of the file's purpose in errors.
func LoadCAFile(name, path string) (*CAFile, error) {
	c := &CAFile{name: name, path: path}
	return c, c.Reload()
}

// Reload reads the file again. If that fails, the previous certificates stay in use.
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
		return fmt.Errorf(
			"error loading CA bundle for %q: data does not contain any valid RSA or ECDSA certificates", c.name+"::"+c.path)
	}
	state := &caState{pem: string(data), pool: pool}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		// AppendCertsFromPEM has also skipped the certificates that cannot be parsed.
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

// PEM returns the content of the file.
func (c *CAFile) PEM() string { return c.state.Load().pem }

// Pool returns the CA certificates. Callers must not modify the pool.
func (c *CAFile) Pool() *x509.CertPool { return c.state.Load().pool }

// verifyOptions returns the options with which a client certificate is verified.
func (c *CAFile) verifyOptions() (x509.VerifyOptions, bool) {
	o := requestx509.DefaultVerifyOptions()
	o.Roots = c.Pool()
	return o, true
}

// Connection caches the result of verifying a connection's client certificate. All requests of a
// TLS connection have the same client certificate, so one verification is enough until a
// certificate expires or the CA file changes.
type Connection struct {
	mu    sync.Mutex
	state *caState // CAs that verified the certificate; nil if nothing is cached
	resp  *authenticator.Response
	until time.Time
}

type connectionKey struct{}

// WithConnection returns the context for a connection (see http.Server.ConnContext). With it, the
// client certificate is verified once per connection instead of once per request.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, connectionKey{}, &Connection{})
}

// clientCerts authenticates client certificates. The common name is the user name, and
// organizations are groups.
type clientCerts struct {
	ca     *CAFile
	verify authenticator.Request
	clock  clock.Clock
}

func newClientCerts(ca *CAFile, c clock.Clock) *clientCerts {
	return &clientCerts{ca: ca,
		verify: requestx509.NewDynamic(ca.verifyOptions, requestx509.CommonNameUserConversion), clock: c}
}

// AuthenticateRequest authenticates the client certificate. It uses the result that is cached for
// the connection, if it is still valid.
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

// chainEnd returns the time until which a verification of chain stays valid: the first expiry of
// its certificates and of all CAs that have not expired. Some CAs may not have been used for the
// verification. Then the certificate is just verified again earlier than necessary.
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
