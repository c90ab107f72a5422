// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package zpages_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/daemon/zpages"
)

// TestPages checks that a request gets text by default, and an object of the requested kind and
// version if it requests one. A deprecated version causes a warning, and an unknown kind is
// rejected.
func TestPages(t *testing.T) {
	const asked = ";g=config.k8s.io;as="
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	fs.Int("workers", 3, "")
	h := zpages.Handler("kube-x", zpages.Flags(fs), 0, "/healthz")
	for name, c := range map[string]struct {
		path, accept   string
		code           int
		media, matches string
		warning        bool
	}{
		"flags as text": {zpages.Flagz, "", 200, "text/plain", "\nworkers[:= ]+3\n", false},
		"flags": {zpages.Flagz, "application/json" + asked + "Flagz;v=v1beta1", 200,
			"application/json", `"flags":\{"workers":"3"\}`, false},
		"flags by YAML": {zpages.Flagz, "application/yaml" + asked + "Flagz;v=v1beta1", 200,
			"application/yaml", "  workers: \"3\"\n", false},
		"deprecated": {zpages.Flagz, "application/json" + asked + "Flagz;v=v1alpha1", 200,
			"application/json", `"apiVersion":"config.k8s.io/v1alpha1"`, true},
		"state as text": {zpages.Statusz, "*/*", 200, "text/plain", "/flagz /healthz /statusz", false},
		"state": {zpages.Statusz, "application/json" + asked + "Statusz;v=v1beta1", 200,
			"application/json", `"binaryVersion":"` + daemon.Major + "." + daemon.Minor, false},
		"no JSON of itself": {zpages.Statusz, "application/json", 406, "", "", false},
		"another's kind":    {zpages.Statusz, "application/json" + asked + "Flagz;v=v1beta1", 406, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil)
			if c.accept != "" {
				r.Header.Set("Accept", c.accept)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.code || !strings.HasPrefix(w.Header().Get("Content-Type"), c.media) ||
				!regexp.MustCompile(c.matches).MatchString(w.Body.String()) {
				t.Errorf("%d %v: %s", w.Code, w.Header(), w.Body)
			}
			if got := w.Header().Get("Warning"); (got != "") != c.warning {
				t.Errorf("warning %q", got)
			}
		})
	}
}
