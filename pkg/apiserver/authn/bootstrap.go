// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"crypto/subtle"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/api/clock"
)

// bootstrapTokens authenticates joining nodes by bootstrap tokens of the form "id.secret". The
// secret bootstrap-token-<id> in kube-system defines a token.
//
// Any client that reaches the server can send tokens to be looked up, even without credentials. To
// save reads of the store, tokens are looked up in the cache of an informer, as in Kubernetes. A
// new token is accepted as soon as the informer's watch delivers it.
type bootstrapTokens struct {
	secrets corelisters.SecretLister
	clock   clock.Clock
}

const bootstrapGroup = "system:bootstrappers"

// Lengths of the two parts of a token, in bytes.
const (
	bootstrapID     = 6
	bootstrapSecret = 16
)

// AuthenticateToken authenticates a token that is complete, not expired and enabled for
// authentication. For any other token it returns false.
func (b *bootstrapTokens) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	if len(token) != bootstrapID+1+bootstrapSecret || token[bootstrapID] != '.' {
		return nil, false, nil
	}
	id, secret := token[:bootstrapID], token[bootstrapID+1:]
	if !consists(id, "") || !consists(secret, "") {
		return nil, false, nil
	}
	s, err := b.secrets.Secrets(metav1.NamespaceSystem).Get("bootstrap-token-" + id)
	if err != nil || s.DeletionTimestamp != nil || s.Type != corev1.SecretTypeBootstrapToken {
		return nil, false, nil
	}
	value := func(key string) string { return string(s.Data[key]) }
	if subtle.ConstantTimeCompare([]byte(value("token-secret")), []byte(secret)) != 1 || value("token-id") != id {
		return nil, false, nil
	}
	if end := value("expiration"); end != "" {
		t, err := time.Parse(time.RFC3339, end)
		if err != nil || !b.clock.Now().Before(t) {
			return nil, false, nil
		}
	}
	if value("usage-bootstrap-authentication") != "true" {
		return nil, false, nil
	}
	groups := []string{bootstrapGroup}
	if extra := value("auth-extra-groups"); extra != "" {
		for g := range strings.SplitSeq(extra, ",") {
			if !bootstrapperGroup(g) {
				return nil, false, nil
			}
			groups = append(groups, g)
		}
	}
	slices.Sort(groups)
	return &authenticator.Response{User: &user.DefaultInfo{Name: "system:bootstrap:" + id,
		Groups: slices.Compact(groups)}}, true, nil
}

// bootstrapperGroup reports whether a token may grant a group. The name must be
// "system:bootstrappers:" followed by at most 256 characters, and end in a lower-case letter or a
// digit.
func bootstrapperGroup(name string) bool {
	rest, ok := strings.CutPrefix(name, bootstrapGroup+":")
	if !ok || rest == "" || len(rest) > 256 {
		return false
	}
	return consists(rest[:len(rest)-1], ":-") && consists(rest[len(rest)-1:], "")
}

// consists reports whether s contains only lower-case letters, digits, and the characters of its
// second argument.
func consists(s, others string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}
