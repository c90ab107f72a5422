// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"

	"keelson.dev/apiserver/resource"
)

func info(version string) map[string]any {
	return map[string]any{"title": "Kubernetes", "version": version}
}

func bearer() map[string]any {
	return map[string]any{"BearerToken": map[string]any{
		"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
	}}
}

// V3 returns the OpenAPI v3 document of a group version: the paths of rows (all
// of the group), and the definitions they need.
func V3(defs *Definitions, serverVersion, group, version string, rows []*resource.Row) ([]byte, error) {
	p := groupPaths(dialect{v: 3}, defs, group, version, rows)
	return json.Marshal(map[string]any{
		"openapi": "3.0.0", "info": info(serverVersion), "paths": p.out,
		"components": map[string]any{"schemas": defs.closure(p.used), "securitySchemes": bearer()},
	})
}
