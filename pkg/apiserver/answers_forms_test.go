// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestForms compares the answers to requests for tables and for metadata only (and some others in
// which Kubernetes adds or omits fields) with those of Kubernetes 1.37. Each case has a namespace
// of its own, so that it can run alone.
func TestForms(t *testing.T) {
	t.Parallel() // slow: waits for watches that end after a second
	const (
		tables = "application/json;as=Table;g=meta.k8s.io;v=v1"
		part   = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		list   = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		pods   = "/api/v1/namespaces/{ns}/pods"
		daemon = "/apis/apps/v1/namespaces/{ns}/daemonsets"

		// A ConfigMap in protobuf, which is sent to paths of other kinds.
		foreign = "k8s\x00\n\x0f\n\x02v1\x12\x09ConfigMap\x12\x02\n\x00"
		initial = "?watch=1&timeoutSeconds=1&sendInitialEvents=true" +
			"&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	)
	c := newCaller(t)
	for i, tc := range []struct {
		name, given                   string
		method, path, mediaType, body string
		has, hasNone                  string // what the body must contain, and what it must not contain
	}{
		{"pod as a table row without conditions", "podP", "GET", pods + "/p", tables, "", `,"object":`,
			`"conditions"`},
		{"finished pod as a table row with its condition", "podP podSucceeded", "GET", pods, tables, "",
			`"conditions":[{"type":"Completed","status":"True","reason":"Succeeded","message":"The pod has ` +
				`completed successfully."}],"object":`,
			""},
		{"daemon set with the annotation of its template generation", "", "POST", daemon, "",
			`{"metadata":{"name":"d","annotations":{"a":"b"}},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			`"deprecated.daemonset.template.generation":"1"`, ""},
		{"daemon set as metadata", "daemonSetAnnotated", "GET", daemon + "/d", part, "", `"annotations":{"a":"b"}`,
			`"deprecated`},
		{"daemon sets as a table", "daemonSetAnnotated", "GET", daemon, tables, "", `"annotations":{"a":"b"}`,
			`"deprecated`},
		{"default class in a list as a table", "defaultClass", "GET",
			"/apis/storage.k8s.io/v1/storageclasses?fieldSelector=metadata.name%3D{ns}", tables, "", ` (default)","d.x"`, ""},
		{"default class as a table", "defaultClass", "GET", "/apis/storage.k8s.io/v1/storageclasses/{ns}", tables, "",
			`"d.x"`, ` (default)`},
		{"scale as metadata", "deployment", "GET", "/apis/apps/v1/namespaces/{ns}/deployments/d/scale", part, "",
			`"kind":"PartialObjectMetadata"`, `"spec"`},
		{"review as metadata", "", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", part, "{}",
			`"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"creationTimestamp":`,
			`"userInfo"`},
		{"review as a list of metadata", "", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", list, "{}",
			`the requested object is not a list (*authentication.SelfSubjectReview)`, ""},
		{"review as a table", "", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", tables, "{}",
			`"code": 406`, ""},
		{"token as metadata", "", "POST", "/api/v1/namespaces/{ns}/serviceaccounts/default/token", part,
			`{"spec":{}}`, `"subresource":"token"`, `"spec":`},
		{"eviction as metadata", "podP", "POST", pods + "/p/eviction?dryRun=All", part, `{"metadata":{"name":"p"}}`,
			`"status":"Success","code":201`, ""},
		{"limit ranges as a table", "", "GET", "/api/v1/limitranges", tables, "", `"rows":null}`, ""},
		{"resource quotas as a table", "", "GET", "/api/v1/resourcequotas", tables, "", `"rows":[]}`, ""},
		{"resource quotas as a list of metadata", "", "GET", "/api/v1/resourcequotas", list, "", `"items":null}`, ""},
		{"flow schemas as a table", "", "GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", tables, "",
			`"rows":[{"cells":["exempt",`, ""},
		{"log as metadata", "podP", "GET", pods + "/p/log", part, "",
			`"message": "object does not implement the Object interfaces"`, ""},
		{"log as a list of metadata", "podP", "GET", pods + "/p/log", list, "",
			`the requested object is not a list (*rest.LocationStreamer)`, ""},
		{"OpenAPI in any JSON", "", "GET", "/openapi/v3/apis/apps/v1", "*/json", "", `"/apis/apps/v1/deployments"`,
			""},
		{"resize as a table", "podP", "GET", pods + "/p/resize", tables, "", `"code": 406`, ""},
		{"status as a table", "podP", "GET", pods + "/p/status", tables, "", `"kind":"Table"`, ""},
		{"groups in any JSON", "", "GET", "/apis", "*/json", "", `"code": 406`, ""},
		{"events as metadata instead of a list", "", "GET", "/apis/events.k8s.io/v1/events", part, "",
			`the requested object is a list (*core.EventList)`, ""},
		{"finalize as a table", "", "PUT", "/api/v1/namespaces/{ns}/finalize", tables, "{}", `"code": 406`, ""},
		{"OpenAPI v2 in protobuf", "", "GET", "/openapi/v2",
			"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "", "io.k8s.api.core.v1.Pod",
			`"status":"Failure"`},
		{"watch as a list of metadata", "podP", "GET", pods + "?watch=1&timeoutSeconds=1", list, "", "", `"type"`},
		{"rules review as metadata", "", "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", part,
			`{"spec":{"namespace":"{ns}"}}`,
			`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}`, ""},
		{"rules review as a list of metadata", "", "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
			list, `{"spec":{"namespace":"{ns}"}}`,
			`the requested object is not a list (*authorization.SelfSubjectRulesReview)`, ""},
		{"eviction of another name as a list of metadata", "", "POST", pods + "/d/eviction?dryRun=All", list,
			`{"metadata":{"name":"q"}}`, `name in URL does not match name in Eviction object`, ""},
		{"token review as a table", "", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", tables,
			`{"spec":{"token":"t"}}`, `only the following media types are accepted`, ""},
		{"bookmark of pods", "", "GET", pods + initial, "", "",
			`"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}`, ""},
		{"bookmark of pods as metadata", "", "GET", pods + initial, part, "",
			`"k8s.io/initial-events-end":"true"}}}}`, ""},
		{"bookmark of pods in protobuf", "", "GET", pods + initial, "application/vnd.kubernetes.protobuf", "",
			"k8s.io/initial-events-end\x12\x04true\x12", ""},
		{"bookmark of pods as a table", "", "GET", pods + initial + "&includeObject=Object", tables, "",
			`"spec":{"containers":null},"status":{}}}]}}`, ""},
		{"bookmark of autoscalers in v1", "", "GET", "/apis/autoscaling/v1/horizontalpodautoscalers" + initial, "",
			"",
			`"k8s.io/initial-events-end":"true"}},"spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},"status":{`,
			""},
		{"eviction with a body of another kind", "podP", "POST", pods + "/p/eviction", "", foreign,
			`converting (v1.ConfigMap) to (policy.Eviction): unknown conversion`, ""},
		{"DeleteOptions of another kind in protobuf", "podP", "DELETE", pods + "/p", "", foreign,
			`no kind \"ConfigMap\" is registered for version \"v1\" in scheme`, ""},
		{"create in an unknown version in protobuf", "", "POST", "/api/v1/namespaces/{ns}/configmaps", "",
			strings.Replace(foreign, "v1", "v2", 1),
			`no kind \"ConfigMap\" is registered for version \"v2\" in scheme`, ""},
		{"OpenAPI without subresources of old watches", "", "GET", "/openapi/v3/api/v1", "application/json", "",
			`"/api/v1/watch/pods"`, "sinceTime-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := c.inNamespace(t, fmt.Sprintf("case-%d", i))
			c.prepare(t, tc.given)
			_, body := c.send(t, tc.method, tc.path, tc.body, tc.mediaType)
			if !strings.Contains(body, tc.has) || tc.hasNone != "" && strings.Contains(body, tc.hasNone) {
				t.Errorf("%s %s as %q: %.2000s, want %s in it, and not %s", tc.method, tc.path, tc.mediaType,
					body, tc.has, tc.hasNone)
			}
		})
	}
}

// TestLengths checks which answers have a Content-Length: those that fit into the buffer of
// net/http.
func TestLengths(t *testing.T) {
	c := newCaller(t)
	for path, want := range map[string]bool{
		"/api": true, "/apis": true, "/apis/batch/v1": true, "/api/v1/namespaces/default": true,
		"/api/v1": false, "/api/v1/namespaces/nope": true,
	} {
		t.Run(path, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.host+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", "identity")
			resp, _ := testserver.Do(t, c.client, req)
			if got := resp.Header.Get("Content-Length"); (got != "") != want {
				t.Errorf("Content-Length %q, want one: %v", got, want)
			}
		})
	}
}
