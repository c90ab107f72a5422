// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/version"

	"keelson.dev/apiserver/openapi"
)

// openAPIPages returns the pages outside the API that the OpenAPI documents describe.
func openAPIPages() []openapi.Page {
	return []openapi.Page{
		{Path: "/version/", Description: "get the version information for this server", ID: "getCodeVersion", Tag: "version",
			Answer: "io.k8s.apimachinery.pkg.version.Info", Types: []string{"application/json"}},
		{Path: "/openid/v1/jwks/",
			Description: "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
			ID:          "getServiceAccountIssuerOpenIDKeyset", Tag: "openid", Types: []string{"application/jwk-set+json"}},
		{Path: "/.well-known/openid-configuration/",
			Description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
			ID:          "getServiceAccountIssuerOpenIDConfiguration", Tag: "WellKnown", Types: []string{"application/json"}},
	}
}

func versionDocument(info version.Info) ([]byte, error) {
	b, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("version: %w", err)
	}
	return b, nil
}
