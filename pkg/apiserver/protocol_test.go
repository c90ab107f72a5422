// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestProtocol sends requests whose parameters, headers, method and path do not fit together. The
// order of the checks, and which checks are omitted, must be as in Kubernetes 1.37.
func TestProtocol(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	const (
		pods  = "/api/v1/namespaces/default/pods"
		bs    = "/apis/y.example.com/v1/namespaces/default/bs"
		table = "application/json;as=Table;v=v1;g=meta.k8s.io"

		aggregated = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	)
	define(t, client, s.Config.Host,
		`{"metadata":{"name":"bs.y.example.com"},"spec":{"group":"y.example.com","scope":"Namespaced","names":{"plural":"bs","kind":"B"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"n":{"type":"integer"}}}}}},
		"subresources":{"status":{},"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}}}]}}`, bs)
	for _, tc := range []struct {
		name, method, path, headers, body string // headers are lines of "Name: value"
		code                              int
		want                              string // text that the body must contain
		header                            string // header of the answer, as "Name: value"
	}{
		{"account", "POST", "/api/v1/namespaces/default/serviceaccounts", "", `{"metadata":{"name":"default"}}`, 201, "", ""},
		{"pod", "POST", pods, "", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201, "", ""},
		{"custom resource", "POST", bs, "",
			`{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"b"},"spec":{"n":1}}`, 201, "", ""},
		{"null for bytes", "POST", "/api/v1/namespaces/default/configmaps", "",
			`{"metadata":{"name":"m"},"binaryData":{"a":null}}`, 201, `"binaryData":{"a":""}`, ""},
		{"null for bytes of a secret", "POST", "/api/v1/namespaces/default/secrets", "",
			`{"metadata":{"name":"s"},"data":{"a":null}}`, 201, `"data":{"a":""}`, ""},
		{"apply of a null label", "PATCH", bs + "/c?fieldManager=m",
			"Content-Type: application/apply-patch+yaml", `{"apiVersion":"y.example.com/v1","kind":"B",` +
				`"metadata":{"name":"c","labels":{"a":null},"annotations":null}}`, 201, `"labels":{"a":""}`, ""},
		{"get after an apply of a null label", "GET", bs + "/c", "", "", 200, `"metadata":{"creationTimestamp"`, ""},
		{"second apply of a null label", "PATCH", bs + "/c?fieldManager=m",
			"Content-Type: application/apply-patch+yaml", `{"apiVersion":"y.example.com/v1","kind":"B",` +
				`"metadata":{"name":"c","labels":{"a":null},"annotations":null}}`, 200, `"labels":{"a":""}`, ""},

		{"invalid label selector and other errors", "GET", pods + "?labelSelector=a+b&resourceVersionMatch=x",
			"", "", 400, "unable to parse requirement: found 'b'", ""},
		{"invalid field selector and other errors", "DELETE", bs + "?fieldSelector=x&sendInitialEvents=1", "",
			"", 400, "invalid selector: 'x'", ""},
		{"watch in the path", "GET",
			"/api/v1/watch/namespaces/default/pods?resourceVersionMatch=Exact&timeoutSeconds=1", "", "", 422,
			"is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless " +
				"resourceVersion is provided", ""},
		{"DELETE with watch", "DELETE", pods + "?watch=1&resourceVersion=0&sendInitialEvents=1&dryRun=All", "",
			"", 422, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan", ""},
		{"watch of a name with an empty selector", "GET",
			"/api/v1/watch/namespaces/default/pods/p?fieldSelector==&resourceVersion=x", "", "", 500,
			`strconv.ParseUint: parsing \"x\"`, ""},
		{"watch in an unknown form from an invalid resourceVersion", "GET", pods + "?watch=1&resourceVersion=x",
			"Accept: application/yaml", "", 500, "strconv.ParseUint", ""},
		{"watch in an unknown form", "GET", pods + "?watch=1", "Accept: application/yaml", "", 406,
			"application/json;stream=watch", ""},
		{"limit with the name of an object", "GET",
			pods + "?limit=2&resourceVersion=1&fieldSelector=metadata.name%3Dp", "", "", 200, `"name":"p"`, ""},
		{"limit with the name and namespace of an object", "GET",
			"/api/v1/pods?limit=2&resourceVersion=1&fieldSelector=metadata.name%3Dp,metadata.namespace%3Ddefault",
			"", "", 200, `"name":"p"`, ""},
		{"limit with a name in all namespaces", "GET",
			"/api/v1/pods?limit=2&resourceVersion=1&fieldSelector=metadata.name%3Dp", "", "", 200, `"items":[]`, ""},
		{"limit with the name of a cluster object", "GET",
			"/api/v1/namespaces?limit=2&resourceVersion=1&fieldSelector=metadata.name%3Ddefault", "", "", 200,
			`"name":"default"`, ""},

		{"method in lower case", "get", pods + "/p/status", "", "", 405, "the server does not allow this method", ""},
		{"method in lower case to a proxy", "get", pods + "/p/exec", "", "", 405,
			"the server does not allow this method", ""},
		{"path below a status", "GET", bs + "/b/status/x", "", "", 200, `"kind":"B"`, ""},
		{"path below the status of a pod", "GET", pods + "/p/status/x", "", "", 404, "", ""},
		{"scale of a resource without one", "PUT", bs + "/b/scale", "", `{"kind":"Foo","apiVersion":"v1"}`, 400,
			`"message":"no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\""`, ""},

		{"log as plain text only", "GET", pods + "/p/log", "Accept: text/plain", "", 406,
			"only the following media types are accepted: application/json", ""},
		{"log as a table", "GET", pods + "/p/log", "Accept: " + table, "", 406,
			"only the following media types are accepted: application/json", ""},
		{"patch without type and accepted answer", "PATCH", bs + "/b",
			"Accept: application/vnd.kubernetes.protobuf\nContent-Type: application/strategic-merge-patch+json",
			`{}`, 415, "unknown format", ""},
		{"patch with a blank in its type and without accepted answer", "PATCH", pods + "/p",
			"Accept: text/html\nContent-Type: application/json-patch+json ; a=b", `[]`, 406,
			"Available representations: application/json", ""},
		{"patch with a blank in its type", "PATCH", pods + "/p",
			"Content-Type: application/json-patch+json ; a=b", `[]`, 415, "unknown format", ""},
		{"aggregated discovery as second choice", "GET", "/apis",
			"Accept: application/json, application/vnd.kubernetes.protobuf" + aggregated, "", 200,
			"APIGroupDiscoveryList", "Content-Type: application/vnd.kubernetes.protobuf" + aggregated},
		{"aggregated discovery after any type", "GET", "/api", "Accept: */* ,application/json" + aggregated, "",
			200, "APIGroupDiscoveryList", "Content-Type: application/json" + aggregated},
		{"unaggregated discovery", "GET", "/api",
			"Accept: application/json, application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
			"", 200, "APIVersions", "Content-Type: application/json"},
		{"OpenAPI v3 with another hash", "GET", "/openapi/v3/apis/batch/v1?hash=x", "", "", 301, "",
			"Content-Type: application/json"},
		{"OpenAPI v3 with another hash in an unknown form", "GET", "/openapi/v3/apis/batch/v1?hash=x",
			"Accept: text/html", "", 406, "", "Cache-Control: no-cache, private"},
		{"document without an accepted type", "GET", "/openapi/v3/apis/batch/v1", "Accept: nothing", "", 200, "", "Vary: "},
		{"gzip with a weight", "GET", "/openapi/v2", "Accept-Encoding: br, GZIP;q=0.5", "", 200, "",
			"Content-Encoding: gzip"},
		{"gzip with weight 0", "GET", "/openapi/v2", "Accept-Encoding: gzip;q=0", "", 200, "", "Content-Encoding: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, s.Config.Host+tc.path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			for line := range strings.SplitSeq(tc.headers, "\n") {
				if name, value, ok := strings.Cut(line, ": "); ok {
					req.Header.Set(name, value)
				}
			}
			resp, body := testserver.Do(t, client, req)
			name, value, _ := strings.Cut(tc.header, ": ")
			if resp.StatusCode != tc.code || !strings.Contains(body, tc.want) || tc.header != "" &&
				resp.Header.Get(name) != value {
				t.Errorf("%d %.300s (%v), want %d %s (%s)", resp.StatusCode, body, resp.Header, tc.code, tc.want, tc.header)
			}
		})
	}
	t.Run("metadata in an old list", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Config.Host+pods, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io")
		_, body := testserver.Do(t, client, req)
		var envelope runtime.Unknown
		var list metav1beta1.PartialObjectMetadataList
		if err := envelope.Unmarshal([]byte(body)[4:]); err != nil {
			t.Fatal(err)
		}
		if err := list.Unmarshal(envelope.Raw); err != nil || len(list.Items) != 1 ||
			list.Items[0].Name != "p" || list.ResourceVersion == "" {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
