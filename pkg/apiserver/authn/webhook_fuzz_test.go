// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"keelson.dev/keelson/pkg/apiserver/authn/authntest"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// FuzzTokenWebhook sends random answers of a webhook. A token may be authenticated only if the
// answer has a field "authenticated" that is true.
func FuzzTokenWebhook(f *testing.F) {
	file, answer := authntest.Webhook(f)
	hook, err := newTokenWebhook(config.TokenWebhook{ConfigFile: file, Version: "v1"}, authenticator.Audiences{"api"})
	if err != nil {
		f.Fatal(err)
	}
	review := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":%t,` +
		`"user":{"username":%q},"audiences":[%q]}}`
	for _, audience := range []string{"api", "another", ""} {
		f.Add([]byte(fmt.Sprintf(review, true, "alice", audience)))
		f.Add([]byte(fmt.Sprintf(review, false, "alice", audience)))
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"Status","status":"Failure"}`))
	ctx := authenticator.WithAudiences(f.Context(), authenticator.Audiences{"api"})
	var n atomic.Int64
	f.Fuzz(func(t *testing.T, body []byte) {
		answer.Store(&body)
		token := strconv.FormatInt(n.Add(1), 10) // a new token each time, because answers are cached by token
		if resp, ok, _ := hook.AuthenticateToken(ctx, token); ok && !authntest.Says(body, "authenticated") {
			t.Errorf("%q lets in %v", body, resp.User)
		}
	})
}
