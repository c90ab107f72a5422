// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/util/keyutil"
)

// issuer is that of all tokens that live in secrets.
const issuer = "kubernetes/serviceaccount"

// claims are what such a token says beyond issuer and subject.
type claims struct {
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret      string `json:"kubernetes.io/serviceaccount/secret.name"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// signer makes tokens.
type signer struct{ jose.Signer }

// newSigner reads a private key in PEM.
func newSigner(pem []byte) (signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return signer{}, fmt.Errorf("key of service account tokens: %w", err)
	}
	private, ok := key.(crypto.Signer)
	if !ok {
		return signer{}, fmt.Errorf("key of service account tokens: of type %T", key)
	}
	alg, err := algorithm(private.Public())
	if err != nil {
		return signer{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return signer{}, fmt.Errorf("key of service account tokens: %w", err)
	}
	sum := sha256.Sum256(der)
	id := base64.RawURLEncoding.EncodeToString(sum[:])
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		return signer{}, fmt.Errorf("key of service account tokens: %w", err)
	}
	return signer{s}, nil
}

func algorithm(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
	}
	return "", fmt.Errorf("key of service account tokens: %T cannot sign them", public)
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
