// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"maps"

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

// GroupVersion is one group version of a V2 document.
type GroupVersion struct {
	Group, Version string
	Rows           []*resource.Row
}

// V2 returns the OpenAPI v2 document of everything.
func V2(defs *Definitions, serverVersion string, groups []GroupVersion) ([]byte, error) {
	all, used, shared := map[string]any{}, map[string]bool{}, newParameters()
	for _, g := range groups {
		p := groupPaths(dialect{v: 2, shared: shared}, defs, g.Group, g.Version, g.Rows)
		maps.Copy(all, p.out)
		maps.Copy(used, p.used)
	}
	return json.Marshal(map[string]any{
		"swagger": "2.0", "info": info(serverVersion), "paths": all, "definitions": defs.closure(used), "parameters": shared.defs,
		"securityDefinitions": bearer(), "security": []any{map[string]any{"BearerToken": []any{}}},
	})
}
