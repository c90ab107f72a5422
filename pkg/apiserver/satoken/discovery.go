// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

// Paths at which issuer and keys are published.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	JWKSPath      = "/openid/v1/jwks"
)

// Discovery returns the handlers of DiscoveryPath and JWKSPath. jwksURI may be
// empty: the keys are then said to be at JWKSPath of this server's address.
func Discovery(issuer, jwksURI, address string, keys *Keys) (configuration, jwks http.Handler, err error) {
	if u, err := url.Parse(issuer); err != nil || u.Scheme != "https" {
		return nil, nil, fmt.Errorf("issuer %q is not an https URL: no discovery", issuer)
	}
	if jwksURI == "" {
		jwksURI = (&url.URL{Scheme: "https", Host: address, Path: JWKSPath}).String()
	}
	var algorithms []string
	for _, k := range keys.set.Keys {
		if !slices.Contains(algorithms, k.Algorithm) {
			algorithms = append(algorithms, k.Algorithm)
		}
	}
	doc, err := json.Marshal(struct {
		Issuer        string   `json:"issuer"`
		JWKSURI       string   `json:"jwks_uri"`
		ResponseTypes []string `json:"response_types_supported"`
		SubjectTypes  []string `json:"subject_types_supported"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	}{issuer, jwksURI, []string{"id_token"}, []string{"public"}, algorithms})
	if err != nil {
		return nil, nil, fmt.Errorf("discovery document: %w", err)
	}
	set, err := json.Marshal(keys.set)
	if err != nil {
		return nil, nil, fmt.Errorf("key set: %w", err)
	}
	return document("application/json", doc), document("application/jwk-set+json", set), nil
}

func document(contentType string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write(body)
	})
}
