// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstraptoken looks after the tokens with which nodes join: one
// controller signs what a joining node is told of the cluster with each of
// them, another deletes those that have expired.
//
// A joining node knows a token and nothing else. It reads the ConfigMap
// cluster-info, which anybody may, and believes what it says because the
// signature shows that somebody wrote it who knows the token too.
package bootstraptoken

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of the data of a token's Secret, as Kubernetes names them.
const (
	keyID         = "token-id"
	keySecret     = "token-secret"
	keyExpiration = "expiration"
	keySigning    = "usage-bootstrap-signing"
	namePrefix    = "bootstrap-token-"
)

// isToken tells whether a Secret is a token.
func isToken(s *v1.Secret) bool {
	return s.Namespace == metav1.NamespaceSystem && s.Type == v1.SecretTypeBootstrapToken
}

// expiry is when a token expires; forever when it never does. A time that
// cannot be read is over: a token must not live on by a mistake.
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

// signingKey is a token's id and secret if it is to sign now.
func signingKey(s *v1.Secret, now time.Time) (id, secret string, ok bool) {
	id, secret = string(s.Data[keyID]), string(s.Data[keySecret])
	at, forever := expiry(s)
	live := forever || now.Before(at)
	named := id != "" && s.Name == namePrefix+id
	return id, secret, isToken(s) && s.DeletionTimestamp == nil && live && named && secret != "" && strings.EqualFold(string(s.Data[keySigning]), "true")
}
