// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/tokenkey"
)

const (
	// signerPatience limits each request to the signer for its keys.
	signerPatience = time.Minute
	// signerRetry is the delay after which Run repeats a failed request.
	signerRetry = 10 * time.Second
	// minRefetch is the minimum interval between fetches that tokens with unknown keys cause.
	minRefetch = time.Second
	maxKeyID   = 1024
)

// External signs tokens by requests to an external signer, so that this process does not have the
// private key. It fetches the public keys at the interval that the signer requests, and when a
// token names an unknown key.
type External struct {
	conn    *grpc.ClientConn
	client  externaljwt.ExternalJWTSignerClient
	clock   clock.Clock
	log     *slog.Logger
	metrics *ExternalMetrics
	// MaxExpiry is the maximum lifetime of tokens that the signer allows.
	MaxExpiry time.Duration

	fetching sync.Mutex
	keys     atomic.Pointer[externalKeys]
}

// externalKeys are the keys that one fetch returned. They are immutable.
type externalKeys struct {
	byID    map[string]externalKey
	set     jose.JSONWebKeySet
	fetched time.Time
	next    time.Time
}

type externalKey struct {
	key    crypto.PublicKey
	hidden bool // the key verifies tokens, but is not published
}

// DialExternal connects to the signer on a unix socket and fetches its keys and limits.
func DialExternal(ctx context.Context, socket string, clk clock.Clock, log *slog.Logger,
	metrics *ExternalMetrics) (*External, error) {
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithChainUnaryInterceptor(metrics.observer(clk)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		return nil, fmt.Errorf("external signer %s: %w", socket, err)
	}
	e := &External{conn: conn, client: externaljwt.NewExternalJWTSignerClient(conn), clock: clk, log: log,
		metrics: metrics}
	ctx, cancel := context.WithTimeout(ctx, signerPatience)
	defer cancel()
	if err := e.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("external signer %s: %w", socket, err), conn.Close())
	}
	return e, nil
}

func (e *External) begin(ctx context.Context) error {
	if err := e.fetch(ctx); err != nil {
		return err
	}
	meta, err := e.client.Metadata(ctx, &externaljwt.MetadataRequest{})
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	if meta.MaxTokenExpirationSeconds < minExpirySeconds {
		return fmt.Errorf(
			"max token life supported by external-jwt-signer (%ds) is less than acceptable (min %ds)",
			meta.MaxTokenExpirationSeconds, minExpirySeconds)
	}
	e.MaxExpiry = time.Duration(meta.MaxTokenExpirationSeconds) * time.Second
	return nil
}

// minExpirySeconds is the shortest lifetime, in seconds, that a client may request for a token.
const minExpirySeconds = 600

// Issuer returns an issuer that signs with the external signer.
func (e *External) Issuer(name string) *Issuer { return &Issuer{name: name, sign: e.sign} }

func (e *External) sign(ctx context.Context, payload []byte) (string, error) {
	token, err := e.request(ctx, payload)
	e.metrics.signed.WithLabelValues(code(err)).Inc()
	return token, err
}

// request returns a token with a signature of the external signer.
func (e *External) request(ctx context.Context, payload []byte) (string, error) {
	body := base64.RawURLEncoding.EncodeToString(payload)
	resp, err := e.client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: body})
	if err != nil {
		return "", fmt.Errorf("while signing jwt: %w", err)
	}
	if err := e.checkHeader(ctx, resp.Header); err != nil {
		return "", fmt.Errorf("while validating header: %w", err)
	}
	if resp.Signature == "" {
		return "", errors.New("empty signature returned")
	}
	return resp.Header + "." + body + "." + resp.Signature, nil
}

// checkHeader returns an error if the header of a signature is not as the protocol of external
// signers requires.
func (e *External) checkHeader(ctx context.Context, header string) error {
	data, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return fmt.Errorf("while unwrapping header: %w", err)
	}
	var h struct {
		Algorithm jose.SignatureAlgorithm `json:"alg"`
		KeyID     string                  `json:"kid"`
		Type      string                  `json:"typ"`
	}
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&h); err != nil {
		return fmt.Errorf("while parsing header JSON: %w", err)
	}
	switch {
	case h.Type != "JWT":
		return errors.New("bad type")
	case h.KeyID == "":
		return errors.New("key id missing")
	case len(h.KeyID) > maxKeyID:
		return errors.New("key id longer than 1 kb")
	}
	switch h.Algorithm {
	case jose.RS256, jose.ES256, jose.ES384, jose.ES512:
	default:
		return fmt.Errorf("bad signing algorithm %q", h.Algorithm)
	}
	if e.signingKey(ctx, h.KeyID).hidden {
		return fmt.Errorf("key used for signing JWT (kid: %s) is excluded from OIDC discovery docs", h.KeyID)
	}
	return nil
}

// signingKey returns the key that the signer used, or the zero value if the signer does not list it.
// If the key is unknown, signingKey always fetches the keys again, even if they were fetched just
// before, because the signer may have just begun to use the key.
func (e *External) signingKey(ctx context.Context, id string) externalKey {
	k, ok := e.keys.Load().byID[id]
	if ok {
		return k
	}
	e.fetching.Lock()
	defer e.fetching.Unlock()
	if err := e.fetch(ctx); err != nil {
		e.log.Error("Failed to fetch keys of the external signer", "err", err)
	}
	return e.keys.Load().byID[id]
}

// fetch fetches the public keys from the external signer. If that fails, the previous keys stay in
// use.
func (e *External) fetch(ctx context.Context) error {
	data, err := e.fetchOnce(ctx)
	e.metrics.fetched.WithLabelValues(code(err)).Inc()
	if err != nil {
		return err
	}
	e.metrics.lastFetch.WithLabelValues().Set(seconds(e.clock.Now()))
	e.metrics.keysChanged.WithLabelValues().Set(seconds(data))
	return nil
}

// fetchOnce fetches the public keys and returns the time at which the signer changed them.
func (e *External) fetchOnce(ctx context.Context) (time.Time, error) {
	resp, err := e.client.FetchKeys(ctx, &externaljwt.FetchKeysRequest{})
	if err != nil {
		return time.Time{}, fmt.Errorf("keys: %w", err)
	}
	if resp.RefreshHintSeconds <= 0 {
		return time.Time{}, fmt.Errorf("found invalid refresh hint (%ds)", resp.RefreshHintSeconds)
	}
	if len(resp.Keys) == 0 {
		return time.Time{}, errors.New("found no keys")
	}
	if err := resp.DataTimestamp.CheckValid(); err != nil {
		return time.Time{}, fmt.Errorf("invalid data timestamp: %w", err)
	}
	now := e.clock.Now()
	keys := &externalKeys{byID: map[string]externalKey{}, fetched: now,
		next: now.Add(time.Duration(resp.RefreshHintSeconds) * time.Second)}
	for _, k := range resp.Keys {
		if err := keys.add(k); err != nil {
			return time.Time{}, err
		}
	}
	e.keys.Store(keys)
	return resp.DataTimestamp.AsTime(), nil
}

func (k *externalKeys) add(told *externaljwt.Key) error {
	id := told.GetKeyId()
	if id == "" || len(id) > maxKeyID {
		return fmt.Errorf("found invalid public key id %q", id)
	}
	key, err := x509.ParsePKIXPublicKey(told.GetKey())
	if err != nil {
		return fmt.Errorf("public key %q: %w", id, err)
	}
	alg, err := tokenkey.Algorithm(key)
	if err != nil {
		return fmt.Errorf("public key %q: %w", id, err)
	}
	k.byID[id] = externalKey{key, told.GetExcludeFromOidcDiscovery()}
	if !told.GetExcludeFromOidcDiscovery() {
		k.set.Keys = append(k.set.Keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(alg), Use: "sig"})
	}
	return nil
}

// Candidates implements KeySource. If the key is unknown, the signer may have added it, so
// Candidates fetches the keys again.
func (e *External) Candidates(ctx context.Context, id string) []crypto.PublicKey {
	keys := e.keys.Load()
	if id == "" {
		var all []crypto.PublicKey
		for _, k := range keys.byID {
			all = append(all, k.key)
		}
		return all
	}
	if _, ok := keys.byID[id]; !ok {
		keys = e.refetch(ctx)
	}
	if k, ok := keys.byID[id]; ok {
		return []crypto.PublicKey{k.key}
	}
	return nil
}

// refetch fetches the keys, but returns the present ones if they were fetched less than minRefetch
// ago. The limit is needed because any client can send tokens with unknown keys.
func (e *External) refetch(ctx context.Context) *externalKeys {
	e.fetching.Lock()
	defer e.fetching.Unlock()
	if keys := e.keys.Load(); e.clock.Now().Sub(keys.fetched) < minRefetch {
		return keys
	}
	if err := e.fetch(ctx); err != nil {
		e.log.Error("Failed to fetch keys of the external signer", "err", err)
	}
	return e.keys.Load()
}

// Published implements KeySource.
func (e *External) Published() (jose.JSONWebKeySet, time.Duration) {
	keys := e.keys.Load()
	return keys.set, max(0, keys.next.Sub(e.clock.Now()))
}

// Run refreshes the external signer's public keys until ctx is done.
func (e *External) Run(ctx context.Context) {
	wait := e.keys.Load().next.Sub(e.clock.Now())
	for {
		select {
		case <-ctx.Done():
			_ = e.conn.Close() // an error does not matter, because no calls are in progress
			return
		case <-e.clock.After(wait):
		}
		attempt, cancel := context.WithTimeout(ctx, signerPatience)
		err := e.fetch(attempt)
		cancel()
		wait = e.keys.Load().next.Sub(e.clock.Now())
		if err != nil {
			e.log.Error("Failed to fetch keys of the external signer", "err", err)
			wait = signerRetry
		}
	}
}
