// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/version"

	"keelson.dev/apiserver/openapi"
	"keelson.dev/keelson/pkg/daemon"
)

// The release of Kubernetes whose contract this server keeps.
const major, minor = daemon.Major, daemon.Minor

// openAPIPages is what OpenAPI says of the pages beside the API.
func openAPIPages() []openapi.Page {
	return []openapi.Page{
		{Path: "/version/", Description: "get the version information for this server", ID: "getCodeVersion", Tag: "version",
			Answer: "io.k8s.apimachinery.pkg.version.Info", Types: []string{"application/json"}},
		{Path: "/openid/v1/jwks/", Description: "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
			ID: "getServiceAccountIssuerOpenIDKeyset", Tag: "openid", Types: []string{"application/jwk-set+json"}},
		{Path: "/.well-known/openid-configuration/", Description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
			ID: "getServiceAccountIssuerOpenIDConfiguration", Tag: "WellKnown", Types: []string{"application/json"}},
	}
}

// VersionInfo is the body of /version.
func VersionInfo() version.Info {
	info := version.Info{
		Major: major, Minor: minor,
		EmulationMajor: major, EmulationMinor: minor,
		MinCompatibilityMajor: major, MinCompatibilityMinor: "35",
		GitVersion: daemon.Version, BuildDate: "1970-01-01T00:00:00Z",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				info.GitCommit = s.Value
			case "vcs.time":
				info.BuildDate = s.Value
			case "vcs.modified":
				info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
			}
		}
	}
	return info
}

func versionDocument() ([]byte, error) {
	b, err := json.MarshalIndent(VersionInfo(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("version: %w", err)
	}
	return b, nil
}
