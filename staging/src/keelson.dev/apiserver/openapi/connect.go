// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
)

// connector adds the paths of a subresource that connects to a process, such as exec. The query
// parameters are the fields of its options kind (PodExecOptions for exec), and the response may be
// of any type.
func (p *paths) connector(e endpoint, item, name string, s *resource.RowSub) {
	kind := strings.TrimPrefix(name, "Namespaced")
	named := []any{p.pathParameter("name", "name of the "+e.gvk.Kind)}
	if e.common != nil {
		named = append(named, e.common[1:len(e.common)-1]...) // without name and pretty
	}
	query := p.options(e.gvk)
	add := func(path, suffix string, parameters []any) {
		ops := map[string]any{"parameters": sortParameters(slices.Clone(parameters))}
		for verb, method := range methods() {
			if !slices.Contains(s.Verbs, verb) && (s.Traffic != resource.Proxied || verb != "head" && verb != "options") {
				continue
			}
			ops[method] = e.operation(operation{
				description: "connect " + strings.ToUpper(method) + " requests to " + s.Name + " of " + kind,
				id:          "connect" + p.prefix() + title(method) + name + title(s.Name) + suffix,
				action:      "connect", gvk: e.gvk, text: []string{"*/*"}, codes: []string{"200"},
			})
		}
		p.out[path] = ops
	}
	add(item+"/"+s.Name, "", slices.Concat(named, query))
	if s.Traffic == resource.Proxied {
		add(item+"/"+s.Name+"/{path}", "WithPath",
			slices.Concat(named, []any{p.pathParameter("path", "path to the resource")}, query))
	}
}

// methods returns the HTTP methods of subresources that connect to a process, by verb.
func methods() map[string]string {
	return map[string]string{
		"get": "get", "create": "post", "update": "put", "patch": "patch", "delete": "delete", "head": "head",
		"options": "options",
	}
}

// log returns the operation of a subresource that responds with text.
func (p *paths) log(e endpoint, kind string) map[string]any {
	return map[string]any{"get": e.operation(operation{
		description: e.words("read"), id: e.named("read"), action: "get", gvk: e.gvk, codes: []string{"200"},
		text:       append([]string{"text/plain"}, mediaTypes...),
		parameters: p.options(schema.GroupVersionKind{Group: p.group, Version: p.version, Kind: kind + "LogOptions"}),
	})}
}

// options returns the query parameters for the fields of an options kind, such as PodExecOptions.
func (p *paths) options(gvk schema.GroupVersionKind) []any {
	var def struct {
		Properties map[string]struct {
			Type, Description string
			Items             struct{ Type string }
		}
	}
	if err := json.Unmarshal(p.defs.Schemas[p.defs.Name(gvk)], &def); err != nil {
		return nil // the definition does not exist
	}
	var out []any
	for _, name := range slices.Sorted(maps.Keys(def.Properties)) {
		field := def.Properties[name]
		if name == "apiVersion" || name == "kind" {
			continue
		}
		if field.Type == "array" {
			field.Type = field.Items.Type
		}
		if field.Type == "" {
			continue // a type that a query cannot express
		}
		out = append(out, p.parameter(name, "query", field.Type, field.Description))
	}
	return out
}
