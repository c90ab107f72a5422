// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// If the caBundle of a webhook contains no certificate, every call of the webhook fails. Some
// manifests contain such a bundle, for example a line feed, which an operator later replaces. The
// library would detect this before it uses a transport, so the failures would not be recorded.
// Therefore informers replace such a bundle by that of a placeholder CA (Readable), and Wrap
// replaces the transport of a webhook with the placeholder CA by one that returns the error.

// authority is a placeholder CA, which has signed no certificates.
type authority struct {
	bundle []byte
	pool   *x509.CertPool
}

// newAuthority creates a placeholder CA. Its key is not kept.
func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create placeholder key: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create placeholder certificate: %w", err)
	}
	a := &authority{bundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pool: x509.NewCertPool()}
	a.pool.AppendCertsFromPEM(a.bundle)
	return a, nil
}

// signs reports whether the transport inside rt trusts this placeholder CA and no other.
func (a *authority) signs(rt http.RoundTripper) bool {
	c, err := utilnet.TLSClientConfig(rt)
	return err == nil && c != nil && c.RootCAs != nil && c.RootCAs.Equal(a.pool)
}

// stand replaces a CA bundle that contains no certificate by the bundle of the placeholder CA a. It
// keeps an empty bundle, which stands for the CAs of the machine.
func (a *authority) stand(bundle *[]byte) {
	if len(*bundle) > 0 && !x509.NewCertPool().AppendCertsFromPEM(*bundle) {
		*bundle = a.bundle
	}
}

// Readable is a transform for the informers of webhook configurations. It replaces CA bundles
// without a certificate by that of the placeholder CA.
func (b *Book) Readable(obj any) (any, error) {
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		c.ManagedFields = nil
		for i := range c.Webhooks {
			b.nobody.stand(&c.Webhooks[i].ClientConfig.CABundle)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		c.ManagedFields = nil
		for i := range c.Webhooks {
			b.nobody.stand(&c.Webhooks[i].ClientConfig.CABundle)
		}
	}
	return obj, nil
}

// errBundle is the error for a CA bundle that contains no certificate. It has Kubernetes' message.
var errBundle = errors.New("unable to load root certificates: unable to parse bytes as PEM block")

// unreadable is the transport for webhooks whose bundle contains no certificate.
type unreadable struct{}

// RoundTrip returns errBundle.
func (unreadable) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, errBundle
}
