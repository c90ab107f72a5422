// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"time"

	"keelson.dev/keelson/pkg/halfclose"
	"keelson.dev/keelson/pkg/outbound"
)

const (
	handshakeTimeout = 30 * time.Second
	readPeriod       = time.Second
)

// transports are the transports for requests to kubelets. They are immutable.
type transports struct {
	files    kubeletFiles
	verified *http.Transport
	insecure *http.Transport // for clients that ask for it, and for all requests if there is no CA
	// streams is the transport for upgraded connections.
	streams *http.Transport
	// proxied is the transport for requests of the node proxy. Whatever the policy allows, it never
	// connects to loopback, link-local or multicast addresses.
	proxied *http.Transport
}

// kubeletFiles has the content of the files of a KubeletConfig.
type kubeletFiles struct{ ca, cert, key string }

// read reads the files that have a name. All must be readable, even a certificate without a key, which is
// not used.
func (c *KubeletConfig) read() (kubeletFiles, error) {
	var out kubeletFiles
	for _, f := range []struct {
		name string
		to   *string
	}{{c.CAFile, &out.ca}, {c.CertFile, &out.cert}, {c.KeyFile, &out.key}} {
		if f.name == "" {
			continue
		}
		data, err := os.ReadFile(f.name)
		if err != nil {
			return out, err
		}
		*f.to = string(data)
	}
	return out, nil
}

// transports returns the transports with the content of the files, which it reads at most once each
// readPeriod. If they cannot be read, or do not fit together because they are being replaced, it returns the
// previous ones.
//
// A connection that an older transport has open keeps its client certificate. It ends with its request,
// or soon after, so that no request is sent with a certificate that kubelets do not accept any more.
func (k *Kubelets) transports() *transports {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.cfg.Clock.Now()
	if now.Sub(k.read) < readPeriod {
		return k.current
	}
	k.read = now
	files, err := k.cfg.read()
	if err != nil || files == k.current.files {
		return k.current
	}
	next, err := k.newTransports(files)
	if err != nil {
		return k.current
	}
	k.current.close()
	k.current = next
	return next
}

func (k *Kubelets) newTransports(files kubeletFiles) (*transports, error) {
	t, dialer := &transports{files: files}, outbound.NewDialer(k.cfg.Outbound)
	base := &tls.Config{MinVersion: tls.VersionTLS12}
	if files.cert != "" && files.key != "" {
		cert, err := tls.X509KeyPair([]byte(files.cert), []byte(files.key))
		if err != nil {
			return nil, err
		}
		// A function, so that the certificate is sent whatever authorities the kubelet names.
		base.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	insecure := base.Clone()
	insecure.InsecureSkipVerify = true
	t.insecure = transport(insecure, dialer)
	t.verified = t.insecure
	if k.cfg.CAFile != "" {
		base.RootCAs = x509.NewCertPool()
		if !base.RootCAs.AppendCertsFromPEM([]byte(files.ca)) {
			return nil, errors.New("unable to load root certificates: no valid certificate authority data seen")
		}
		t.verified = transport(base, dialer)
	}
	t.streams = t.verified.Clone()
	t.streams.DialContext = halfclose.Dial(dialer.DialContext)
	t.proxied = transport(t.verified.TLSClientConfig.Clone(), outbound.NewDialer(k.policy))
	return t, nil
}

// close ends idle connections.
func (t *transports) close() {
	for _, each := range []*http.Transport{t.verified, t.insecure, t.streams, t.proxied} {
		each.CloseIdleConnections()
	}
}

// transport returns a transport that uses only HTTP/1.1, because HTTP/2 does not support upgrades.
func transport(c *tls.Config, d *outbound.Dialer) *http.Transport {
	return &http.Transport{
		TLSClientConfig:     c,
		DialContext:         d.DialContext,
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}
