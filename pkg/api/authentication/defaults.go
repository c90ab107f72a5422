// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"keelson.dev/keelson/pkg/api/unset"
)

const tokenLifetimeSeconds int64 = 60 * 60

// DefaultTokenRequest fills a request for a service account's token.
func DefaultTokenRequest(r *authenticationv1.TokenRequest) {
	unset.Point(&r.Spec.ExpirationSeconds, tokenLifetimeSeconds)
}
