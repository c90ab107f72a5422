// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"keelson.dev/keelson/pkg/apiserver/bootstrap"
)

// publishAuthentication writes the config map from which extension servers learn the CA of client
// certificates and the front proxies to trust.
func (a *assembly) publishAuthentication(ctx context.Context) error {
	data := map[string]string{}
	if ca := a.server.clientCA; ca != nil {
		data["client-ca-file"] = ca.PEM()
	}
	if ca := a.server.proxyCA; ca != nil {
		data["requestheader-client-ca-file"] = ca.PEM()
		h := a.cfg.RequestHeader
		lists := map[string][]string{
			"requestheader-username-headers":     h.UsernameHeaders,
			"requestheader-group-headers":        h.GroupHeaders,
			"requestheader-extra-headers-prefix": h.ExtraHeaderPrefixes,
			"requestheader-allowed-names":        h.AllowedNames,
		}
		if len(h.UIDHeaders) > 0 { // older extension servers do not know this key
			lists["requestheader-uid-headers"] = h.UIDHeaders
		}
		for key, list := range lists {
			if list == nil {
				list = []string{}
			}
			b, err := json.Marshal(list)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			data[key] = string(b)
		}
	}
	if len(data) == 0 {
		return nil
	}
	return bootstrap.AuthenticationConfig(ctx, a.self.client, data, a.server.deps.Clock.Now())
}

// authenticationRefresh is how often the config map is compared with this server's values even if
// these values have not changed, because another client may have changed the config map.
const authenticationRefresh = time.Minute

// keepAuthentication publishes the config map again within seconds after a CA file has changed, and
// every authenticationRefresh, until ctx is done.
func (a *assembly) keepAuthentication(ctx context.Context) {
	var last string
	var at time.Time
	a.keep(certReload, func(ctx context.Context) error {
		cas, now := "", a.server.deps.Clock.Now()
		for _, ca := range a.server.serving.cas {
			cas += ca.PEM()
		}
		if cas == last && now.Sub(at) < authenticationRefresh {
			return nil
		}
		if err := a.publishAuthentication(ctx); err != nil {
			return err
		}
		last, at = cas, now
		return nil
	})(ctx)
}
