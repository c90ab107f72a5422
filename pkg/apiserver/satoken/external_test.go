// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"keelson.dev/api/clock"
)

// signer is an external signer on a unix socket. It signs with the last of its keys.
type signer struct {
	externaljwt.UnimplementedExternalJWTSignerServer
	socket string

	mu     sync.Mutex
	keys   []*ecdsa.PrivateKey
	hidden map[int]bool
	header func(h map[string]any) // if set, changes the header of each signature, to make it invalid
	fetch  int
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func startSigner(t *testing.T) *signer {
	t.Helper()
	dir, err := os.MkdirTemp("", "jwt") // not t.TempDir(), because the path of a unix socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &signer{socket: filepath.Join(dir, "s"), keys: []*ecdsa.PrivateKey{newKey(t)}, hidden: map[int]bool{}}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	externaljwt.RegisterExternalJWTSignerServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return s
}

func id(i int) string { return string(rune('a' + i)) }

func (s *signer) Sign(_ context.Context, r *externaljwt.SignJWTRequest) (*externaljwt.SignJWTResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.keys) - 1
	h := map[string]any{"alg": "ES256", "kid": id(last), "typ": "JWT"}
	if s.header != nil {
		s.header(h)
	}
	payload, err := base64.RawURLEncoding.DecodeString(r.Claims)
	if err != nil {
		return nil, err
	}
	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", id(last))
	js, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: s.keys[last]}, options)
	if err != nil {
		return nil, err
	}
	signed, err := js.Sign(payload)
	if err != nil {
		return nil, err
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		return nil, err
	}
	parts := strings.Split(compact, ".")
	if s.header != nil {
		data, err := json.Marshal(h)
		if err != nil {
			return nil, err
		}
		parts[0] = base64.RawURLEncoding.EncodeToString(data)
	}
	return &externaljwt.SignJWTResponse{Header: parts[0], Signature: parts[2]}, nil
}

func (s *signer) FetchKeys(context.Context, *externaljwt.FetchKeysRequest) (*externaljwt.FetchKeysResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetch++
	out := &externaljwt.FetchKeysResponse{DataTimestamp: timestamppb.Now(), RefreshHintSeconds: 3600}
	for i, k := range s.keys {
		der, err := x509.MarshalPKIXPublicKey(k.Public())
		if err != nil {
			return nil, err
		}
		out.Keys = append(out.Keys, &externaljwt.Key{KeyId: id(i), Key: der, ExcludeFromOidcDiscovery: s.hidden[i]})
	}
	return out, nil
}

func (s *signer) Metadata(context.Context, *externaljwt.MetadataRequest) (*externaljwt.MetadataResponse, error) {
	return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: 7200}, nil
}

// accounts is a Getter that returns a service account and panics for other objects.
type accounts struct{ Getter }

func (accounts) ServiceAccount(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1"}}, nil
}

const issuerURL = "https://issuer.example.com"

func wanted(now time.Time) Wanted {
	return Wanted{
		ID: "x", Subject: "system:serviceaccount:n:a", Namespace: "n", ServiceAccount: Ref{Name: "a", UID: "1"},
		Audiences: []string{"api"}, Now: now, Expiry: now.Add(time.Hour),
	}
}

func TestExternal(t *testing.T) {
	s := startSigner(t)
	clk := clock.Real()
	registry := prometheus.NewRegistry()
	e, err := DialExternal(t.Context(), s.socket, clk, slog.New(slog.DiscardHandler), NewExternalMetrics(registry))
	if err != nil {
		t.Fatal(err)
	}
	if e.MaxExpiry != 2*time.Hour {
		t.Errorf("longest life %s", e.MaxExpiry)
	}
	v := &Verifier{Keys: e, Issuers: []string{issuerURL}, Audiences: []string{"api"}, Get: accounts{},
		Lookup: true, Metrics: NewMetrics(nil), Clock: clk}
	issue := func() string {
		t.Helper()
		token, err := e.Issuer(issuerURL).Issue(t.Context(), wanted(clk.Now()))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	check := func(token string) {
		t.Helper()
		resp, ok, err := v.AuthenticateToken(t.Context(), token)
		if err != nil || !ok || resp.User.GetName() != "system:serviceaccount:n:a" {
			t.Fatal(resp, ok, err)
		}
	}
	first := issue()
	check(first)
	for _, after := range []time.Duration{-time.Hour, time.Hour} {
		w := wanted(clk.Now())
		w.WarnAfter = clk.Now().Add(after)
		token, err := e.Issuer(issuerURL).Issue(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		check(token)
	}
	for name, c := range map[string]prometheus.Counter{"stale": v.Metrics.stale, "valid": v.Metrics.valid} {
		if n := testutil.ToFloat64(c); n != 1 {
			t.Errorf("%v %s tokens are counted, want 1", n, name)
		}
	}
	// The server fetches a new key when it first sees a token that the key has signed.
	s.mu.Lock()
	s.keys = append(s.keys, newKey(t))
	s.mu.Unlock()
	second := issue()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, ok, _ := v.AuthenticateToken(t.Context(), second); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a new key is not known")
		}
	}
	check(first)
	if set, _ := e.Published(); len(set.Keys) != 2 {
		t.Errorf("%d keys are published", len(set.Keys))
	}
	// Many tokens with unknown keys must cause few requests to the signer.
	s.mu.Lock()
	before := s.fetch
	s.mu.Unlock()
	for range 50 {
		e.Candidates(t.Context(), "nonsense")
	}
	s.mu.Lock()
	if n := s.fetch - before; n > 10 {
		t.Errorf("keys were fetched %d times", n)
	}
	s.mu.Unlock()
	for want, spoil := range map[string]func(map[string]any){
		"bad type":              func(h map[string]any) { h["typ"] = "at+jwt" },
		"key id missing":        func(h map[string]any) { delete(h, "kid") },
		"bad signing algorithm": func(h map[string]any) { h["alg"] = "none" },
		"unknown field":         func(h map[string]any) { h["jku"] = "https://example.com" },
		"longer than 1 kb":      func(h map[string]any) { h["kid"] = strings.Repeat("x", 1025) },
	} {
		s.mu.Lock()
		s.header = spoil
		s.mu.Unlock()
		if _, err := e.Issuer(issuerURL).Issue(t.Context(), wanted(clk.Now())); err == nil ||
			!strings.HasPrefix(err.Error(), "failed to generate token: while validating header: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	const text = `
		# HELP apiserver_externaljwt_sign_request_total [ALPHA] Total attempts at signing JWT
		# TYPE apiserver_externaljwt_sign_request_total counter
		apiserver_externaljwt_sign_request_total{code="OK"} 4
		apiserver_externaljwt_sign_request_total{code="unknown-non-grpc"} 5
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(text),
		"apiserver_externaljwt_sign_request_total"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"fetch_keys_success_timestamp", "fetch_keys_data_timestamp",
		"fetch_keys_request_total", "request_duration_seconds"} {
		if n, err := testutil.GatherAndCount(registry, "apiserver_externaljwt_"+name); err != nil || n == 0 {
			t.Errorf("%d values of %s (%v)", n, name, err)
		}
	}
}

// TestExternalHiddenKey checks that a key that the signer excludes from discovery is not published,
// and that it verifies tokens. The signer must not sign with it.
func TestExternalHiddenKey(t *testing.T) {
	s := startSigner(t)
	s.hidden[0] = true
	clk := clock.Real()
	e, err := DialExternal(t.Context(), s.socket, clk, slog.New(slog.DiscardHandler), NewExternalMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	if set, _ := e.Published(); len(set.Keys) != 0 {
		t.Error("a hidden key is published")
	}
	if _, err := e.Issuer(issuerURL).Issue(t.Context(), wanted(clk.Now())); err == nil ||
		!strings.Contains(err.Error(), "excluded from OIDC discovery") {
		t.Errorf("got %v", err)
	}
	if len(e.Candidates(t.Context(), "a")) != 1 {
		t.Error("a hidden key does not verify")
	}
	s.mu.Lock()
	s.keys, s.hidden[1] = append(s.keys, newKey(t)), true
	s.mu.Unlock()
	if _, err := e.Issuer(issuerURL).Issue(t.Context(), wanted(clk.Now())); err == nil ||
		!strings.Contains(err.Error(), "(kid: b) is excluded from OIDC discovery") {
		t.Errorf("with a key that the server does not know yet: got %v", err)
	}
}

func writeKey(t *testing.T, file string, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := "-----BEGIN EC PRIVATE KEY-----\n" + base64.StdEncoding.EncodeToString(der) +
		"\n-----END EC PRIVATE KEY-----\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestKeyFiles checks that keys are reloaded when their files change, and that an invalid file is
// ignored.
func TestKeyFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sa.key")
	older, newer := newKey(t), newKey(t)
	writeKey(t, file, older)
	issuer, err := LoadIssuer(issuerURL, file)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := LoadKeyFiles(file)
	if err != nil {
		t.Fatal(err)
	}
	clk := clock.Real()
	v := &Verifier{Keys: keys, Issuers: []string{issuerURL}, Audiences: []string{"api"}, Get: accounts{},
		Metrics: NewMetrics(nil), Clock: clk}
	token, err := issuer.Issue(t.Context(), wanted(clk.Now()))
	if err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		_, ok, _ := v.AuthenticateToken(t.Context(), token)
		return ok
	}
	if !known() {
		t.Error("a token is not known")
	}
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := keys.Reload(); err == nil || !known() {
		t.Errorf("after a broken file: %v, known %t", err, known())
	}
	writeKey(t, file, newer)
	if err := keys.Reload(); err != nil || known() {
		t.Errorf("after the key has gone: %v, known %t", err, known())
	}
}
