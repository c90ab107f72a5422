// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"maps"
	"slices"
	"strings"
)

// Page is an endpoint of the server that belongs to no group version and no resource, for example
// the list of groups at /apis.
type Page struct {
	Path        string // "/apis/apps/"
	Description string
	ID          string // ID of its only operation
	Tag         string
	// Answer is the name of the definition of the response. It is empty if the response is text.
	Answer string
	// Types are the media types of the response.
	Types []string
}

// Name returns the page's name in the index of documents, for example "apis/apps".
func (g *Page) Name() string { return strings.Trim(g.Path, "/") }

// GroupPages returns the pages (endpoints that are not resources) that list all groups, the
// versions of the core group, and the versions of each group in groups.
func GroupPages(groups []string) []Page {
	out := []Page{
		{Path: "/api/", Description: "get available API versions", ID: "getCoreAPIVersions", Tag: "core",
			Answer: metaPackage + "APIVersions", Types: mediaTypes},
		{Path: "/apis/", Description: "get available API versions", ID: "getAPIVersions", Tag: "apis",
			Answer: metaPackage + "APIGroupList", Types: mediaTypes},
	}
	for _, group := range groups {
		if group == "" {
			continue
		}
		name := (&paths{group: group}).prefix()
		out = append(out, Page{
			Path: "/apis/" + group + "/", Description: "get information of a group", ID: "get" + name + "APIGroup",
			Tag: strings.ToLower(name[:1]) + name[1:], Answer: metaPackage + "APIGroup", Types: mediaTypes,
		})
	}
	return out
}

// page adds the path of a page: an endpoint that is not a resource, such as /apis.
func (p *paths) page(g *Page) {
	op := operation{description: g.Description, id: g.ID, tag: g.Tag, answer: g.Answer, types: g.Types,
		codes: []string{"200"}}
	if g.Answer == "" {
		op.text = g.Types
	} else {
		p.use(g.Answer)
	}
	p.out[g.Path] = map[string]any{"get": p.operation(op)}
}

// V3Page returns the OpenAPI v3 document of a page: an endpoint that is not a resource, such as
// /apis.
func V3Page(defs *Definitions, serverVersion string, g *Page) ([]byte, error) {
	p := newPaths(dialect{v: 3}, defs, "", "")
	p.page(g)
	components := map[string]any{"securitySchemes": bearer()}
	if schemas := defs.closure(p.used); len(schemas) > 0 {
		components["schemas"] = schemas
	}
	return ordered(map[string]any{"openapi": "3.0.0", "info": info(serverVersion), "paths": p.out,
		"components": components})
}

// NewPagePart returns the part of an OpenAPI v2 document for a page: an endpoint that is not a
// resource, such as /apis.
func NewPagePart(defs *Definitions, g *Page) (*Part, error) {
	p := newPaths(dialect{v: 2, shared: newParameters()}, defs, "", "")
	p.page(g)
	out, err := members(p.out)
	return &Part{paths: out, uses: slices.Sorted(maps.Keys(p.used))}, err
}
