// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"cmp"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"github.com/munnerz/goautoneg"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/discovery"
	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/openapi"
	"keelson.dev/apiserver/resource"
)

const (
	protoV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	protoV3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// openAPIDocuments are the OpenAPI documents for one state of the server. A document is made when
// it is first requested. The hash of a document is computed from its inputs, so that the index,
// which lists the hashes of all documents, can be made without making the documents.
type openAPIDocuments struct {
	d     *documents
	pages []openapi.Page
	since time.Time // when the server's state was made
	parts *parts    // caches that the next state takes over
}

// groupVersion identifies an OpenAPI v3 document, for example "api/v1" or "apis/apps/v1".
type groupVersion struct{ group, version string }

func (g groupVersion) path() string {
	if g.group == "" {
		return "api/" + g.version
	}
	return "apis/" + g.group + "/" + g.version
}

func (o *openAPIDocuments) all() []groupVersion {
	var list []groupVersion
	for _, group := range append([]string{""}, o.d.names...) {
		for _, v := range o.d.state.groups[group] {
			list = append(list, groupVersion{group, v})
		}
	}
	return list
}

// serveOpenAPI answers requests for /openapi/v2, /openapi/v3 and the documents below /openapi/v3.
func (d *documents) serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/openapi/")
	rest, isV3 := strings.CutPrefix(path, "v3/")
	var err error
	switch {
	case path == "v2":
		err = d.openapi.serve(w, r, protoV2, d.openapi.origin("v2", d.openapi.all()), d.openapi.v2)
	case path == "v3":
		err = d.openapi.serveIndex(w, r)
	case isV3:
		err = d.openapi.serveV3(w, r, rest)
	default:
		http.NotFound(w, r)
	}
	if err != nil {
		WriteError(w, r, err)
	}
}

// origin returns a hash of the inputs of a document for the group versions in list.
func (o *openAPIDocuments) origin(kind string, list []groupVersion) string {
	h := sha512.New()
	_, _ = io.WriteString(h, kind+o.d.s.cfg.Version)
	for _, gv := range list {
		_, _ = io.WriteString(h, gv.path())
		//nolint:errchkjson // a list can always be encoded, and a write to a hash never fails
		_ = json.NewEncoder(h).Encode(discovery.Resources(o.d.rows[gv.group], gv.version))
		for _, e := range o.published(gv) {
			if e.options.OpenAPIHash != "" {
				_, _ = io.WriteString(h, e.options.OpenAPIHash)
				continue
			}
			v3, v2, err := e.options.OpenAPI(gv.version)
			_, _ = fmt.Fprintf(h, "%s%s%v", v3, v2, err)
		}
	}
	return fmt.Sprintf("%X", h.Sum(nil))
}

// published returns the endpoints of a group version that define their own schemas (custom
// resources).
func (o *openAPIDocuments) published(gv groupVersion) []*endpoint {
	var list []*endpoint
	for _, row := range o.d.rows[gv.group] {
		e := o.d.state.endpoints[schema.GroupVersionResource{Group: gv.group, Version: gv.version, Resource: row.Resource}]
		if e != nil && e.row == row && e.options.OpenAPI != nil {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *endpoint) int { return strings.Compare(a.row.Resource, b.row.Resource) })
	return list
}

// serveIndex answers requests for /openapi/v3, the index of all v3 documents.
func (o *openAPIDocuments) serveIndex(w http.ResponseWriter, r *http.Request) error {
	type place struct {
		URL string `json:"serverRelativeURL"`
	}
	index := make(map[string]place)
	for _, gv := range o.all() {
		index[gv.path()] = place{"/openapi/v3/" + gv.path() + "?hash=" + o.origin("v3", []groupVersion{gv})}
	}
	for i := range o.pages {
		name := o.pages[i].Name()
		index[name] = place{"/openapi/v3/" + name + "?hash=" + o.pageOrigin(&o.pages[i])}
	}
	if o.d.s.cfg.RemoteOpenAPI != nil {
		for path, url := range o.d.s.cfg.RemoteOpenAPI() {
			index[path] = place{url}
		}
	}
	doc, err := json.Marshal(map[string]any{"paths": index})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // the body is JSON, but Kubernetes sends this type
	o.content(w, r, doc)
	return nil
}

// paths returns the paths of the OpenAPI v3 documents.
func (o *openAPIDocuments) paths() []string {
	var paths []string
	for _, gv := range o.all() {
		paths = append(paths, gv.path())
	}
	for i := range o.pages {
		paths = append(paths, o.pages[i].Name())
	}
	return paths
}

// pageOrigin is like origin, for the OpenAPI document of a page outside the API, such as /version.
func (o *openAPIDocuments) pageOrigin(g *openapi.Page) string {
	return fmt.Sprintf("%X", sha512.Sum512([]byte("v3"+o.d.s.cfg.Version+g.Path+g.Answer)))
}

// found returns the origin of the v3 document at path, and the function that makes the document.
// The function is nil if there is no such document.
func (o *openAPIDocuments) found(path string) (origin string, build func() ([]byte, error)) {
	all := o.all()
	if i := slices.IndexFunc(all, func(gv groupVersion) bool { return gv.path() == path }); i >= 0 {
		return o.origin("v3", all[i:i+1]), func() ([]byte, error) { return o.v3(all[i]) }
	}
	for i := range o.pages {
		if g := &o.pages[i]; g.Name() == path {
			return o.pageOrigin(g), func() ([]byte, error) {
				defs, err := o.definitions(3, nil)
				if err != nil {
					return nil, err
				}
				return openapi.V3Page(defs, o.d.s.cfg.Version, g)
			}
		}
	}
	return "", nil
}

// serveV3 answers a request for the document of one group version or of a page.
func (o *openAPIDocuments) serveV3(w http.ResponseWriter, r *http.Request, path string) error {
	origin, build := o.found(path)
	if build == nil {
		w.WriteHeader(http.StatusNotFound)
		return nil
	}
	return o.serve(w, r, protoV3, origin, func(asProto bool) ([]byte, error) {
		if !asProto {
			return o.parts.document(path, origin, o.paths, build)
		}
		return o.parts.document(path+inProto, origin, o.paths, func() ([]byte, error) {
			doc, err := build()
			if err != nil {
				return nil, err
			}
			return toProto(doc)
		})
	})
}

// content sends a document. It supports range requests and conditional requests.
func (o *openAPIDocuments) content(w http.ResponseWriter, r *http.Request, doc []byte) {
	http.ServeContent(w, r, "", o.since, bytes.NewReader(doc))
}

// serve sends a document in the media type that the client prefers. protoType is the type of its
// protobuf form, and hash is its ETag.
func (o *openAPIDocuments) serve(w http.ResponseWriter, r *http.Request, protoType, hash string,
	document func(asProto bool) ([]byte, error)) error {
	h := w.Header()
	if protoType == protoV2 { // only the v2 document is sent compressed
		h.Add("Vary", "Accept-Encoding")
	}
	clauses := goautoneg.ParseAccept(cmp.Or(r.Header.Get("Accept"), "*/*"))
	if len(clauses) == 0 && protoType == protoV3 {
		return nil // Kubernetes sends an empty body if the Accept header has no type
	}
	h.Add("Vary", "Accept")
	asProto, ok := wantsProto(clauses, protoType)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return nil
	}
	contentType := negotiate.JSON
	if asProto {
		contentType = protoType
	}
	h.Set("ETag", fmt.Sprintf("%q", hash))
	if protoType == protoV3 && o.moved(w, r, hash, contentType) {
		return nil
	}
	if r.Header.Get("If-None-Match") == h.Get("ETag") {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	doc, err := document(asProto)
	if err != nil {
		return err
	}
	h.Set("Content-Type", contentType)
	if protoType == protoV2 && weighsGzip(r) && r.Header.Get("Range") == "" {
		h.Set("Accept-Ranges", "bytes")
		h.Set("Last-Modified", o.since.UTC().Format(http.TimeFormat))
		a := o.d.s.pools.answer(w, r, http.StatusOK, contentType)
		a.gzip = true
		_, _ = a.Write(doc)
		_ = a.Close()
		return nil
	}
	o.content(w, r, doc)
	return nil
}

// moved handles the query parameter hash. If it is the current hash of the document, moved lets the
// client cache the document for a year. If it is another hash, moved redirects the client to the
// current one and returns true. As in Kubernetes, the redirect has the content type of the
// document.
func (o *openAPIDocuments) moved(w http.ResponseWriter, r *http.Request, hash, contentType string) bool {
	switch r.URL.Query().Get("hash") {
	case "":
		return false
	case hash:
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", o.d.s.cfg.Clock.Now().AddDate(1, 0, 0).Format(time.RFC1123))
		return false
	}
	w.Header().Set("Content-Type", contentType)
	http.Redirect(w, r, r.URL.Path+"?hash="+hash, http.StatusMovedPermanently)
	return true
}

// weighsGzip reports whether the client accepts gzip. It follows Kubernetes' handler of this
// document: a weight of 0 means that gzip is not accepted, and case does not matter.
func weighsGzip(r *http.Request) bool {
	weight := 0.0
	for token := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, params, _ := strings.Cut(token, ";")
		if strings.ToLower(strings.TrimSpace(coding)) != "gzip" {
			continue
		}
		weight = 1
		for param := range strings.SplitSeq(params, ";") {
			if q, ok := strings.CutPrefix(strings.TrimSpace(param), "q="); ok {
				weight, _ = strconv.ParseFloat(q, 64)
			}
		}
	}
	return weight > 0
}

// wantsProto reports whether the client prefers protobuf to JSON, and whether it accepts one of the
// two. protoType has two spellings, with @ or a dot.
func wantsProto(clauses []goautoneg.Accept, protoType string) (asProto, ok bool) {
	_, proto, _ := strings.Cut(protoType, "/")
	for _, clause := range clauses {
		if clause.Type != "application" && clause.Type != "*" {
			continue
		}
		switch strings.Replace(clause.SubType, "@", ".", 1) {
		case proto:
			return true, true
		case "json", "*":
			return false, true
		}
	}
	return false, false
}

func toProto(doc []byte) ([]byte, error) {
	m, err := openapiv3.ParseDocument(doc)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

// definitions returns the definitions of the built-in kinds, and those of endpoints in list that
// define their own schemas.
func (o *openAPIDocuments) definitions(version int, list []groupVersion) (*openapi.Definitions, error) {
	var doc []byte
	if src := o.d.s.cfg.OpenAPI; src != nil {
		var err error
		if doc, err = src.Definitions(version); err != nil {
			return nil, err
		}
	}
	defs, err := openapi.Parse(doc, version)
	if err != nil {
		return nil, err
	}
	for _, gv := range list {
		for _, e := range o.published(gv) {
			v3, v2, err := e.options.OpenAPI(gv.version)
			if err != nil {
				return nil, err
			}
			if version == 2 {
				v3 = v2
			}
			if err := defs.AddKind(e.row, gv.version, v3); err != nil {
				return nil, err
			}
		}
	}
	return defs, nil
}

func (o *openAPIDocuments) v3(gv groupVersion) ([]byte, error) {
	defs, err := o.definitions(3, []groupVersion{gv})
	if err != nil {
		return nil, err
	}
	return openapi.V3(defs, o.d.s.cfg.Version, gv.group, gv.version, o.rows(gv))
}

func (o *openAPIDocuments) rows(gv groupVersion) []*resource.Row { return o.d.rows[gv.group] }
