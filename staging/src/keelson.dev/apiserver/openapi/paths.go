// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/discovery"
	"keelson.dev/apiserver/resource"
)

const metaPackage = "io.k8s.apimachinery.pkg.apis.meta.v1."

// paths collects the paths of one group version.
type paths struct {
	dialect
	defs           *Definitions
	group, version string
	base           string // "/apis/apps/v1"
	out            map[string]any
	used           map[string]bool // names of definitions that the paths refer to
}

// groupPaths returns the paths of the resources in rows, in a version.
func groupPaths(d dialect, defs *Definitions, group, version string, rows []*resource.Row) *paths {
	p := newPaths(d, defs, group, version)
	if !custom(rows) {
		p.root()
	}
	for _, row := range rows {
		if row.Serves(version) {
			p.row(row)
		}
	}
	return p
}

// custom reports whether a group has only custom resources. In Kubernetes, another generator makes
// their documents, which have no path for the group version itself.
func custom(rows []*resource.Row) bool {
	return len(rows) > 0 && !slices.ContainsFunc(rows, func(r *resource.Row) bool { return !r.Custom })
}

func newPaths(d dialect, defs *Definitions, group, version string) *paths {
	p := &paths{
		dialect: d, defs: defs, group: group, version: version,
		base: "/apis/" + group + "/" + version, out: map[string]any{}, used: map[string]bool{},
	}
	if group == "" {
		p.base = "/api/" + version
	}
	return p
}

// root adds the path of the group version itself to the OpenAPI document.
func (p *paths) root() {
	p.out[p.base+"/"] = map[string]any{"get": p.operation(operation{
		description: "get available resources", id: "get" + p.prefix() + "APIResources", tag: p.tag(),
		answer: p.use(metaPackage + "APIResourceList"), codes: []string{"200"},
	})}
}

// tag returns the tag of operations of the group and version: apps_v1, core_v1.
func (p *paths) tag() string {
	group := strings.TrimSuffix(p.prefix(), title(p.version))
	return strings.ToLower(group[:1]) + group[1:] + "_" + p.version
}

// prefix returns the group and version as a part of operation ids: AppsV1, CoreV1.
func (p *paths) prefix() string {
	group := p.group
	if group == "" {
		group = "core"
	}
	group = strings.TrimSuffix(group, ".k8s.io")
	var b strings.Builder
	for part := range strings.FieldsFuncSeq(group, func(r rune) bool { return r == '.' || r == '-' }) {
		b.WriteString(title(part))
	}
	return b.String() + title(p.version)
}

func title(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// use records that the paths refer to a definition (an OpenAPI schema), and returns its name.
func (p *paths) use(name string) string {
	p.used[name] = true
	return name
}

// kind returns the reference to the definition of a kind, or an empty string if the kind has no
// definition.
func (p *paths) kind(gvk schema.GroupVersionKind) string {
	if name := p.defs.Name(gvk); name != "" {
		return p.use(name)
	}
	return ""
}

// row adds the paths of one resource to the OpenAPI document.
func (p *paths) row(row *resource.Row) {
	gvk := schema.GroupVersionKind{Group: p.group, Version: p.version, Kind: row.Kind}
	list := gvk
	list.Kind = listKind(row)
	verbs := discovery.Verbs(row)
	e := endpoint{p: p, custom: row.Custom, returned: row.ReturnsDeleted(p.version), gvk: gvk, self: p.kind(gvk),
		list: p.kind(list), has: func(v string) bool { return slices.Contains(verbs, v) }}
	collection, scope := p.base+"/"+row.Resource, ""
	var inPath []any
	if row.Namespaced {
		scope = "Namespaced"
		if e.has("list") {
			all := e.listOperation("list" + p.prefix() + row.Kind + "ForAllNamespaces")
			all.parameters = p.query(metav1.ListOptions{}.SwaggerDoc(), listParameters)
			p.out[collection] = hoist(map[string]any{"get": e.operation(all), "parameters": []any{p.pretty()}})
		}
		collection = p.base + "/namespaces/{namespace}/" + row.Resource
		inPath = []any{p.pathParameter("namespace", "object name and auth scope, such as for teams and projects")}
	}
	e.id, e.common = p.prefix()+"@"+scope+row.Kind, append(inPath, p.pretty())
	if ops := e.collection(); len(ops) > 0 {
		ops["parameters"] = e.common
		p.out[collection] = hoist(ops)
	}
	item := collection + "/{name}"
	e.common = append([]any{p.pathParameter("name", "name of the "+row.Kind)}, e.common...)
	if ops := e.item(); len(ops) > 0 {
		ops["parameters"] = e.common
		p.out[item] = hoist(ops)
	}
	for i := range row.Subresources {
		p.subresource(e, item, scope+row.Kind, &row.Subresources[i])
	}
	if e.has("watch") && !e.custom {
		p.watches(e, row, scope)
	}
}

// watches adds the deprecated paths for watches of a resource to the OpenAPI document. They have
// the same query parameters as lists.
func (p *paths) watches(e endpoint, row *resource.Row, scope string) {
	const old = ". deprecated: use the 'watch' parameter with a list operation instead"
	query := append([]any{p.pretty()}, p.query(metav1.ListOptions{}.SwaggerDoc(), listParameters)...)
	add := func(path, action, words, id string, inPath ...any) {
		p.out[path] = map[string]any{"get": e.operation(operation{
			description: words, id: "watch" + p.prefix() + id, action: action, gvk: e.gvk,
			answer: p.use(metaPackage + "WatchEvent"), codes: []string{"200"}, streams: true,
		}), "parameters": sortParameters(append(inPath, query...))}
	}
	all := "watch individual changes to a list of " + row.Kind + old + "."
	collection := p.base + "/watch/" + row.Resource
	var inPath []any
	if row.Namespaced {
		add(collection, "watchlist", all, row.Kind+"ListForAllNamespaces")
		collection = p.base + "/watch/namespaces/{namespace}/" + row.Resource
		inPath = []any{p.pathParameter("namespace", "object name and auth scope, such as for teams and projects")}
	}
	add(collection, "watchlist", all, scope+row.Kind+"List", inPath...)
	if e.has("get") {
		one := "watch changes to an object of kind " + row.Kind + old +
			", filtered to a single item with the 'fieldSelector' parameter."
		add(collection+"/{name}", "watch", one, scope+row.Kind,
			append([]any{p.pathParameter("name", "name of the "+row.Kind)}, inPath...)...)
	}
}

// subresource adds the path of a subresource: one that shows the object (status), a scale, or one
// that connects to a process (exec).
func (p *paths) subresource(e endpoint, item, name string, s *resource.RowSub) {
	if !s.Kind.Empty() {
		if !e.custom { // all operations of a custom resource have its own kind
			e.gvk = s.Kind
		}
		if !s.Connects() {
			e.self = p.kind(s.Kind)
		}
	}
	e.common = append([]any{p.pathParameter("name", "name of the "+e.gvk.Kind)}, e.common[1:]...)
	e.id = p.prefix() + "@" + name + title(s.Name)
	e.what = s.Name + " of the specified " + strings.TrimPrefix(name, "Namespaced")
	e.has = func(v string) bool { return slices.Contains(s.Verbs, v) }
	if s.Connects() {
		p.connector(e, item, name, s)
		return
	}
	ops := e.item()
	if s.Traffic == resource.Text {
		ops = p.log(e, strings.TrimPrefix(name, "Namespaced"))
	}
	if e.has("create") {
		ops["post"] = e.operation(e.createOperation("create " + s.Name + " of " +
			article(strings.TrimPrefix(name, "Namespaced"))))
	}
	if len(ops) > 0 {
		ops["parameters"] = e.common
		p.out[item+"/"+s.Name] = hoist(ops)
	}
}

// hoist moves parameters that all operations of a path have in common from the operations to the
// path.
func hoist(ops map[string]any) map[string]any {
	own, _ := ops["parameters"].([]any)
	var methods []map[string]any
	for key, op := range ops {
		if key != "parameters" {
			methods = append(methods, op.(map[string]any))
		}
	}
	said := func(op map[string]any) []any { list, _ := op["parameters"].([]any); return list }
	of := func(op map[string]any, p any) bool {
		return slices.ContainsFunc(said(op), func(q any) bool { return reflect.DeepEqual(p, q) })
	}
	for _, p := range slices.Clone(said(methods[0])) {
		if p.(map[string]any)["in"] == "body" ||
			slices.ContainsFunc(methods, func(op map[string]any) bool { return !of(op, p) }) {
			continue
		}
		own = append(slices.Clip(own), p)
		for _, op := range methods {
			op["parameters"] = slices.DeleteFunc(slices.Clone(said(op)), func(q any) bool { return reflect.DeepEqual(p, q) })
		}
	}
	for _, op := range methods {
		if len(said(op)) == 0 {
			delete(op, "parameters")
		}
	}
	ops["parameters"] = sortParameters(slices.Clone(own))
	return ops
}

// article returns a kind with its indefinite article if it is singular: an Event, but Endpoints.
func article(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		return kind
	case strings.ContainsAny(kind[:1], "AEIOU"):
		return "an " + kind
	}
	return "a " + kind
}

// endpoint contains the common parts of the operations of one path.
type endpoint struct {
	p *paths

	// The kind.

	gvk        schema.GroupVersionKind
	self, list string // names of the definitions of the object and of its list
	custom     bool

	// Words and ids in the descriptions of operations.

	id   string // "AppsV1@NamespacedDeployment": a verb replaces the @
	what string // "status of the specified Deployment"; empty for a whole object

	// The operations.

	common   []any // parameters of all operations
	has      func(verb string) bool
	returned bool // the response to a delete is the deleted object
}

// operation returns the OpenAPI document of op, with the settings that all operations of the endpoint
// share.
func (e endpoint) operation(op operation) map[string]any {
	op.custom, op.tag = e.custom, e.p.tag()
	return e.p.operation(op)
}

func (e endpoint) named(verb string) string {
	before, after, _ := strings.Cut(e.id, "@")
	verb, infix, _ := strings.Cut(verb, "+")
	return verb + before + infix + after
}

func (e endpoint) words(verb string) string {
	if e.what != "" {
		return verb + " " + e.what
	}
	return verb + " the specified " + e.gvk.Kind
}

func (e endpoint) listOperation(id string) operation {
	words := "list or watch"
	if e.custom || !e.has("watch") {
		words = "list"
	}
	return operation{description: words + " objects of kind " + e.gvk.Kind, id: id, action: "list", gvk: e.gvk,
		answer: e.list, codes: []string{"200"}, streams: true}
}

func (e endpoint) createOperation(description string) operation {
	return operation{
		description: description, id: e.named("create"), action: "post", gvk: e.gvk, body: e.self,
		bodyRequired: true, answer: e.self,
		codes: []string{"200", "201", "202"}, parameters: e.p.query(metav1.CreateOptions{}.SwaggerDoc(), writeParameters),
	}
}

// collection returns the operations on all objects of a namespace or of the cluster.
func (e endpoint) collection() map[string]any {
	p, ops := e.p, map[string]any{}
	if e.has("list") {
		op := e.listOperation(e.named("list"))
		op.parameters = p.query(metav1.ListOptions{}.SwaggerDoc(), listParameters)
		ops["get"] = e.operation(op)
	}
	if e.has("create") {
		ops["post"] = e.operation(e.createOperation("create " + article(e.gvk.Kind)))
	}
	if e.has("deletecollection") {
		op := operation{description: "delete collection of " + e.gvk.Kind, id: e.named("delete+Collection"),
			action: "deletecollection", gvk: e.gvk, answer: p.use(metaPackage + "Status"), codes: []string{"200"}}
		// Clone the map, because all callers of SwaggerDoc share it.
		docs := maps.Clone(metav1.ListOptions{}.SwaggerDoc())
		if e.custom {
			// In Kubernetes' documents of custom resources, this operation has no DeleteOptions.
			op.parameters = p.query(docs, listParameters)
		} else {
			maps.Copy(docs, metav1.DeleteOptions{}.SwaggerDoc())
			op.body, op.parameters = p.use(metaPackage+"DeleteOptions"),
				p.query(docs, append(slices.Clone(deleteParameters), selectParameters...))
		}
		ops["delete"] = e.operation(op)
	}
	return ops
}

// item returns the operations on one object.
func (e endpoint) item() map[string]any {
	p, ops := e.p, map[string]any{}
	if e.has("get") {
		op := operation{description: e.words("read"), id: e.named("read"), action: "get", gvk: e.gvk,
			answer: e.self, codes: []string{"200"}}
		if e.custom {
			op.parameters = p.query(metav1.GetOptions{}.SwaggerDoc(), []parameter{{"resourceVersion", "string"}})
		}
		ops["get"] = e.operation(op)
	}
	if e.has("update") {
		ops["put"] = e.operation(operation{
			description: e.words("replace"), id: e.named("replace"), action: "put", gvk: e.gvk, body: e.self,
			bodyRequired: true, answer: e.self,
			codes: []string{"200", "201"}, parameters: p.query(metav1.UpdateOptions{}.SwaggerDoc(), writeParameters),
		})
	}
	if e.has("patch") {
		codes := []string{"200", "201"}
		if e.custom {
			codes = codes[:1]
		}
		ops["patch"] = e.operation(operation{
			description: e.words("partially update"), id: e.named("patch"), action: "patch", gvk: e.gvk, patch: true,
			body: p.use(metaPackage + "Patch"), bodyRequired: true, answer: e.self, codes: codes,
			parameters: p.query(metav1.PatchOptions{}.SwaggerDoc(),
				append(slices.Clone(writeParameters), parameter{"force", "boolean"})),
		})
	}
	if e.has("delete") {
		answer := e.self
		if !e.returned {
			answer = p.use(metaPackage + "Status")
		}
		ops["delete"] = e.operation(operation{
			description: "delete " + article(e.gvk.Kind), id: e.named("delete"), action: "delete", gvk: e.gvk,
			body: p.use(metaPackage + "DeleteOptions"), answer: answer, codes: []string{"200", "202"},
			parameters: p.query(metav1.DeleteOptions{}.SwaggerDoc(), deleteParameters),
		})
	}
	return ops
}
