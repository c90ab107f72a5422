// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/util/webhook"
	tokenwebhook "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/outbound"
)

// newTokenWebhook returns an authenticator that sends tokens to a webhook. The webhook may have any
// address, because the administrator configured it. Redirects are not followed.
func newTokenWebhook(cfg config.TokenWebhook, audiences authenticator.Audiences) (authenticator.Token, error) {
	client, err := webhook.LoadKubeconfig(cfg.ConfigFile, nil)
	if err != nil {
		return nil, err
	}
	client.Wrap(outbound.NoRedirects)
	hook, err := tokenwebhook.New(client, cfg.Version, audiences, *tokenwebhook.DefaultRetryBackoff())
	if err != nil {
		return nil, err
	}
	return cache.New(hook, false, cfg.CacheTTL, cfg.CacheTTL), nil
}
