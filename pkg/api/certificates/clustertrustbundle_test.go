// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/api/rowtest"
)

// certificate returns a certificate in PEM, of an authority or not.
func certificate(t *testing.T, authority bool, headers map[string]string) string {
	t.Helper()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: authority, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der, Headers: headers}))
}

func TestClusterTrustBundle(t *testing.T) {
	row, authority := rowtest.Row(t, Rows(Deps{}), "clustertrustbundles"), certificate(t, true, nil)
	bundle := func(text string) string { return `{spec: {trustBundle: ` + strconv.Quote(text) + `}}` }
	valid := `{metadata: {name: a}, spec: {trustBundle: ` + strconv.Quote(authority) + `}}`
	const trust = "spec.trustBundle: Invalid value"
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"valid", ``, ""},
		{"of a signer", `{metadata: {name: "example.com:s:a"}, spec: {signerName: example.com/s}}`, ""},
		{"of a signer, with another name", `spec: {signerName: example.com/s}`, "metadata.name: Invalid value"},
		{"name of a signer's bundle", `metadata: {name: "example.com:s:a"}`, "metadata.name: Invalid value"},
		{"signer without a path", `{metadata: {name: "s:a"}, spec: {signerName: s}}`, "spec.signerName: Invalid value"},
		{"no certificate", bundle(""), trust},
		{"two equal ones", bundle(authority + authority), trust},
		{"not an authority", bundle(certificate(t, false, nil)), trust},
		{"headers", bundle(certificate(t, true, map[string]string{"a": "b"})), trust},
		{"a key", bundle("-----BEGIN KEY-----\n-----END KEY-----\n"), trust},
		{"not X.509", bundle("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), trust},
		{"too long", bundle(strings.Repeat(" ", maxBundle+1)), "spec.trustBundle: Too long"},
	})
	rowtest.Updates(t, row, "", `{metadata: {name: a}, spec: {trustBundle: x}}`, []rowtest.Case{
		{"unchanged certificates", `metadata: {labels: {a: b}}`, ""},
		{"other certificates", bundle(authority), ""},
		{"other invalid ones", bundle("y"), trust},
		{"another signer", `spec: {signerName: example.com/s}`,
			"metadata.name: Invalid value, spec.signerName: Invalid value"},
	})
}
