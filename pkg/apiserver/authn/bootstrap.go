// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"crypto/subtle"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"keelson.dev/api/clock"
)

// bootstrapTokens authenticates joining nodes by tokens "id.secret", each a
// secret bootstrap-token-<id> of kube-system.
type bootstrapTokens struct {
	get   Secrets
	clock clock.Clock
}

// Secrets reads one secret, consistently.
type Secrets interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

const bootstrapGroup = "system:bootstrappers"

// AuthenticateToken knows a token that is complete, not expired, and meant for
// authentication. All else is nobody's token.
func (b *bootstrapTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	id, secret, ok := strings.Cut(token, ".")
	if !ok || !matches(`^[a-z0-9]{6}$`, id) || !matches(`^[a-z0-9]{16}$`, secret) {
		return nil, false, nil
	}
	s, err := b.get.Secret(ctx, metav1.NamespaceSystem, "bootstrap-token-"+id)
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
			if !matches(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`, g) {
				return nil, false, nil
			}
			groups = append(groups, g)
		}
	}
	slices.Sort(groups)
	return &authenticator.Response{User: &user.DefaultInfo{Name: "system:bootstrap:" + id, Groups: slices.Compact(groups)}}, true, nil
}

func matches(pattern, s string) bool { return regexp.MustCompile(pattern).MatchString(s) }
