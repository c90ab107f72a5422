// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// Paths of the issuer's discovery document and keys.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	JWKSPath      = "/openid/v1/jwks"
)

// Media types of the discovery document and of the keys.
const (
	DiscoveryType = "application/json"
	JWKSType      = "application/jwk-set+json"
)

// Discovery returns the handlers of DiscoveryPath and JWKSPath. The discovery document gives
// jwksURI as the URL of the keys, or JWKSPath at address if jwksURI is empty.
func Discovery(issuer, jwksURI, address string, keys KeySource) (configuration, jwks http.Handler, err error) {
	if u, err := url.Parse(issuer); err != nil || u.Scheme != "https" {
		return nil, nil, fmt.Errorf("issuer %q is not an https URL: no discovery", issuer)
	}
	if jwksURI == "" {
		jwksURI = (&url.URL{Scheme: "https", Host: address, Path: JWKSPath}).String()
	}
	configuration = published(keys, DiscoveryType, func(set jose.JSONWebKeySet) any {
		algorithms := []string{}
		for _, k := range set.Keys {
			if !slices.Contains(algorithms, k.Algorithm) {
				algorithms = append(algorithms, k.Algorithm)
			}
		}
		return struct {
			Issuer        string   `json:"issuer"`
			JWKSURI       string   `json:"jwks_uri"`
			ResponseTypes []string `json:"response_types_supported"`
			SubjectTypes  []string `json:"subject_types_supported"`
			Algorithms    []string `json:"id_token_signing_alg_values_supported"`
		}{issuer, jwksURI, []string{"id_token"}, []string{"public"}, algorithms}
	})
	return configuration, published(keys, JWKSType, func(set jose.JSONWebKeySet) any { return set }), nil
}

// published returns a handler that serves the document that build creates from the current keys.
func published(keys KeySource, contentType string, build func(jose.JSONWebKeySet) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		set, age := keys.Published()
		body, err := json.Marshal(build(set))
		if err != nil {
			http.Error(w, "keys are not available", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(age.Seconds())))
		_, _ = w.Write(body)
	})
}
