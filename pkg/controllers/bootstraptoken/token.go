// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstraptoken manages the tokens with which nodes join: one controller signs the cluster
// information with each token, and another one deletes expired tokens.
//
// A joining node only knows a token. It reads the ConfigMap cluster-info, which is public, and
// trusts it because the signature proves that the writer knows the token too.
package bootstraptoken

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys in the data of a token's Secret, as in Kubernetes.
const (
	keyID         = "token-id"
	keySecret     = "token-secret"
	keyExpiration = "expiration"
	keySigning    = "usage-bootstrap-signing"
	namePrefix    = "bootstrap-token-"
)

// isToken reports whether a Secret is a bootstrap token.
func isToken(s *v1.Secret) bool {
	return s.Namespace == metav1.NamespaceSystem && s.Type == v1.SecretTypeBootstrapToken
}

// expiry returns when a token expires, or forever if it never does. A time that cannot be parsed
// counts as expired, so that a mistake does not keep a token valid.
func expiry(s *v1.Secret) (at time.Time, forever bool) {
	text := string(s.Data[keyExpiration])
	if text == "" {
		return time.Time{}, true
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, false
	}
	return at, false
}

// signingKey returns a token's id and secret, and whether the token may sign now.
func signingKey(s *v1.Secret, now time.Time) (id, secret string, ok bool) {
	id, secret = string(s.Data[keyID]), string(s.Data[keySecret])
	at, forever := expiry(s)
	live := forever || now.Before(at)
	named := id != "" && s.Name == namePrefix+id
	return id, secret, isToken(s) && s.DeletionTimestamp == nil && live && named && secret != "" &&
		strings.EqualFold(string(s.Data[keySigning]), "true")
}
