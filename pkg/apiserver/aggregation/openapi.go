// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler"
	openapi "k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	// maxAnswer is the maximum size, in bytes, of a discovery or OpenAPI document of an extension
	// server.
	maxAnswer = 16 << 20
	// maxValues is the maximum number of JSON values in such a document. A value of three bytes can
	// take hundreds of bytes in memory once it is decoded.
	maxValues = 1 << 19
	// maxOwn is the maximum size, in bytes, of the server's own OpenAPI v2 document, which includes
	// all custom resources.
	maxOwn = 64 << 20
	// maxPlace is the maximum length of the URL of an OpenAPI v3 document, because all clients that
	// list the documents receive it.
	maxPlace = 1 << 10
)

// spec has the OpenAPI documents of an extension server.
type spec struct {
	v3 map[string]string // URLs of OpenAPI v3 documents, by group version as in "apis/g/v1"
	v2 []byte            // OpenAPI v2 document in JSON; nil if the server has none
}

// fetchSpecs fetches the OpenAPI documents of c's server. It is not an error if the server has no
// documents.
func (a *Aggregator) fetchSpecs(ctx context.Context, c *carrier) error {
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	next := &spec{v3: map[string]string{}}
	if _, err := get(ctx, c.ServeHTTP, "/openapi/v3", "application/json", &index); err != nil {
		return fmt.Errorf("OpenAPI: %w", err)
	}
	for path, place := range index.Paths {
		next.v3[path] = placeOf(path, place.URL)
	}
	var v2 json.RawMessage
	if _, err := get(ctx, c.ServeHTTP, "/openapi/v2", "application/json", &v2); err != nil {
		return fmt.Errorf("OpenAPI: %w", err)
	}
	next.v2 = v2
	a.found.mu.Lock()
	defer a.found.mu.Unlock()
	if a.found.specs == nil {
		a.found.specs = map[location]*spec{}
	}
	if old := a.found.specs[c.service]; old != nil && bytes.Equal(old.v2, next.v2) {
		next.v2 = old.v2
	}
	a.found.specs[c.service] = next
	return nil
}

// placeOf returns the URL at which clients find the OpenAPI v3 document of path. url is the URL
// that the extension server returned. It may only add a query, which clients use for caching.
// Otherwise it is ignored, because it could lead clients to send requests to another path.
func placeOf(path, url string) string {
	own := "/openapi/v3/" + path
	if strings.HasPrefix(url, own+"?") && len(url) <= maxPlace {
		return url
	}
	return own
}

// forgetSpecs removes the documents of services that no APIService names any more.
func (a *Aggregator) forgetSpecs() {
	used := map[location]bool{}
	for _, c := range *a.carriers.Load() {
		used[c.service] = true
	}
	a.found.mu.Lock()
	defer a.found.mu.Unlock()
	for at := range a.found.specs {
		if !used[at] {
			delete(a.found.specs, at)
		}
	}
}

// OpenAPI returns the URLs of the OpenAPI v3 documents of extension servers, by group version. It
// includes only group versions whose APIServices name the extension server.
func (a *Aggregator) OpenAPI() map[string]string {
	out := map[string]string{}
	a.found.mu.RLock()
	defer a.found.mu.RUnlock()
	for _, c := range *a.carriers.Load() {
		if url := a.found.document(c); url != "" {
			out[strings.TrimPrefix(c.path(), "/")] = url
		}
	}
	return out
}

// documented reports whether c's server has an OpenAPI v3 document for c's group version.
func (a *Aggregator) documented(c *carrier) bool {
	a.found.mu.RLock()
	defer a.found.mu.RUnlock()
	return a.found.document(c) != ""
}

// document returns the URL of the OpenAPI v3 document of c's group version, or "" if there is none.
// The caller holds mu.
func (f *found) document(c *carrier) string {
	if s := f.specs[c.service]; s != nil {
		return s.v3[strings.TrimPrefix(c.path(), "/")]
	}
	return ""
}

// merged caches the OpenAPI v2 document that is merged from those of all servers. sources are the
// documents and paths from which it was made.
type merged struct {
	mu      sync.Mutex
	sources [][]byte
	handler http.Handler
}

// serveMerged serves the merged OpenAPI v2 document. It returns false, and serves nothing, if no
// extension server has a document or if merging fails.
func (a *Aggregator) serveMerged(w http.ResponseWriter, r *http.Request, local http.Handler) bool {
	extensions := a.extensions()
	if len(extensions) == 0 {
		return false
	}
	plain := r.Clone(r.Context())
	plain.Header = http.Header{"Accept": {"application/json"}}
	own := newAnswer(maxOwn)
	local.ServeHTTP(own, plain)
	if own.code != http.StatusOK || own.err != nil {
		return false
	}
	h, err := a.merged.of(own.body.Bytes(), extensions, a.cfg.Log)
	if err != nil {
		a.cfg.Log.Error("Failed to merge OpenAPI of extension servers", "err", err)
		return false
	}
	h.ServeHTTP(w, r)
	return true
}

// extension is the OpenAPI v2 document of an extension server, and the paths of its group versions.
type extension struct {
	doc      []byte
	prefixes []string
}

func (a *Aggregator) extensions() []extension {
	byServer := map[location]*extension{}
	a.found.mu.RLock()
	defer a.found.mu.RUnlock()
	carriers := *a.carriers.Load()
	for _, gv := range sorted(carriers) {
		c := carriers[gv]
		s := a.found.specs[c.service]
		if s == nil || s.v2 == nil || !c.available {
			continue
		}
		if byServer[c.service] == nil {
			byServer[c.service] = &extension{doc: s.v2}
		}
		byServer[c.service].prefixes = append(byServer[c.service].prefixes, c.path()+"/")
	}
	var out []extension
	for _, e := range byServer {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(x, y extension) int { return strings.Compare(x.prefixes[0], y.prefixes[0]) })
	return out
}

func sorted(carriers map[schema.GroupVersion]*carrier) []schema.GroupVersion {
	var list []schema.GroupVersion
	for gv := range carriers {
		list = append(list, gv)
	}
	slices.SortFunc(list, func(x, y schema.GroupVersion) int { return strings.Compare(x.String(), y.String()) })
	return list
}

// of returns a handler of the document that is merged from the server's own document and those of
// extension servers. If the document of an extension server cannot be merged, the merged document
// omits it.
func (m *merged) of(own []byte, extensions []extension, log *slog.Logger) (http.Handler, error) {
	sources := [][]byte{own}
	for _, e := range extensions {
		sources = append(sources, e.doc, []byte(strings.Join(e.prefixes, " ")))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handler != nil && slices.EqualFunc(m.sources, sources, bytes.Equal) {
		return m.handler, nil
	}
	var all openapi.Swagger
	if err := json.Unmarshal(own, &all); err != nil {
		return nil, fmt.Errorf("own document: %w", err)
	}
	confineKinds(&all, nil)
	for _, e := range extensions {
		if err := e.addTo(&all); err != nil {
			log.Error("Omitted OpenAPI document of an extension server", "paths", e.prefixes, "err", err)
		}
	}
	mux := pathHandler{http.NewServeMux()}
	handler.NewOpenAPIService(&all).RegisterOpenAPIVersionedService("/openapi/v2", mux)
	m.sources, m.handler = sources, mux
	return mux, nil
}

// addTo adds the paths and definitions of e.doc to the merged document, but only those that belong
// to the group versions of e.
func (e *extension) addTo(all *openapi.Swagger) error {
	var part openapi.Swagger
	if err := json.Unmarshal(e.doc, &part); err != nil {
		return err
	}
	confineKinds(&part, func(group, version string) bool {
		return slices.Contains(e.prefixes, pathOf(group, version)+"/")
	})
	kept := aggregator.FilterSpecByPathsWithoutSideEffects(&part, e.prefixes)
	return aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(all, kept)
}

// kindsOf is the field of a definition that lists its kinds. Clients look kinds up by it. If two
// documents have equal definitions, the library kube-openapi merges their lists.
const kindsOf = "x-kubernetes-group-version-kind"

// confineKinds removes from the definitions in doc the kinds whose group and version the function
// own rejects. If this function is nil, it removes nothing. It also replaces nil maps of extensions
// by empty ones, because kube-openapi writes to these maps without checking for nil.
func confineKinds(doc *openapi.Swagger, own func(group, version string) bool) {
	for name, def := range doc.Definitions {
		if def.Extensions == nil {
			def.Extensions = openapi.Extensions{}
		}
		if kinds, ok := def.Extensions[kindsOf].([]any); ok && own != nil {
			def.Extensions[kindsOf] = slices.DeleteFunc(kinds, func(k any) bool {
				kind, _ := k.(map[string]any)
				group, _ := kind["group"].(string)
				version, _ := kind["version"].(string)
				return !own(group, version)
			})
		} else if own != nil {
			delete(def.Extensions, kindsOf)
		}
		doc.Definitions[name] = def
	}
}

// pathHandler adapts http.ServeMux to the interface of the library kube-openapi.
type pathHandler struct{ *http.ServeMux }

// HandlePrefix registers next. The interface requires it; kube-openapi does not call it here.
func (h pathHandler) HandlePrefix(path string, next http.Handler) { h.ServeMux.Handle(path, next) }

// answer is a response writer that keeps the response in memory.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
	limit  int // maximum size of the body in bytes
	err    error
}

func newAnswer(limit int) *answer {
	return &answer{header: http.Header{}, code: http.StatusOK, limit: limit}
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader stores the status code.
func (a *answer) WriteHeader(code int) { a.code = code }

// Write stores the body up to the limit.
func (a *answer) Write(p []byte) (int, error) {
	if a.body.Len()+len(p) > a.limit {
		a.err = fmt.Errorf("answer of more than %d bytes", a.limit)
		return 0, a.err
	}
	return a.body.Write(p)
}
