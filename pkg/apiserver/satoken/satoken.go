// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package satoken issues and verifies tokens of service accounts, and publishes the keys that
// verify them.
//
// A token is a JWT for a service account. It may also be bound to a pod, a secret or a node. It
// becomes invalid when the service account or the bound object is deleted, or replaced by another
// object with the same name. Tokens in secrets of type kubernetes.io/service-account-token are
// verified, but not issued.
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

// LegacyIssuer is the issuer of tokens in secrets of type kubernetes.io/service-account-token.
const LegacyIssuer = "kubernetes/serviceaccount"

// WarnAfter is the lifetime, in seconds, that kubelets request for tokens in volumes: one hour and
// seven seconds. The server recognizes such requests by this unusual value. Some programs do not
// reload their tokens in time, so the server makes these tokens valid for ExtendedExpiry seconds,
// and reports tokens that are used after WarnAfter.
const (
	WarnAfter      int64 = 60*60 + 7
	ExtendedExpiry int64 = 24 * 365 * 60 * 60
)

// claims are the private claims of a token that this package issues.
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

// Ref refers to an object that a service account token is bound to.
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

// Issuer signs service account tokens.
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

// Wanted describes a service account token to issue.
type Wanted struct {
	// The token and its service account.

	ID             string // value of the claim jti, a unique ID of the token
	Subject        string // user name of the service account
	Namespace      string
	ServiceAccount Ref
	// The object that the token is bound to: a secret, a pod or a node. For a pod, Node may also be
	// set, to the pod's node. All are nil for a token that is not bound.
	Pod, Secret, Node *Ref
	Audiences         []string
	Now, Expiry       time.Time
	WarnAfter         time.Time // time after which uses are reported; zero if they are not
}

// Issue signs a service account token.
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
	audiences, err := json.Marshal(w.Audiences) // in JSON, the audience is a list even if there is only one
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
		return "", fmt.Errorf("failed to generate token: %w", err)
	}
	return token, nil
}
