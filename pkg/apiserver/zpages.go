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

	"keelson.dev/keelson/pkg/daemon/zpages"
	"keelson.dev/keelson/pkg/features"
)

// componentName is the name of the server on its own pages.
const componentName = "apiserver"

// Handle registers h at path. Libraries install their pages with it.
func (m *mux) Handle(path string, h http.Handler) { m.handle(path, h) }

// addZPages serves the enabled ones of the pages /flagz and /statusz.
func (m *mux) addZPages(values map[string]string, o *features.Options) {
	listed := slices.DeleteFunc(slices.Collect(maps.Keys(m.exact)),
		func(p string) bool { return strings.HasPrefix(p, "/debug/") })
	if o.Enabled(features.ComponentFlagz) {
		zpages.InstallFlagz(m, componentName, values)
		listed = append(listed, zpages.Flagz)
	}
	if o.Enabled(features.ComponentStatusz) {
		zpages.InstallStatusz(m, componentName, o.Emulated, listed...)
	}
}

// sinceStart adds to h's answers a header with the start time of the process. Counters count from
// this time.
func sinceStart(h http.Handler, started time.Time) http.Handler {
	value := strconv.FormatInt(started.Unix(), 10)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete {
			w.Header().Set("Process-Start-Time-Unix", value)
		}
		h.ServeHTTP(unvaried{w}, r)
		w.Header().Del("Vary") // of an empty answer, which h has not begun to send
	})
}

// unvaried removes the header Vary. The metrics library sets it, and Kubernetes sends no such
// header.
type unvaried struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (u unvaried) WriteHeader(code int) {
	u.Header().Del("Vary")
	u.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (u unvaried) Write(p []byte) (int, error) {
	u.Header().Del("Vary")
	return u.ResponseWriter.Write(p)
}
