// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ingressManifest has an Ingress with two host names for the web server. One of the hosts uses TLS.
const ingressManifest = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
spec:
  ingressClassName: keelson
  tls:
  - hosts: [secure.example.org]
    secretName: web-tls
  rules:
  - host: web.example.org
    http: &all
      paths:
      - path: /
        pathType: Prefix
        backend:
          service:
            name: nginx-deployment
            port:
              number: 80
  - host: secure.example.org
    http: *all
`

// certificate writes a certificate for host and its key to files.
func certificate(t *testing.T, host string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// TestIngress sends requests to the ingress from the link that connects the nodes, as a client
// outside the cluster does.
func TestIngress(t *testing.T) {
	ns := namespace(t, "ingress")
	n := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	cert, key := certificate(t, "secure.example.org")
	ctl(t, n("create", "secret", "tls", "web-tls", "--cert="+cert, "--key="+key)...)
	for _, manifest := range []string{webManifest, ingressManifest} {
		if out, err := try(t, manifest, n("create", "-f", "-")...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	ctl(t, n("expose", "deployment", "nginx-deployment", "--port=80")...)
	var address string
	eventually(t, "an address in the status", func() bool {
		address = strings.TrimSpace(
			ctl(t, n("get", "ingress", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")...))
		return address != ""
	})
	curl := func(args ...string) string {
		out, _ := try(t, "",
			append([]string{"cluster", "exec", "--name", clusterName, "--", "curl", "-s", "-m", "20", "--cacert", cert,
				"--resolve", "*:80:" + address, "--resolve", "*:443:" + address, "-w", " %{http_code}"}, args...)...)
		return out
	}
	answers := func(out, code string) bool {
		return strings.HasPrefix(out, "nginx-deployment-") && strings.HasSuffix(out, " "+code)
	}
	eventually(t, "HTTP", func() bool { return answers(curl("http://web.example.org/hostname"), "200") })
	eventually(t, "HTTPS", func() bool { return answers(curl("https://secure.example.org/hostname"), "200") })
	// A replica of the ingress redirects HTTP requests only after it has read the certificate.
	eventually(t, "HTTP to a host with a certificate is redirected", func() bool {
		return curl("-o", "/dev/null", "http://secure.example.org/hostname") == " 308"
	})
	if out := curl("-o", "/dev/null", "http://other.example.org/hostname"); out != " 404" {
		t.Errorf("another host: %q", out)
	}
	// The ingress proxy may read the Secret that an Ingress refers to, and no other Secret.
	for secret, want := range map[string]string{"web-tls": "yes", "another": "no"} {
		if out, _ := try(t, "",
			n("auth", "can-i", "get", "secret/"+secret,
				"--as=system:serviceaccount:kube-system:ingress")...); strings.TrimSpace(out) != want {
			t.Errorf("the proxy may get %s: %q", secret, out)
		}
	}
	ctl(t, n("delete", "ingress", "web")...)
	eventually(t, "nothing is served", func() bool {
		return strings.HasSuffix(curl("-o", "/dev/null", "http://web.example.org/hostname"), " 404")
	})
}
