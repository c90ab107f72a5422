// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	storagev1alpha1 "keelson.dev/api/storage/v1alpha1"
	"keelson.dev/apiserver/rest"
)

// mux routes requests to the API or to one of the server's own paths.
type mux struct {
	api   http.Handler
	exact map[string]http.Handler
	// served returns the group versions of the API.
	served func() []schema.GroupVersion
	// drivers handles calls to storage drivers, which are not API resources.
	drivers http.HandlerFunc
	// prefixes are handlers of all paths below a prefix, which ends in a slash.
	prefixes map[string]http.Handler
}

// ServeHTTP routes a request that has passed all filters.
func (m *mux) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.route(r.URL.Path).ServeHTTP(w, r) }

// route returns the handler of a path.
func (m *mux) route(path string) http.Handler {
	switch {
	case strings.HasPrefix(path, storagev1alpha1.NodesPath):
		return m.drivers
	case isAPI(path):
		return m.api
	case path == "/" || path == "/index.html":
		return http.HandlerFunc(m.index)
	}
	return m.own(path)
}

// own returns the handler of one of the server's own paths.
func (m *mux) own(path string) http.Handler {
	if h, ok := m.exact[path]; ok {
		return h
	}
	for prefix, h := range m.prefixes {
		if strings.HasPrefix(path, prefix) {
			return h
		}
	}
	return http.NotFoundHandler()
}

func isAPI(path string) bool {
	for _, root := range []string{"/api", "/apis", "/openapi"} {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}

func (m *mux) handle(path string, h http.Handler) {
	if strings.HasSuffix(path, "/") {
		m.prefixes[path] = h
		return
	}
	m.exact[path] = h
}

// document serves h at path, with or without trailing slashes. Other paths below it get a NotFound
// Status.
func (m *mux) document(path string, h http.Handler) {
	m.exact[path] = h
	m.prefixes[path+"/"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.TrimRight(r.URL.Path, "/") == path {
			h.ServeHTTP(w, r)
			return
		}
		rest.NotFound(w, r)
	})
}

// paths returns the paths that the index lists: all paths except those under /debug/.
func (m *mux) paths() []string {
	out := []string{"/api", "/apis", "/apis/", "/openapi/v2", "/openapi/v3", "/openapi/v3/"}
	for _, gv := range m.served() {
		if gv.Group == "" {
			out = append(out, "/api/"+gv.Version)
			continue
		}
		out = append(out, "/apis/"+gv.Group, "/apis/"+gv.String())
	}
	for p := range m.exact {
		if !strings.HasPrefix(p, "/debug/") && (len(p) < 2 || !strings.HasSuffix(p, "/")) {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (m *mux) index(w http.ResponseWriter, _ *http.Request) {
	writePaths(w, m.paths())
}

func writePaths(w http.ResponseWriter, paths []string) {
	body, err := json.MarshalIndent(struct {
		Paths []string `json:"paths"`
	}{paths}, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// document returns a handler that answers with fixed bytes.
func document(contentType string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body)
	})
}

func (m *mux) addProfiling(contention bool) {
	if contention {
		runtime.SetBlockProfileRate(1)
	}
	m.handle("/debug/pprof/", http.HandlerFunc(pprof.Index))
	m.handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	m.handle("/debug/pprof/profile", http.HandlerFunc(pprof.Profile))
	m.handle("/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
	m.handle("/debug/pprof/trace", http.HandlerFunc(pprof.Trace))
}
