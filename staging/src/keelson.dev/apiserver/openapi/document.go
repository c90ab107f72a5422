// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"fmt"
	"slices"

	semver "k8s.io/apimachinery/pkg/util/version"

	"keelson.dev/apiserver/resource"
)

// info returns the info object of a document: its version is that of the release, for example 1.36
// for v1.36.3.
func info(version string) map[string]any {
	if v, err := semver.ParseGeneric(version); err == nil {
		version = fmt.Sprintf("%d.%d", v.Major(), v.Minor())
	}
	return map[string]any{"title": "Kubernetes", "version": version}
}

// ofGroup limits the schemas of DeleteOptions and WatchEvent, which list their kinds in every
// group, to one group version.
func ofGroup(schemas map[string]json.RawMessage, group, version string) map[string]json.RawMessage {
	return ofKinds(schemas, func(k kindName) bool { return k.Group == "" || k.Group == group && k.Version == version })
}

// ofClients limits the schemas of DeleteOptions and WatchEvent, which list their kinds in every
// group, to the groups that clients use. It excludes those that only servers and webhooks use.
func ofClients(schemas map[string]json.RawMessage) map[string]json.RawMessage {
	return ofKinds(schemas, func(k kindName) bool {
		return !slices.Contains([]string{"admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
			"imagepolicy.k8s.io"}, k.Group)
	})
}

// ofKinds removes from the schemas of DeleteOptions and WatchEvent the kinds that the function keep
// rejects.
func ofKinds(schemas map[string]json.RawMessage, keep func(k kindName) bool) map[string]json.RawMessage {
	for _, name := range []string{metaPackage + "DeleteOptions", metaPackage + "WatchEvent"} {
		var fields map[string]json.RawMessage
		var kinds []kindName
		if json.Unmarshal(schemas[name], &fields) != nil || json.Unmarshal(fields[kindExtension], &kinds) != nil {
			continue // the definition is missing or lists no kinds
		}
		kinds = slices.DeleteFunc(kinds, func(k kindName) bool { return !keep(k) })
		said, err := json.Marshal(kinds)
		if err != nil {
			continue
		}
		fields[kindExtension] = said
		if whole, err := json.Marshal(fields); err == nil {
			schemas[name] = whole
		}
	}
	return schemas
}

type kindName struct {
	Group   string `json:"group"`
	Kind    string `json:"kind"`
	Version string `json:"version"`
}

func bearer() map[string]any {
	return map[string]any{"BearerToken": map[string]any{
		"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
	}}
}

// V3 returns the OpenAPI v3 document of a group version: the paths of rows, which are all rows of
// the kind table for this group, and the definitions that these need.
func V3(defs *Definitions, serverVersion, group, version string, rows []*resource.Row) ([]byte, error) {
	p := groupPaths(dialect{v: 3}, defs, group, version, rows)
	if custom(rows) {
		return ordered(map[string]any{
			"openapi": "3.0.0", "info": map[string]any{"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}, "paths": p.out,
			"components": map[string]any{"schemas": ofClients(defs.closure(p.used))},
		})
	}
	return ordered(map[string]any{
		"openapi": "3.0.0", "info": info(serverVersion), "paths": p.out,
		"components": map[string]any{"schemas": ofGroup(defs.closure(p.used), group, version), "securitySchemes": bearer()},
	})
}
