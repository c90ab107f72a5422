// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"crypto"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/util/keyutil"

	"keelson.dev/keelson/pkg/tokenkey"
)

// issuer is the issuer claim of all tokens in Secrets.
const issuer = "kubernetes/serviceaccount"

// claims are the claims in a token, in addition to the standard claims issuer and subject.
type claims struct {
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret      string `json:"kubernetes.io/serviceaccount/secret.name"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// signer signs service account tokens for Secrets.
type signer struct{ jose.Signer }

// newSigner returns a signer with the given private key, in PEM.
func newSigner(pem []byte) (signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return signer{}, fmt.Errorf("key of service account tokens: %w", err)
	}
	private, ok := key.(crypto.Signer)
	if !ok {
		return signer{}, fmt.Errorf("key of service account tokens: of type %T", key)
	}
	alg, err := tokenkey.Algorithm(private.Public())
	if err != nil {
		return signer{}, fmt.Errorf("key of service account tokens: %w", err)
	}
	id, err := tokenkey.ID(private.Public())
	if err != nil {
		return signer{}, fmt.Errorf("key of service account tokens: %w", err)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		return signer{}, fmt.Errorf("key of service account tokens: %w", err)
	}
	return signer{s}, nil
}

func (s signer) token(sa *v1.ServiceAccount, secret *v1.Secret) (string, error) {
	token, err := jwt.Signed(s.Signer).
		Claims(jwt.Claims{Issuer: issuer, Subject: serviceaccount.MakeUsername(sa.Namespace, sa.Name)}).
		Claims(claims{sa.Namespace, secret.Name, sa.Name, string(sa.UID)}).
		Serialize()
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return token, nil
}
