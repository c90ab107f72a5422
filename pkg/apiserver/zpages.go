// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"keelson.dev/keelson/pkg/apiserver/features"
	"keelson.dev/keelson/pkg/daemon/zpages"
)

// componentName is what the server calls itself on its pages.
const componentName = "apiserver"

// Handle registers h at path; it lets libraries install their pages.
func (m *mux) Handle(path string, h http.Handler) { m.handle(path, h) }

// addZPages serves the pages that tell people what the server is: its flags and
// its state, as far as they are enabled.
func (m *mux) addZPages(values map[string]string, enabled func(feature string) bool) {
	listed := slices.DeleteFunc(slices.Collect(maps.Keys(m.exact)), func(p string) bool { return strings.HasPrefix(p, "/debug/") })
	if enabled(features.ComponentFlagz) {
		zpages.InstallFlagz(m, componentName, values)
		listed = append(listed, zpages.Flagz)
	}
	if enabled(features.ComponentStatusz) {
		zpages.InstallStatusz(m, componentName, listed...)
	}
}

// sinceStart says in a header of metrics since when they are counted.
func sinceStart(h http.Handler, started time.Time) http.Handler {
	value := strconv.FormatInt(started.Unix(), 10)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete {
			w.Header().Set("Process-Start-Time-Unix", value)
		}
		h.ServeHTTP(unvaried{w}, r)
	})
}

// unvaried is an answer that caches are told nothing about but that they are not
// to keep it: the library of metrics says by what it varies, which Kubernetes does not.
type unvaried struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (u unvaried) WriteHeader(code int) {
	u.Header().Del("Vary")
	u.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (u unvaried) Write(p []byte) (int, error) {
	u.Header().Del("Vary")
	n, err := u.ResponseWriter.Write(p)
	return n, err
}
