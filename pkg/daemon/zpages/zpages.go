// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package zpages serves /statusz and /flagz, which tell people what a process is: since when it
// runs as which version, and with what flags. Who asks for a kind (Accept:
// application/json;as=Statusz;...) gets that. Who may ask is the business of whoever serves.
package zpages

import (
	"net/http"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"

	"keelson.dev/keelson/pkg/daemon"
)

// Where the pages are.
const (
	Statusz = "/statusz"
	Flagz   = "/flagz"
)

// Flags are the values of all flags, by name.
func Flags(fs *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { out[f.Name] = f.Value.String() })
	return out
}

// flags implements flagz.Reader.
type flags map[string]string

// GetFlagz implements flagz.Reader.
func (f flags) GetFlagz() map[string]string { return f }

// Mux takes handlers.
type Mux interface {
	Handle(path string, h http.Handler)
}

// Install installs the pages of a process, which name the other paths that it serves.
func Install(m Mux, component string, values map[string]string, paths ...string) {
	InstallFlagz(m, component, values)
	InstallStatusz(m, component, append(paths, Flagz)...)
}

// InstallFlagz installs the page that tells the flags of a process.
func InstallFlagz(m Mux, component string, values map[string]string) {
	flagz.Install(m, component, flags(values))
}

// InstallStatusz installs the page that tells the state of a process, and which other paths it serves.
func InstallStatusz(m Mux, component string, paths ...string) {
	const release = daemon.Major + "." + daemon.Minor
	version := compatibility.NewEffectiveVersionFromString(daemon.Version, release, release)
	statusz.Install(m, component, statusz.NewRegistry(version, statusz.WithListedPaths(append(paths, Statusz))))
}

// Handler serves the pages; what they are made with is made when somebody asks.
func Handler(component string, values map[string]string, paths ...string) http.Handler {
	made := sync.OnceValue(func() *http.ServeMux {
		mux := http.NewServeMux()
		Install(mux, component, values, paths...)
		return mux
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { made().ServeHTTP(w, r) })
}
