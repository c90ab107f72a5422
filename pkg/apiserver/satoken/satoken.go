// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package satoken issues and verifies tokens of service accounts, and publishes the keys that
// verify them.
//
// A token is a JWT bound to a service account and optionally to a pod, a secret or a node. It
// becomes invalid when one of these objects is deleted, or replaced by an object with the same
// name. Tokens in secrets (kubernetes.io/service-account-token) are verified, but not issued.
package satoken

import (
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/client-go/util/keyutil"

	"keelson.dev/keelson/pkg/tokenkey"
)

// LegacyIssuer is the issuer of tokens in secrets.
const LegacyIssuer = "kubernetes/serviceaccount"

// WarnAfter is the lifetime, in seconds, that token volumes request: an hour and seven seconds, by
// which the server recognizes them. Because some clients do not reload their tokens yet, the server
// issues such tokens with a lifetime of ExtendedExpiry.
const (
	WarnAfter      int64 = 60*60 + 7
	ExtendedExpiry int64 = 24 * 365 * 60 * 60
)

// claims are the private claims of a bound token.
type claims struct {
	Kubernetes kubernetesClaims `json:"kubernetes.io"`
}

type kubernetesClaims struct {
	Namespace      string           `json:"namespace,omitempty"`
	Node           *Ref             `json:"node,omitempty"`
	Pod            *Ref             `json:"pod,omitempty"`
	Secret         *Ref             `json:"secret,omitempty"`
	ServiceAccount Ref              `json:"serviceaccount"`
	WarnAfter      *jwt.NumericDate `json:"warnafter,omitempty"`
}

// Ref refers to an object that a token is bound to.
type Ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// legacyClaims are the claims of a token in a secret.
type legacyClaims struct {
	ServiceAccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	ServiceAccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
	SecretName         string `json:"kubernetes.io/serviceaccount/secret.name"`
	Namespace          string `json:"kubernetes.io/serviceaccount/namespace"`
}

// Issuer signs tokens.
type Issuer struct {
	name string
	sign func(ctx context.Context, payload []byte) (string, error)
}

// LoadIssuer reads the signing key from a PEM file.
func LoadIssuer(name, file string) (*Issuer, error) {
	parsed, err := keyutil.PrivateKeyFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("failed to parse service-account-issuer-key-file: %w", err)
	}
	private, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("service account signing key %s: unusable type %T", file, parsed)
	}
	alg, err := tokenkey.Algorithm(private.Public())
	if err != nil {
		return nil, fmt.Errorf("service account signing key %s: %w", file, err)
	}
	id, err := tokenkey.ID(private.Public())
	if err != nil {
		return nil, fmt.Errorf("service account signing key %s: %w", file, err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: parsed, KeyID: id}}, nil)
	if err != nil {
		return nil, fmt.Errorf("service account signing key %s: %w", file, err)
	}
	return &Issuer{name: name, sign: func(_ context.Context, payload []byte) (string, error) {
		signed, err := signer.Sign(payload)
		if err != nil {
			return "", err
		}
		return signed.CompactSerialize()
	}}, nil
}

// Wanted describes a token to issue.
type Wanted struct {
	// The account, and what the token is bound to.

	ID             string // value of the claim jti
	Subject        string // user name of the service account
	Namespace      string
	ServiceAccount Ref
	// The token is bound to one of these objects: a secret, a pod, or a node. With a pod, its node
	// may be set too.
	Pod, Secret, Node *Ref
	Audiences         []string
	Now, Expiry       time.Time
	WarnAfter         time.Time // zero if no warning is needed
}

// Issue signs a token.
func (i *Issuer) Issue(ctx context.Context, w Wanted) (string, error) {
	public := jwt.Claims{
		ID: w.ID, Issuer: i.name, Subject: w.Subject, Audience: w.Audiences,
		IssuedAt: jwt.NewNumericDate(w.Now), NotBefore: jwt.NewNumericDate(w.Now), Expiry: jwt.NewNumericDate(w.Expiry),
	}
	private := claims{kubernetesClaims{
		Namespace: w.Namespace, ServiceAccount: w.ServiceAccount, Pod: w.Pod, Secret: w.Secret, Node: w.Node,
	}}
	if !w.WarnAfter.IsZero() {
		private.Kubernetes.WarnAfter = jwt.NewNumericDate(w.WarnAfter)
	}
	all := map[string]json.RawMessage{}
	for _, part := range []any{private, public} {
		data, err := json.Marshal(part)
		if err != nil {
			return "", fmt.Errorf("claims: %w", err)
		}
		if err := json.Unmarshal(data, &all); err != nil {
			return "", fmt.Errorf("claims: %w", err)
		}
	}
	audiences, err := json.Marshal(w.Audiences) // a list even if there is only one audience
	if err != nil {
		return "", fmt.Errorf("claims: %w", err)
	}
	all["aud"] = audiences
	payload, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("claims: %w", err)
	}
	token, err := i.sign(ctx, payload)
	if err != nil {
		return "", fmt.Errorf("sign service account token: %w", err)
	}
	return token, nil
}
