// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// dialect is a version of OpenAPI, 2 or 3. The two versions have the same information in different
// places of a document. A v2 document defines a parameter that several operations use only once,
// and the operations refer to it.
type dialect struct {
	v      int
	shared *parameters // nil in v3
}

// parameters are the shared parameters of a v2 document.
type parameters struct {
	defs map[string]any // definitions by name
	refs map[string]any // references to these parameters, by their content
}

func newParameters() *parameters {
	return &parameters{defs: map[string]any{}, refs: map[string]any{}}
}

// parameter returns a parameter, or in v2 a reference to a shared one.
func (d dialect) parameter(name, in, kind, description string) any {
	build := func() map[string]any {
		p := map[string]any{"name": name, "in": in, "description": description}
		if in == "path" {
			p["required"] = true
		}
		return d.typed(p, kind)
	}
	switch {
	case d.shared == nil, name == "name":
		return build()
	case in == "query" && (name == "dryRun" || name == "fieldValidation"):
		return build() // older clients need the parameter in the operation itself
	}
	return d.shared.reference(name, name+"|"+in+"|"+kind+"|"+description, build)
}

// reference returns a reference to the shared parameter that build returns. says identifies the
// parameter: calls with the same says get the same reference.
func (s *parameters) reference(name, says string, build func() map[string]any) any {
	ref, ok := s.refs[says]
	if !ok {
		p := build()
		key := name + "-" + sharedHash(p)
		ref = map[string]any{"$ref": "#/parameters/" + key}
		s.defs[key], s.refs[says] = p, ref
	}
	return ref
}

// body returns the parameter for the body of a request. Operations share it if the body is of a
// kind that is defined in apimachinery.
func (d dialect) body(op operation) any {
	body := map[string]any{"name": "body", "in": "body", "schema": d.reference(op.body)}
	if op.bodyRequired {
		body["required"] = true
	}
	if !strings.HasPrefix(op.body, metaPackage) {
		return body
	}
	return d.shared.reference("body", "body|"+op.body, func() map[string]any { return body })
}

// sharedHash returns the hash that distinguishes shared parameters of the same name, as in
// Kubernetes' documents.
func sharedHash(p map[string]any) string {
	hash := fnv.New64()
	// Encode the parameter as the library's type, which has the order of members that Kubernetes
	// hashes.
	var parameter spec.Parameter
	if text, err := json.Marshal(p); err == nil && json.Unmarshal(text, &parameter) == nil {
		if text, err = json.Marshal(parameter); err == nil {
			_, _ = hash.Write(text)
		}
	}
	return base64.URLEncoding.EncodeToString(hash.Sum(nil)[:6])
}

// operation describes one method of a path.
type operation struct {
	// These fields describe the operation.

	description, id, action string
	tag                     string // groups operations: "apps_v1"
	gvk                     schema.GroupVersionKind
	custom                  bool // a custom resource, which has no protobuf

	// The request. body (and answer, for the response) is the name of a definition. It is empty if
	// there is no object, or if its type is unknown.

	parameters   []any
	body         string
	bodyRequired bool
	patch        bool

	// The response.

	answer  string
	codes   []string
	streams bool
	text    []string // media types of a response that is a string; nil for other responses
	types   []string // media types of a page (type Page); nil for other responses
}

type parameter struct{ name, kind string }

var (
	listParameters = []parameter{
		{"allowWatchBookmarks", "boolean"}, {"continue", "string"}, {"fieldSelector", "string"}, {"labelSelector", "string"},
		{"limit", "integer"}, {"resourceVersion", "string"}, {"resourceVersionMatch", "string"},
		{"sendInitialEvents", "boolean"},
		{"shardSelector", "string"}, {"timeoutSeconds", "integer"}, {"watch", "boolean"},
	}
	selectParameters = []parameter{
		{"continue", "string"}, {"fieldSelector", "string"}, {"labelSelector", "string"}, {"limit", "integer"},
		{"resourceVersion", "string"}, {"resourceVersionMatch", "string"}, {"sendInitialEvents", "boolean"},
		{"shardSelector", "string"}, {"timeoutSeconds", "integer"},
	}
	writeParameters  = []parameter{{"dryRun", "string"}, {"fieldManager", "string"}, {"fieldValidation", "string"}}
	deleteParameters = []parameter{
		{"dryRun", "string"}, {"gracePeriodSeconds", "integer"},
		{"ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"},
		{"orphanDependents", "boolean"}, {"propagationPolicy", "string"},
	}
	mediaTypes  = []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
	customTypes = []string{"application/json", "application/yaml"}
	streamTypes = []string{"application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"}
	patchTypes  = []string{
		string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType),
		string(types.ApplyYAMLPatchType),
	}
)

// described returns a reference to a definition, with a description. The second argument is the
// name of the definition. The argument ref is the prefix of references. OpenAPI v3 allows a
// description only around a reference, so it needs a wrapper.
func described(ref, to, description string) map[string]any {
	if ref == refPrefix(3) {
		return map[string]any{"allOf": []any{map[string]any{"$ref": ref + to}}, "description": description}
	}
	return map[string]any{"$ref": ref + to, "description": description}
}

func (d dialect) reference(name string) map[string]any {
	if name == "" {
		return map[string]any{"type": "object"}
	}
	return map[string]any{"$ref": refPrefix(d.v) + name}
}

// typed sets the type of the parameter p to kind.
func (d dialect) typed(p map[string]any, kind string) map[string]any {
	if d.v == 2 {
		p["type"], p["uniqueItems"] = kind, true
		return p
	}
	p["schema"] = map[string]any{"type": kind, "uniqueItems": true}
	return p
}

func (d dialect) pathParameter(name, description string) any {
	return d.parameter(name, "path", "string", description)
}

func (d dialect) pretty() any {
	return d.parameter("pretty", "query", "string",
		"If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates "+
			"a browser or command-line HTTP tool (curl and wget).")
}

// query returns query parameters, with descriptions from docs, the documentation of an options
// type.
func (d dialect) query(docs map[string]string, list []parameter) []any {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b parameter) int { return cmp.Compare(a.name, b.name) })
	out := make([]any, 0, len(list))
	for _, p := range list {
		out = append(out, d.parameter(p.name, "query", p.kind, docs[p.name]))
	}
	return out
}

// sortParameters sorts parameters, and references to them, by name.
func sortParameters(list []any) []any {
	name := func(p any) string {
		fields := p.(map[string]any)
		if ref, ok := fields["$ref"].(string); ok {
			before, _, _ := strings.Cut(strings.TrimPrefix(ref, "#/parameters/"), "-")
			return before
		}
		return fields["name"].(string)
	}
	slices.SortStableFunc(list, func(p, q any) int { return cmp.Compare(name(p), name(q)) })
	return list
}

// operation returns op in the form that the dialect requires.
func (d dialect) operation(op operation) map[string]any {
	out := map[string]any{"description": op.description, "operationId": op.id, "responses": d.responses(op)}
	if op.tag != "" {
		out["tags"] = []string{op.tag}
	}
	if op.action != "" {
		out["x-kubernetes-action"] = op.action
		out[kindExtension] = kindOf(op.gvk)
	}
	parameters := op.parameters
	if d.v == 2 {
		out["produces"], out["schemes"] = produced(op), []string{"https"}
		if op.types == nil || op.text == nil {
			out["consumes"] = consumed(op)
		}
		if op.body != "" || op.bodyRequired {
			parameters = append([]any{d.body(op)}, parameters...)
		}
	} else if op.body != "" || op.bodyRequired {
		out["requestBody"] = d.requestBody(op)
	}
	if len(parameters) > 0 {
		out["parameters"] = sortParameters(slices.Clone(parameters))
	}
	return out
}

func consumed(op operation) []string {
	switch {
	case op.types != nil:
		return op.types
	case op.patch && op.custom:
		return slices.DeleteFunc(slices.Clone(patchTypes),
			func(t string) bool { return t == string(types.StrategicMergePatchType) })
	case op.patch:
		return patchTypes
	case op.custom:
		return customTypes
	case op.action == "":
		return mediaTypes
	}
	return []string{"*/*"}
}

func produced(op operation) []string {
	if op.text != nil {
		return op.text
	}
	if op.types != nil {
		return op.types
	}
	if op.custom {
		return customTypes
	}
	if op.streams {
		return append(slices.Clone(mediaTypes), streamTypes...)
	}
	return mediaTypes
}

func (d dialect) requestBody(op operation) map[string]any {
	body := map[string]any{"content": d.content(consumed(op), op.body)}
	if op.bodyRequired {
		body["required"] = true
	}
	return body
}

func (d dialect) content(types []string, name string) map[string]any {
	content := make(map[string]any, len(types))
	for _, t := range types {
		content[t] = map[string]any{"schema": d.reference(name)}
	}
	return content
}

// answer returns the schema of the operation's response.
func (d dialect) answer(op operation) map[string]any {
	if op.text != nil {
		return map[string]any{"type": "string"}
	}
	return d.reference(op.answer)
}

func (d dialect) responses(op operation) map[string]any {
	words := map[string]string{"200": "OK", "201": "Created", "202": "Accepted"}
	out := map[string]any{"401": map[string]any{"description": "Unauthorized"}}
	for _, code := range op.codes {
		r := map[string]any{"description": words[code]}
		if d.v == 2 {
			r["schema"] = d.answer(op)
		} else {
			content := make(map[string]any)
			for _, t := range produced(op) {
				content[t] = map[string]any{"schema": d.answer(op)}
			}
			r["content"] = content
		}
		out[code] = r
	}
	return out
}
