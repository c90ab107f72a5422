// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/net/websocket"
	"google.golang.org/protobuf/proto"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/openapi"
	"keelson.dev/apiserver/rest"
)

func TestDiscovery(t *testing.T) {
	e := newEnv(t, nil)
	list := parse[metav1.APIResourceList](t, e.must(t, "GET", "/apis/apps/v1", ""))
	var names []string
	for _, r := range list.APIResources {
		names = append(names, r.Name)
	}
	if want := []string{"deployments", "deployments/scale", "deployments/status"}; !slices.Equal(names, want) {
		t.Errorf("resources %v, want %v", names, want)
	}
	// Kubernetes has this hash for the same kind.
	if d := list.APIResources[0]; d.StorageVersionHash != "8aSe+NMegvE=" || !slices.Equal(d.Categories, []string{"all"}) {
		t.Errorf("deployments: %+v", d)
	}
	if s := list.APIResources[1]; s.Group != "autoscaling" || s.Version != "v1" || s.Kind != "Scale" {
		t.Errorf("scale: %+v", s)
	}
	groups := parse[metav1.APIGroupList](t, e.must(t, "GET", "/apis", ""))
	if len(groups.Groups) != 4 || groups.Groups[3].Name != "autoscaling" ||
		groups.Groups[3].PreferredVersion.Version != "v2" {
		t.Errorf("groups %+v", groups.Groups)
	}
	for path, code := range map[string]int{"/apis/nope": 404, "/apis/apps/v9": 404, "/api/v9": 404, "/api": 200,
		"/apis/apps": 200} {
		if r := e.do(t, "GET", path, ""); r.code != code {
			t.Errorf("%s: %d", path, r.code)
		}
	}
}

func TestAggregatedDiscovery(t *testing.T) {
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	e := newEnv(t, func(c *rest.Config) {
		c.RemoteGroups = func() []apidiscovery.APIGroupDiscovery {
			return []apidiscovery.APIGroupDiscovery{
				{ObjectMeta: metav1.ObjectMeta{Name: "metrics.k8s.io"},
					Versions: []apidiscovery.APIVersionDiscovery{{Version: "v1beta1"}}},
				{ObjectMeta: metav1.ObjectMeta{Name: "autoscaling"},
					Versions: []apidiscovery.APIVersionDiscovery{
						{Version: "v1", Freshness: apidiscovery.DiscoveryFreshnessStale}, {Version: "v9"}}},
			}
		}
	})
	r := e.must(t, "GET", "/apis", "", "Accept", accept)
	list := parse[apidiscovery.APIGroupDiscoveryList](t, r)
	if list.APIVersion != "apidiscovery.k8s.io/v2" || len(list.Items) != 5 || list.Items[4].Name != "metrics.k8s.io" {
		t.Errorf("%+v", list)
	}
	if v := list.Items[3].Versions; list.Items[3].Name != "autoscaling" || len(v) != 3 ||
		v[1].Version != "v1" || v[1].Freshness != apidiscovery.DiscoveryFreshnessStale || v[2].Version != "v9" {
		t.Errorf("versions that others have too: %+v", v)
	}
	tag := r.header.Get("ETag")
	bare := `{"metadata"` + strings.TrimSuffix(strings.SplitN(r.body, `"metadata"`, 2)[1], "\n")
	if want := fmt.Sprintf("\"%X\"", sha512.Sum512([]byte(bare))); tag != want {
		t.Errorf("the tag is %s, that of the list without kind is %s", tag, want)
	}
	if r := e.do(t, "GET", "/apis", "", "Accept", accept, "If-None-Match", tag); tag == "" || r.code != 304 ||
		r.body != "" {
		t.Errorf("second time: %d %q", r.code, r.body)
	}
	if r := e.must(t, "GET", "/apis?pretty=1", "", "Accept",
		strings.Replace(accept, "application/json", "*/*", 1)); !strings.HasPrefix(r.body,
		"{\n  \"kind\": \"APIGroupDiscoveryList\",\n") || strings.HasSuffix(r.body, "\n") {
		t.Errorf("for people: %.80q", r.body)
	}
	if r := e.must(t, "GET", "/apis/", "", "Accept", accept); !strings.HasPrefix(r.body, `{"kind":"APIGroupList"`) {
		t.Errorf("with a slash: %.80q", r.body)
	}
	if err := e.server.Add(dynamicRow(), rest.RowOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := e.do(t, "GET", "/apis", "", "Accept", accept, "If-None-Match", tag); r.code != 200 ||
		!strings.Contains(r.body, "widgets") {
		t.Errorf("after a resource came: %d", r.code)
	}
}

// definitions is a small OpenAPI source for tests.
type definitions struct{}

func (definitions) Definitions(version int) ([]byte, error) {
	ref := "#/components/schemas/"
	if version == 2 {
		ref = "#/definitions/"
	}
	return []byte(`{"cm":{"type":"object","properties":{"metadata":{"$ref":"` + ref +
		`meta"}},"x-kubernetes-group-version-kind":[{"group":"","kind":"ConfigMap","version":"v1"}]},
		"meta":{"type":"object"},"unused":{"type":"string"}}`), nil
}

func TestOpenAPI(t *testing.T) {
	e := newEnv(t, func(c *rest.Config) { c.OpenAPI, c.Version = definitions{}, "v1.36.0" })
	index := parse[struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}](t, e.must(t, "GET", "/openapi/v3", ""))
	url := index.Paths["api/v1"].ServerRelativeURL
	r := e.must(t, "GET", url, "")
	doc := parse[struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]any }
	}](t, r)
	if doc.Components.Schemas["meta"] == nil || doc.Components.Schemas["unused"] != nil {
		t.Errorf("schemas %v", doc.Components.Schemas)
	}
	patch := string(doc.Paths["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"])
	for _, want := range []string{`"patchCoreV1NamespacedConfigMap"`, `"fieldValidation"`,
		`"x-kubernetes-action":"patch"`, `"kind":"ConfigMap"`} {
		if !strings.Contains(patch, want) {
			t.Errorf("patch lacks %s: %s", want, patch)
		}
	}
	if r.header.Get("Cache-Control") != "public, immutable" {
		t.Errorf("Cache-Control %q", r.header.Get("Cache-Control"))
	}
	if r := e.do(t, "GET", "/openapi/v3/api/v1", "", "If-None-Match", r.header.Get("ETag")); r.code != 304 {
		t.Errorf("not modified: %d", r.code)
	}
	if r := e.do(t, "GET", "/openapi/v3/api/v1", "", "Range", "bytes=0-9"); r.code != 206 ||
		r.body != `{"openapi"` || r.header.Get("Last-Modified") == "" {
		t.Errorf("a part: %d %q %v", r.code, r.body, r.header)
	}
	r = e.must(t, "GET", "/openapi/v2", "", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	var v2 openapiv2.Document
	if err := proto.Unmarshal([]byte(r.body), &v2); err != nil || v2.Info.Version != "1.36" {
		t.Errorf("v2 protobuf: %v %v", v2.Info, err)
	}
}

// TestOpenAPIPages checks the OpenAPI documents of pages, which belong to no group version.
func TestOpenAPIPages(t *testing.T) {
	e := newEnv(t, func(c *rest.Config) {
		c.OpenAPI, c.Version = definitions{}, "v1.36.0"
		c.Pages = []openapi.Page{{Path: "/keys/", Description: "get keys", ID: "getKeys", Tag: "keys",
			Types: []string{"application/jwk-set+json"}}}
	})
	index := parse[struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}](t, e.must(t, "GET", "/openapi/v3", ""))
	type documents struct {
		Paths map[string]map[string]any
	}
	v2 := parse[documents](t, e.must(t, "GET", "/openapi/v2", ""))
	for name, want := range map[string]string{"api": "getCoreAPIVersions", "apis": "getAPIVersions", "keys": "getKeys"} {
		path := "/" + name + "/"
		doc := parse[documents](t, e.must(t, "GET", index.Paths[name].ServerRelativeURL, ""))
		if got, _ := doc.Paths[path]["get"].(map[string]any); got["operationId"] != want {
			t.Errorf("%s in v3: %v, want %s", path, doc.Paths, want)
		}
		if got, _ := v2.Paths[path]["get"].(map[string]any); got["operationId"] != want {
			t.Errorf("%s in v2: %v, want %s", path, v2.Paths[path], want)
		}
	}
}

func TestWebSocketWatch(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	server := httptest.NewServer(e.handler)
	defer server.Close()
	conn, err := websocket.Dial("ws"+strings.TrimPrefix(server.URL, "http")+configMaps+"?watch=1", "", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var ev event
	if err := websocket.JSON.Receive(conn, &ev); err != nil || ev.Type != "ADDED" {
		t.Errorf("%+v, %v", ev, err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestGzip checks that large responses are compressed for clients that accept gzip.
func TestGzip(t *testing.T) {
	e := newEnv(t, nil)
	data := strings.Repeat("x", 200<<10)
	e.must(t, "POST", configMaps, `{"metadata":{"name":"a"},"data":{"x":"`+data+`"}}`)
	e.must(t, "POST", configMaps, `{"metadata":{"name":"b"}}`)
	if r := e.must(t, "GET", configMaps+"/a", "", "Accept-Encoding",
		"gzip"); r.header.Get("Content-Encoding") != "gzip" || len(r.body) > 10<<10 {
		t.Errorf("large: %v, %d bytes", r.header, len(r.body))
	}
	if r := e.must(t, "GET", configMaps+"/a", "", "Accept-Encoding",
		"identity"); r.header.Get("Content-Encoding") != "" || !strings.Contains(r.body, data) {
		t.Errorf("not asked for: %v, %d bytes", r.header, len(r.body))
	}
	if r := e.must(t, "GET", configMaps+"/b", "", "Accept-Encoding", "gzip"); r.header.Get("Content-Encoding") != "" {
		t.Errorf("small: %v", r.header)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := newEnv(t, func(c *rest.Config) { c.Metrics = registry })
	e.must(t, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	e.do(t, "GET", configMaps+"/b", "")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		if f.GetName() != "apiserver_request_total" {
			continue
		}
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			seen[labels["verb"]+" "+labels["resource"]+" "+labels["scope"]+" "+labels["code"]] = true
		}
	}
	for _, want := range []string{"POST configmaps resource 201", "GET configmaps resource 404"} {
		if !seen[want] {
			t.Errorf("no %q in %v", want, seen)
		}
	}
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool {
		return f.GetName() == "apiserver_request_body_size_bytes"
	})
	if i < 0 || len(families[i].Metric) != 1 || families[i].Metric[0].GetHistogram().GetSampleSum() != 25 ||
		families[i].Metric[0].Label[2].GetValue() != "create" {
		t.Errorf("sizes of bodies: %v", families)
	}
}

// TestOpenAPIParts checks that after each change of the served resources, the documents in JSON and
// protobuf are the same as those that a new server with these resources makes.
func TestOpenAPIParts(t *testing.T) {
	configure := func(c *rest.Config) { c.OpenAPI, c.Version = definitions{}, "v1.36.0" }
	e := newEnv(t, configure)
	describe := func(description string) rest.RowOptions {
		return rest.RowOptions{OpenAPI: func(string) (v3, v2 []byte, err error) {
			v2 = []byte(`{"type":"object","description":"` + description +
				`","properties":{"metadata":{"$ref":"#/definitions/meta"}}}`)
			return v2, v2, nil
		}}
	}
	check := func(step string, options *rest.RowOptions) {
		t.Helper()
		fresh := newEnv(t, configure)
		if options != nil {
			if err := fresh.server.Add(dynamicRow(), *options); err != nil {
				t.Fatal(err)
			}
		}
		doc, want := e.must(t, "GET", "/openapi/v2", "").body, fresh.must(t, "GET", "/openapi/v2", "").body
		if doc != want {
			t.Errorf("%s: %s", step, cmp.Diff(want, doc))
		}
		var got openapiv2.Document
		asProto := e.must(t, "GET", "/openapi/v2", "", "Accept",
			"application/com.github.proto-openapi.spec.v2@v1.0+protobuf").body
		if err := proto.Unmarshal([]byte(asProto), &got); err != nil {
			t.Fatal(err)
		}
		parsed, err := openapiv2.ParseDocument([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []*openapiv2.Document{&got, parsed} {
			slices.SortFunc(d.Paths.Path, func(a, b *openapiv2.NamedPathItem) int { return strings.Compare(a.Name, b.Name) })
			slices.SortFunc(d.Definitions.AdditionalProperties, func(a, b *openapiv2.NamedSchema) int {
				return strings.Compare(a.Name, b.Name)
			})
		}
		if !proto.Equal(&got, parsed) {
			t.Errorf("%s: the protobuf form says other things", step)
		}
	}
	check("at first", nil)
	for _, description := range []string{"one", "two"} {
		options := describe(description)
		if err := e.server.Change(nil, []rest.Addition{{Row: dynamicRow(), Options: options}}); err != nil {
			t.Fatal(err)
		}
		check(description, &options)
		check(description+", again", &options)
	}
	if err := e.server.Change([]schema.GroupResource{dynamicRow().GroupResource()}, nil); err != nil {
		t.Fatal(err)
	}
	check("gone", nil)
}
