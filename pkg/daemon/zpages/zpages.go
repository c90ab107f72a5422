// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package zpages serves the pages /statusz and /flagz, which show the start time, the version and
// the flags of a process. A client that requests a kind (Accept: application/json;as=Statusz;...)
// gets an object of that kind. The server that installs the pages is responsible for access
// control.
package zpages

import (
	"net/http"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"

	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/release"
)

// The paths of the pages.
const (
	Statusz = "/statusz"
	Flagz   = "/flagz"
)

// Flags returns the values of all flags by name.
func Flags(fs *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { out[f.Name] = f.Value.String() })
	return out
}

// flags implements flagz.Reader.
type flags map[string]string

// GetFlagz implements flagz.Reader.
func (f flags) GetFlagz() map[string]string { return f }

// Mux is where pages are registered, for example an http.ServeMux.
type Mux interface {
	Handle(path string, h http.Handler)
}

// Install registers both pages. paths are the other paths that the process serves; /statusz lists
// them.
func Install(m Mux, component string, values map[string]string, emulated release.Emulated, paths ...string) {
	InstallFlagz(m, component, values)
	InstallStatusz(m, component, emulated, append(paths, Flagz)...)
}

// InstallFlagz registers the page with the process's flags.
func InstallFlagz(m Mux, component string, values map[string]string) {
	flagz.Install(m, component, flags(values))
}

// InstallStatusz registers the page with the process's state. paths are the other paths that the
// process serves; the page lists them. emulated is the release that the page shows as emulated.
func InstallStatusz(m Mux, component string, emulated release.Emulated, paths ...string) {
	const own = daemon.Major + "." + daemon.Minor
	effective := compatibility.NewEffectiveVersionFromString(daemon.Version, own, own)
	if emulated != 0 {
		effective.SetEmulationVersion(version.MustParse(emulated.String()))
	}
	statusz.Install(m, component, statusz.NewRegistry(effective, statusz.WithListedPaths(append(paths, Statusz))))
}

// Handler returns a handler that serves the pages. It builds their handlers at the first request.
func Handler(component string, values map[string]string, emulated release.Emulated, paths ...string) http.Handler {
	made := sync.OnceValue(func() *http.ServeMux {
		mux := http.NewServeMux()
		Install(mux, component, values, emulated, paths...)
		return mux
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { made().ServeHTTP(w, r) })
}
