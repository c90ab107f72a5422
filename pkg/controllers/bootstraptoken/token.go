// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstraptoken contains two controllers for bootstrap tokens, with which nodes join the
// cluster: one signs the cluster information with each token, the other one deletes expired tokens.
//
// A joining node has nothing but a token. It reads the public ConfigMap cluster-info, which
// contains the API server's address and certificate authority. The signature in it proves that the
// writer has the same token, so the node can trust the content.
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

// expiry returns the time at which a token expires. forever is true if the token never expires. If
// the time in the Secret cannot be parsed, expiry returns the zero time, so that the token counts
// as expired.
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

// signingKey returns a token's id and secret. ok reports whether the token may sign now: it must be
// valid, not be expired, and be meant for signing.
func signingKey(s *v1.Secret, now time.Time) (id, secret string, ok bool) {
	id, secret = string(s.Data[keyID]), string(s.Data[keySecret])
	at, forever := expiry(s)
	live := forever || now.Before(at)
	named := id != "" && s.Name == namePrefix+id
	return id, secret, isToken(s) && s.DeletionTimestamp == nil && live && named && secret != "" &&
		strings.EqualFold(string(s.Data[keySigning]), "true")
}
