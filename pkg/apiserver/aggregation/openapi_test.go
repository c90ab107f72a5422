// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAnswersAreBounded checks that a document of an extension server is rejected if it is too
// large, or if it has so many values that it would take gigabytes once it is decoded.
func TestAnswersAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want string
	}{
		"many values": {`{"items":[` + strings.Repeat(`{},`, maxValues+1) + `{}]}`, "values"},
		"many bytes":  {`{"kind":"` + strings.Repeat("x", maxAnswer) + `"}`, "bytes"},
		"few":         {`{"items":[{},{}]}`, ""},
	} {
		var into struct {
			Items []json.RawMessage
		}
		_, err := get(t.Context(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(tc.body))
		}, "/apis", "", &into)
		if tc.want == "" && (err != nil || len(into.Items) != 2) || tc.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestPlaceOfDocument checks that an extension server cannot lead clients, which send credentials,
// to another path by the URL that it returns for its document.
func TestPlaceOfDocument(t *testing.T) {
	const path, own = "apis/things.example.com/v1", "/openapi/v3/apis/things.example.com/v1"
	for said, want := range map[string]string{
		own + "?hash=X":                 own + "?hash=X",
		"":                              own,
		"/x":                            own,
		own + "/../../apps/v1?hash=X":   own,
		"https://192.0.2.9" + own:       own,
		"/api/v1/nodes/n/proxy/configz": own,
		own + "?hash=" + strings.Repeat("X", 2000):   own,
		"/openapi/v3/apis/things.example.com/v1beta": own,
	} {
		if got := placeOf(path, said); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}

const ownSpec = `{"swagger":"2.0","info":{"title":"own","version":"v"},"paths":{"/api/v1/pods":{}},"definitions":{
	"io.k8s.Pod":{"type":"object","x-kubernetes-group-version-kind":[{"group":"","version":"v1","kind":"Pod"}]},
	"io.k8s.Part":{"type":"object"}}}`

const otherSpec = `{"swagger":"2.0","info":{"title":"other","version":"v"},
	"paths":{"/apis/other.example.com/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Thing"}}}}}},
	"definitions":{"Thing":{"type":"object","x-kubernetes-group-version-kind":[{"group":"other.example.com","version":"v1","kind":"Thing"}]}}}`

// TestMerge merges invalid or conflicting documents of one extension server. It checks that the
// built-in definitions and those of another extension server stay as they are.
func TestMerge(t *testing.T) {
	bad := func(definitions string) string {
		return `{"swagger":"2.0","info":{"title":"bad","version":"v"},` +
			`"paths":{"/apis/bad.example.com/v1/things":{"get":{"responses":{"200":{"description":"OK",` +
			`"schema":{"$ref":"#/definitions/io.k8s.Pod"}}}}}},"definitions":{` + definitions + `}}`
	}
	for name, doc := range map[string]string{
		"no object":    `[]`,
		"another form": `{"swagger":"2.0","paths":5}`,
		"a built-in definition with another kind": bad(`"io.k8s.Pod":{"type":"object",` +
			`"x-kubernetes-group-version-kind":[{"group":"","version":"v1","kind":"Secret"}]}`),
		"a part that is a kind": bad(`"io.k8s.Part":{"type":"object",` +
			`"x-kubernetes-group-version-kind":[{"group":"bad.example.com","version":"v1","kind":"Thing"}]}`),
		"a definition of other kinds": bad(
			`"X":{"type":"string","x-kubernetes-group-version-kind":[{"group":"","version":"v1","kind":"Secret"}]}`),
		"kinds of another form": bad(
			`"io.k8s.Pod":{"type":"object","x-kubernetes-group-version-kind":"Secret"}`),
	} {
		t.Run(name, func(t *testing.T) {
			m := &merged{}
			h, err := m.of([]byte(ownSpec), []extension{
				{doc: []byte(doc), prefixes: []string{"/apis/bad.example.com/v1/"}},
				{doc: []byte(otherSpec), prefixes: []string{"/apis/other.example.com/v1/"}},
			}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi/v2", nil))
			var got struct {
				Paths       map[string]any
				Definitions map[string]map[string]any
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			if got.Paths["/api/v1/pods"] == nil || got.Paths["/apis/other.example.com/v1/things"] == nil {
				t.Errorf("paths are missing: %s", w.Body)
			}
			kinds, err := json.Marshal(got.Definitions["io.k8s.Pod"][kindsOf])
			if err != nil || string(kinds) != `[{"group":"","kind":"Pod","version":"v1"}]` {
				t.Errorf("a Pod's definition is of %s (%v)", kinds, err)
			}
			if kinds, err := json.Marshal(got.Definitions["Thing"][kindsOf]); err != nil ||
				!strings.Contains(string(kinds), "Thing") {
				t.Errorf("a Thing's definition is of %s (%v)", kinds, err)
			}
			if strings.Contains(w.Body.String(), `"Secret"`) {
				t.Errorf("the document defines Secret: %s", w.Body)
			}
		})
	}
}
