// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"keelson.dev/keelson/pkg/api/rowtest"
)

// podKey returns the private key of test case n.
func podKey(n byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	return ed25519.NewKeyFromSeed(seed)
}

// podRequest returns a request whose maximum lifetime is a day. Its key is podKey(1).
func podRequest(t *testing.T) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, podKey(1))
	if err != nil {
		t.Fatal(err)
	}
	return `{metadata: {name: r, namespace: ns}, spec: {signerName: example.com/s, podName: p, podUID: u,
		serviceAccountName: a, serviceAccountUID: u, nodeName: n1, nodeUID: u, maxExpirationSeconds: 86400,
		stubPKCS10Request: ` + base64.StdEncoding.EncodeToString(der) + `}}`
}

func TestPodCertificateRequest(t *testing.T) {
	row, valid := rowtest.Row(t, Rows(Deps{}), "podcertificaterequests"), podRequest(t)
	stub := func(data []byte) string {
		return `spec: {stubPKCS10Request: ` + base64.StdEncoding.EncodeToString(data) + `}`
	}
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"valid", ``, ""},
		{"status of the client", `status: {certificateChain: x}`, ""},
		{"annotations", `spec: {unverifiedUserAnnotations: {example.com/A: b}}`, ""},
		{"annotation without a domain", `spec: {unverifiedUserAnnotations: {a: b}}`,
			"spec.unverifiedUserAnnotations: Invalid value"},
		{"no signer", `spec: {signerName: ""}`, "spec.signerName: Required value"},
		{"invalid names", `spec: {podName: A, serviceAccountName: A, nodeName: A}`,
			"spec.podName: Invalid value, spec.serviceAccountName: Invalid value, spec.nodeName: Invalid value"},
		{"no UIDs", `spec: {podUID: "", serviceAccountUID: "", nodeUID: ""}`,
			"spec.podUID: Invalid value, spec.serviceAccountUID: Invalid value, spec.nodeUID: Invalid value"},
		{"long UID", `spec: {podUID: ` + strings.Repeat("u", maxUID+1) + `}`, "spec.podUID: Too long"},
		{"lifetime by default", `spec: {maxExpirationSeconds: null}`, ""},
		{"short lifetime", `spec: {maxExpirationSeconds: 3599}`, "spec.maxExpirationSeconds: Invalid value"},
		{"long lifetime", `spec: {maxExpirationSeconds: 7862401}`, "spec.maxExpirationSeconds: Invalid value"},
		{"long lifetime of Kubernetes", `spec: {signerName: kubernetes.io/s, maxExpirationSeconds: 86401}`,
			"spec.maxExpirationSeconds: Invalid value"},
		{"no key", `spec: {stubPKCS10Request: null}`, "spec: Invalid value"},
		{"not a signing request", stub([]byte("x")), "spec.stubPKCS10Request: Invalid value"},
		{"large signing request", stub(make([]byte, maxStub+1)), "spec.stubPKCS10Request: Too long"},
		{"signature of another key", stub(forged(t)), "spec.stubPKCS10Request: Invalid value"},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"label", `metadata: {labels: {a: b}}`, ""},
		{"another pod", `spec: {podName: q}`, "spec: Invalid value"},
	})
}

// forged returns a certificate signing request with a wrong signature.
func forged(t *testing.T) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, podKey(1))
	if err != nil {
		t.Fatal(err)
	}
	der[len(der)-1] ^= 1
	return der
}

// issued is a status with a certificate that is valid for a day.
type issued struct {
	key              byte // the certificate is for podKey(key)
	lifetime         time.Duration
	dns, mail, after string // after follows the certificate in the chain
	// The times in the status are those of the certificate, later by these durations.
	start, end, refresh time.Duration
}

// patch returns the status as a patch. The certificate begins one minute after the zero time, which
// is the time of requests in these tests.
func (i issued) patch(t *testing.T) string {
	t.Helper()
	start := time.Time{}.Add(time.Minute)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: start, NotAfter: start.Add(i.lifetime)}
	if i.dns != "" {
		template.DNSNames = []string{i.dns}
	}
	if i.mail != "" {
		template.EmailAddresses = []string{i.mail}
	}
	der, err := x509.CreateCertificate(nil, template, template, podKey(i.key).Public(), podKey(i.key))
	if err != nil {
		t.Fatal(err)
	}
	text := func(at time.Time) string { return at.Format(time.RFC3339) }
	status, err := json.Marshal(map[string]any{"status": map[string]any{
		"conditions":       []any{conditionOf("Issued", "True")},
		"certificateChain": string(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der})) + i.after,
		"notBefore":        text(start.Add(i.start)),
		"notAfter":         text(start.Add(i.lifetime + i.end)),
		"beginRefreshAt":   text(start.Add(i.lifetime/2 + i.refresh)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return string(status)
}

func conditionOf(kind, status string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": "R", "message": "",
		"lastTransitionTime": "2020-01-01T00:00:00Z"}
}

func TestPodCertificateRequestStatus(t *testing.T) {
	row, valid := rowtest.Row(t, Rows(Deps{}), "podcertificaterequests"), podRequest(t)
	const (
		day   = 24 * time.Hour
		chain = "status.certificateChain: Invalid value"
	)
	condition := func(kinds ...any) string {
		text, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": kinds}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	good := issued{key: 1, lifetime: day}
	cases := []rowtest.Case{
		{"label, which is kept", `metadata: {labels: {a: b}}`, ""},
		{"denied", condition(conditionOf("Denied", "True")), ""},
		{"failed", condition(conditionOf("Failed", "True")), ""},
		{"issued", good.patch(t), ""},
		{"denied and failed", condition(conditionOf("Denied", "True"), conditionOf("Failed", "True")),
			"status.conditions.[1].type: Invalid value"},
		{"not denied", condition(conditionOf("Denied", "False")), "status.conditions.[0].status: Unsupported value"},
		{"unknown condition", condition(conditionOf("Other", "True")), "status.conditions.[0].type: Unsupported value"},
		{"condition without a reason", `status: {conditions: [{type: Denied, status: "True", ` +
			`lastTransitionTime: "2020-01-01T00:00:00Z"}]}`, "status.conditions[0].reason: Required value"},
		{"chain without a condition", `status: {certificateChain: x}`, "status: Invalid value"},
		{"issued without a chain", condition(conditionOf("Issued", "True")), chain},
	}
	for name, tc := range map[string]struct {
		change func(*issued)
		want   string
	}{
		"another key":          {func(i *issued) { i.key = 2 }, chain},
		"short lifetime":       {func(i *issued) { i.lifetime = time.Hour - time.Minute }, chain},
		"long lifetime":        {func(i *issued) { i.lifetime = day + time.Second }, chain},
		"invalid name":         {func(i *issued) { i.dns = "a..b" }, chain},
		"invalid mail address": {func(i *issued) { i.mail = "a" }, chain},
		"text after the chain": {func(i *issued) { i.after = "# end\n" }, ""},
		"key in the chain":     {func(i *issued) { i.after = "-----BEGIN KEY-----\n-----END KEY-----\n" }, chain},
		"no X.509 in the chain": {func(i *issued) {
			i.after = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
		}, chain},
		"large chain": {func(i *issued) { i.after = strings.Repeat(" ", maxChain) },
			"status.certificateChain: Too long"},
		"another start":    {func(i *issued) { i.start = time.Second }, "status.notBefore: Invalid value"},
		"another end":      {func(i *issued) { i.end = time.Second }, "status.notAfter: Invalid value"},
		"early refresh":    {func(i *issued) { i.refresh = -day/2 + 9*time.Minute }, "status.beginRefreshAt: Invalid value"},
		"late refresh":     {func(i *issued) { i.refresh = day/2 - 9*time.Minute }, "status.beginRefreshAt: Invalid value"},
		"shortest":         {func(i *issued) { i.lifetime = time.Hour }, ""},
		"earliest renewal": {func(i *issued) { i.refresh = -day/2 + 10*time.Minute }, ""},
	} {
		i := good
		tc.change(&i)
		cases = append(cases, rowtest.Case{name, i.patch(t), tc.want})
	}
	rowtest.Updates(t, row, "status", valid, cases)

	denied := strings.TrimSuffix(valid, "}") + `, status: {conditions: [{type: Denied, status: "True", reason: R,
		lastTransitionTime: "2020-01-01T00:00:00Z"}]}}`
	rowtest.Updates(t, row, "status", denied, []rowtest.Case{
		{"the same", ``, ""},
		{"issued after it was denied", good.patch(t), "status: Invalid value"},
	})
}

// TestPodCertificateSigners checks that the right to sign is required for changes of the status
// only.
func TestPodCertificateSigners(t *testing.T) {
	var asked []string
	row := rowtest.Row(t, Rows(Deps{MaySign: func(_ context.Context, signer string) bool {
		asked = append(asked, signer)
		return false
	}}), "podcertificaterequests")
	old := rowtest.Decode(t, row, "r", `{"spec": {"signerName": "example.com/s"}}`)
	validate := row.Subresource("status").ValidateUpdate
	if errs := validate(t.Context(), old, old); len(errs) > 0 || len(asked) > 0 {
		t.Errorf("an unchanged status: %v, asked about %q", errs, asked)
	}
	denied, ok := old.DeepCopyObject().(*certificatesv1.PodCertificateRequest)
	if !ok {
		t.Fatalf("a copy is %T", old.DeepCopyObject())
	}
	text := `[{"type": "Denied", "status": "True", "reason": "R", "lastTransitionTime": "2020-01-01T00:00:00Z"}]`
	if err := json.Unmarshal([]byte(text), &denied.Status.Conditions); err != nil {
		t.Fatal(err)
	}
	rowtest.Check(t, validate(t.Context(), denied, old), []string{
		`spec.signerName: Forbidden: User "" is not permitted to "sign" for signer "example.com/s"`})
	if len(asked) != 1 || asked[0] != "example.com/s" {
		t.Errorf("asked about %q", asked)
	}
}
