// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"keelson.dev/keelson/pkg/apiserver/config"
)

// authority is a certificate authority. Its certificates expire at times that the test chooses.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, end time.Time) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	a := &authority{key: key}
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "short-lived"}, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, err = x509.ParseCertificate(a.sign(t, a.cert, key))
	check(t, err)
	return a
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	check(t, err)
	return der
}

// pair returns a certificate for one end of a loopback connection. The certificate expires at the
// given time.
func (a *authority) pair(t *testing.T, name string, end time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return tls.Certificate{PrivateKey: key, Certificate: [][]byte{a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: end, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth,
			x509.ExtKeyUsageServerAuth},
	}, key)}}
}

// file writes a file with the contents of the files others, followed by the authority's
// certificate, and returns its path.
func (a *authority) file(t *testing.T, others ...string) string {
	t.Helper()
	var bundle []byte
	for _, path := range others {
		data, err := os.ReadFile(path)
		check(t, err)
		bundle = append(bundle, data...)
	}
	path := filepath.Join(t.TempDir(), "ca.crt")
	check(t, os.WriteFile(path,
		append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...), 0o600))
	return path
}

// untilEnd repeats a request until it is rejected, and checks that this happens at end and not
// before. It reports whether any request succeeded.
func untilEnd(t *testing.T, end time.Time, ask func() (in bool)) (wasIn bool) {
	t.Helper()
	for {
		asked := time.Now()
		in := ask()
		switch {
		case in && asked.After(end):
			t.Fatalf("let in %v after the end", asked.Sub(end))
		case !in && time.Now().Before(end):
			t.Fatalf("refused %v before the end", time.Until(end))
		case !in:
			return wasIn
		}
		wasIn = true
	}
}

// ending runs a test with certificates that expire at end. If no request succeeded before that
// time, it repeats the test with a later time.
func ending(t *testing.T, try func(t *testing.T, end time.Time) (wasIn bool)) {
	t.Parallel()
	for life := 3 * time.Second; life < 2*time.Minute; life *= 2 {
		if try(t, time.Now().Add(life).Truncate(time.Second)) {
			return
		}
	}
	t.Fatal("nothing was ever let in")
}

// TestExpiry checks the behaviour when certificates expire while they are in use, or before they
// are used.
func TestExpiry(t *testing.T) {
	const far = 24 * time.Hour
	for what, server := range map[string]func(*testing.T, *lab, *authority) string{
		"API server": func(_ *testing.T, l *lab, _ *authority) string { return l.URL + "/version" },
		"kubelet": func(t *testing.T, l *lab, a *authority) string {
			_, address := l.kubelet(t, a.file(t))
			return "https://" + address + "/pods"
		},
	} {
		t.Run("of a client of the "+what, func(t *testing.T) {
			ending(t, func(t *testing.T, end time.Time) bool { return clientEnds(t, end, end.Add(far), end, server) })
		})
		t.Run("of the clients' authority of the "+what, func(t *testing.T) {
			ending(t, func(t *testing.T, end time.Time) bool { return clientEnds(t, end, end, end.Add(far), server) })
		})
	}
	t.Run("of the server", func(t *testing.T) {
		ending(t, func(t *testing.T, end time.Time) bool { return serverEnds(t, end, end.Add(far), end) })
	})
	t.Run("of the server's authority", func(t *testing.T) {
		ending(t, func(t *testing.T, end time.Time) bool { return serverEnds(t, end, end, end.Add(far)) })
	})
	t.Run("of a kubelet", func(t *testing.T) { ending(t, kubeletEnds) })
}

// clientEnds checks that a server rejects requests on an open connection from the time at which the
// client's certificate or its authority expires.
func clientEnds(t *testing.T, end, authorityEnd, certificateEnd time.Time,
	server func(*testing.T, *lab, *authority) string) bool {
	a := newAuthority(t, authorityEnd)
	lab := newLab(t, func(c *config.Config) { c.ClientCAFile = a.file(t, c.ClientCAFile) })
	url := server(t, lab, a)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, // the server's certificate does not matter here
		Certificates:       []tls.Certificate{a.pair(t, "ends", certificateEnd)},
	}}}
	defer client.CloseIdleConnections()
	known := func() bool {
		resp, err := client.Get(url)
		check(t, err)
		_, err = io.Copy(io.Discard, resp.Body) // read to the end, so that the connection can be reused
		check(t, err)
		check(t, resp.Body.Close())
		return resp.StatusCode != http.StatusUnauthorized // only authentication is tested here, not authorization
	}
	wasIn := untilEnd(t, end, known)
	client.CloseIdleConnections()
	if known() {
		t.Error("a new connection is let in after the end")
	}
	return wasIn
}

// serverEnds checks that clients reject a server whose certificate or authority has expired.
func serverEnds(t *testing.T, end, authorityEnd, certificateEnd time.Time) bool {
	a, dir := newAuthority(t, authorityEnd), t.TempDir()
	cert := a.pair(t, "kube-apiserver", certificateEnd)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	check(t, err)
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	check(t, os.WriteFile(certFile,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600))
	check(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	lab := newLab(t, func(c *config.Config) { c.TLSCertFile, c.TLSKeyFile = certFile, keyFile })
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return untilEnd(t, end, func() bool {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(lab.URL, "https://"), &tls.Config{RootCAs: roots})
		if invalid := new(x509.CertificateInvalidError); errors.As(err, invalid) && invalid.Reason == x509.Expired {
			return false
		}
		check(t, err)
		return conn.Close() == nil
	})
}

// kubeletEnds checks that the API server sends no request to a kubelet whose certificate has
// expired.
func kubeletEnds(t *testing.T, end time.Time) bool {
	a := newAuthority(t, end.Add(time.Hour))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // makes each request open a new connection
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{a.pair(t, "system:node:n1", end)}}
	s.StartTLS()
	defer s.Close()
	lab := newLab(t, func(c *config.Config) {
		reaching(c)
		c.KubeletCAFile = a.file(t)
	})
	lab.namespace(t, "a")
	lab.node(t, "n1", s.Listener.Addr().String())
	lab.pod(t, "a", "p", "n1", "192.0.2.10")
	return untilEnd(t, end, func() bool {
		code, _, body := get(t, lab.Config, "/api/v1/namespaces/a/pods/p/log")
		if code != http.StatusOK && !strings.Contains(body, "certificate has expired") {
			t.Fatalf("%d %s", code, body)
		}
		return code == http.StatusOK
	})
}
