// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapi makes OpenAPI v2 and v3 documents from rows of the kind table (package resource)
// and the definitions of their kinds: paths with Kubernetes' operation ids and extensions, and the
// definitions that the paths refer to. It has no state; its callers cache documents.
package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"keelson.dev/apiserver/resource"
)

const (
	kindExtension       = "x-kubernetes-group-version-kind"
	selectableExtension = "x-kubernetes-selectable-fields"
)

// Definitions are the schemas of kinds and their parts, by name.
type Definitions struct {
	Schemas map[string]json.RawMessage
	names   map[schema.GroupVersionKind]string
	ref     string // prefix of references between schemas: "#/definitions/" or "#/components/schemas/"
}

// Parse decodes a JSON object of schemas, of OpenAPI version 2 or 3.
func Parse(doc []byte, version int) (*Definitions, error) {
	d := &Definitions{Schemas: map[string]json.RawMessage{}, names: map[schema.GroupVersionKind]string{},
		ref: refPrefix(version)}
	if len(doc) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(doc, &d.Schemas); err != nil {
		return nil, fmt.Errorf("openapi definitions: %w", err)
	}
	for name, def := range d.Schemas {
		if !bytes.Contains(def, []byte(kindExtension)) {
			continue
		}
		var kinds struct {
			GVK []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if err := json.Unmarshal(def, &kinds); err != nil {
			return nil, fmt.Errorf("openapi definition %s: %w", name, err)
		}
		for _, gvk := range kinds.GVK {
			d.names[gvk] = name
		}
	}
	return d, nil
}

func refPrefix(version int) string {
	if version == 2 {
		return "#/definitions/"
	}
	return "#/components/schemas/"
}

// Clone returns a copy that definitions can be added to.
func (d *Definitions) Clone() *Definitions {
	return &Definitions{Schemas: maps.Clone(d.Schemas), names: maps.Clone(d.names), ref: d.ref}
}

// Name returns the name of a kind's definition. It is empty if the kind has no definition.
func (d *Definitions) Name(gvk schema.GroupVersionKind) string { return d.names[gvk] }

// AddKind adds the schema of the kind that row declares in one version, and that of its list. An
// empty schema describes an object with unknown fields.
func (d *Definitions) AddKind(row *resource.Row, version string, def []byte) error {
	gvk := schema.GroupVersionKind{Group: row.Group, Version: version, Kind: row.Kind}
	var fields map[string]any
	if len(def) == 0 {
		fields = map[string]any{"type": "object"}
	} else if err := json.Unmarshal(def, &fields); err != nil {
		return fmt.Errorf("openapi schema of %s: %w", gvk, err)
	}
	fields[kindExtension] = []any{kindOf(gvk)}
	name := d.free(gvk)
	if err := d.add(name, gvk, fields); err != nil {
		return err
	}
	list := gvk
	list.Kind = listKind(row)
	schema := d.listSchema(list, row, name)
	if selectable, ok := fields[selectableExtension]; ok {
		schema[selectableExtension] = selectable
	}
	return d.add(d.free(list), list, schema)
}

// free returns the name under which AddKind adds the definition of a kind. The v2 document of a
// server has all definitions, so the name has a suffix there, as in Kubernetes, if a built-in
// definition has the name that the kind would get. A v3 document has only the kinds of one group
// version.
func (d *Definitions) free(gvk schema.GroupVersionKind) string {
	name := KindName(gvk)
	if _, taken := d.Schemas[name]; taken && d.names[gvk] != name && d.ref == refPrefix(2) {
		return name + "_v2"
	}
	return name
}

// listKind returns the kind of a list of the resource's objects.
func listKind(row *resource.Row) string {
	if row.ListKind != "" {
		return row.ListKind
	}
	return row.Kind + "List"
}

func (d *Definitions) add(name string, gvk schema.GroupVersionKind, fields map[string]any) error {
	b, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	d.Schemas[name], d.names[gvk] = b, name
	return nil
}

// listSchema returns the schema of a list of items with the definition item.
func (d *Definitions) listSchema(gvk schema.GroupVersionKind, row *resource.Row, item string) map[string]any {
	const meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
	properties := map[string]any{
		"apiVersion": map[string]any{"type": "string",
			"description": "APIVersion defines the versioned schema of this representation of an object. " +
				"Servers should convert recognized schemas to the latest internal value, and may reject " +
				"unrecognized values. More info: " +
				"https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"},
		"kind": map[string]any{"type": "string",
			"description": "Kind is a string value representing the REST resource this object represents. " +
				"Servers may infer this from the endpoint the client submits requests to. Cannot be " +
				"updated. In CamelCase. More info: " +
				"https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"},
		"items": map[string]any{
			"type": "array", "items": map[string]any{"$ref": d.ref + item},
			"description": "List of " + row.Resource +
				". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
		},
	}
	if _, ok := d.Schemas[meta]; ok {
		properties["metadata"] = described(d.ref, meta, "Standard list metadata. More info: "+
			"https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds")
	}
	return map[string]any{
		"description": gvk.Kind + " is a list of " + row.Kind, "type": "object", "required": []any{"items"},
		"properties": properties, kindExtension: []any{kindOf(gvk)},
	}
}

func kindOf(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// KindName returns the name of the definition of a kind that has no Go type, such as
// com.example.stable.v1.CronTab.
func KindName(gvk schema.GroupVersionKind) string {
	parts := strings.Split(gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, gvk.Version, gvk.Kind), ".")
}

// Models returns the named definitions and all that they refer to, in the form that apimachinery's
// package managedfields takes.
func (d *Definitions) Models(names ...string) (map[string]*spec.Schema, error) {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	models := make(map[string]*spec.Schema)
	for name, def := range d.closure(wanted) {
		s := &spec.Schema{}
		if err := json.Unmarshal(def, s); err != nil {
			return nil, fmt.Errorf("openapi definition %s: %w", name, err)
		}
		models[name] = s
	}
	return models, nil
}

// closure returns the definitions of names and all definitions that they refer to, directly or
// indirectly.
func (d *Definitions) closure(names map[string]bool) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(names))
	var visit func(name string)
	visit = func(name string) {
		def, ok := d.Schemas[name]
		if _, seen := out[name]; seen || !ok {
			return
		}
		out[name] = def
		for _, ref := range d.refs(def) {
			visit(ref)
		}
	}
	for name := range names {
		visit(name)
	}
	return out
}

// refs returns the names of the definitions that a definition refers to.
func (d *Definitions) refs(def []byte) []string {
	var found []string
	marker := []byte(`"$ref":"` + d.ref)
	for {
		i := bytes.Index(def, marker)
		if i < 0 {
			return found
		}
		def = def[i+len(marker):]
		if end := bytes.IndexByte(def, '"'); end > 0 {
			found = append(found, string(def[:end]))
		}
	}
}
