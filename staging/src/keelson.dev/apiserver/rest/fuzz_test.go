// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fuzzPatience is how long a watch that the fuzzer has opened may last.
const fuzzPatience = 200 * time.Millisecond

// try serves one request. Whatever it contains, the server must not panic or answer 500, and an
// error must be a Status that clients can handle.
func (e *env) try(t *testing.T, method, path, rawQuery, contentType string, body []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fuzzPatience)
	defer cancel()
	req := (&http.Request{
		Method: method, URL: &url.URL{Scheme: "http", Host: "server", Path: path, RawQuery: rawQuery},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentType}, "Accept": {"application/json"}}, Host: "server",
		Body: http.NoBody, ContentLength: int64(len(body)),
	}).WithContext(ctx)
	if len(body) > 0 {
		req.Body = httptest.NewRequest(method, "/", strings.NewReader(string(body))).Body
	}
	w := httptest.NewRecorder()
	e.handler.ServeHTTP(w, req)
	if asUpstream(w.Body.String()) {
		return
	}
	if w.Code >= http.StatusInternalServerError && w.Code != http.StatusGatewayTimeout {
		t.Errorf("%s %q ? %q (%s) %q: %d %s", method, path, rawQuery, contentType, body, w.Code, w.Body)
	}
	if w.Code < http.StatusBadRequest || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		return
	}
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || status.Kind != "Status" ||
		int(status.Code) != w.Code {
		t.Errorf("%s %q: %d is no Status: %v %s", method, path, w.Code, err, w.Body)
	}
}

// asUpstream reports whether Kubernetes also answers 500 to this mistake of a client.
func asUpstream(body string) bool {
	return strings.HasPrefix(body, "unable to determine kind and namespace") ||
		strings.Contains(body, "failed to create typed patch object")
}

func verbs() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
}

// FuzzPath requests arbitrary paths.
func FuzzPath(f *testing.F) {
	for _, path := range []string{
		"/api", "/api/v1", "/apis/apps/v1/namespaces/ns/deployments/d/scale",
		"/api/v1/namespaces/ns/configmaps/a", "/api/v1/namespaces/../../x",
		"/api/v1/namespaces/ns/configmaps/%2e%2e", "//api//v1", "/api/v1/watch/namespaces/ns/pods",
		"/api/v1/namespaces/ns/pods/p/nothing/more",
		"/apis/autoscaling/v9/namespaces/ns/horizontalpodautoscalers", "/openapi/v3/api/v1", "/api/v1/namespaces//pods",
		"/apis/apps/v1/namespaces/0/deployments//scale", "/api/v1/namespaces/ns/pods//status",
	} {
		f.Add(byte(0), path)
	}
	e := newEnv(f, nil)
	f.Fuzz(func(t *testing.T, verb byte, path string) {
		e.try(t, verbs()[int(verb)%len(verbs())], path, "", "application/json", nil)
	})
}

// FuzzQuery sends arbitrary query parameters: selectors, continue tokens, and options of lists,
// watches and writes.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{
		"labelSelector=a%3Db,c%20in%20(d,e),!f", "fieldSelector=metadata.name%3Da,spec.nodeName!%3Db",
		"limit=2&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0",
		"resourceVersion=99999999999&resourceVersionMatch=Exact", "watch=1&timeoutSeconds=-1",
		"watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"limit=-1", "dryRun=Some", "fieldValidation=Never", "propagationPolicy=X&gracePeriodSeconds=-9",
		"labelSelector=((((", "fieldManager=" + strings.Repeat("x", 200),
	} {
		for verb := range verbs() {
			f.Add(byte(verb), query)
		}
	}
	e := newEnv(f, nil)
	e.must(f, http.MethodPost, "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"a","labels":{"a":"b"}}}`)
	f.Fuzz(func(t *testing.T, verb byte, query string) {
		e.try(t, verbs()[int(verb)%len(verbs())], "/api/v1/namespaces/ns/pods", query, "application/json",
			[]byte(`{"metadata":{"name":"p"}}`))
	})
}

// FuzzBody sends arbitrary bodies in each media type and as each patch.
func FuzzBody(f *testing.F) {
	types := []string{
		"application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
		"application/json-patch+json", "application/merge-patch+json",
		"application/strategic-merge-patch+json", "application/apply-patch+yaml", "text/plain", "",
	}
	for _, body := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"x":"y"}}`,
		`{"metadata":{"name":"b"},"metadata":{},"nothing":1}`, "kind: ConfigMap\nmetadata: {name: b}\n",
		"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
		"k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x07\n\x05\n\x01b\x12\x00",
		`[{"op":"add","path":"/data","value":{"x":"z"}}]`,
		`{"data":{"$patch":"replace"}}`, strings.Repeat("[", 5000), `{"metadata":{"labels":{"` +
			strings.Repeat("l", 300) + `":""}}}`, "\xff\xfe", "",
	} {
		for i := range types {
			f.Add(byte(i), []byte(body))
		}
	}
	e := newEnv(f, nil)
	f.Fuzz(func(t *testing.T, i byte, body []byte) {
		mediaType, path := types[int(i)%len(types)], "/api/v1/namespaces/ns/configmaps"
		switch {
		case strings.Contains(mediaType, "patch"):
			e.try(t, http.MethodPatch, path+"/a", "fieldManager=fuzz", mediaType, body)
		default:
			e.try(t, http.MethodPost, path, "fieldValidation=Strict", mediaType, body)
		}
	})
}

// FuzzOptions sends arbitrary bodies with deletes and with updates of existing objects.
func FuzzOptions(f *testing.F) {
	for _, body := range []string{
		`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":-1,"propagationPolicy":"Nowhere"}`,
		`{"preconditions":{"uid":"x","resourceVersion":"y"}}`,
		`{"orphanDependents":true,"propagationPolicy":"Orphan","dryRun":["All","x"]}`,
		`{"metadata":{"name":"a","managedFields":[{"manager":"m","fieldsV1":{"f:x":{"k:{":{}}}}]}}`,
		`{"metadata":{"name":"a","ownerReferences":[{"uid":"u"},{"uid":"u"}],"finalizers":["x","x"]}}`, "\x00",
	} {
		f.Add(true, []byte(body))
		f.Add(false, []byte(body))
	}
	e := newEnv(f, nil)
	const path = "/api/v1/namespaces/ns/configmaps"
	f.Fuzz(func(t *testing.T, remove bool, body []byte) {
		e.do(t, http.MethodPost, path, `{"metadata":{"name":"a"}}`) // fails if the object exists already
		if remove {
			e.try(t, http.MethodDelete, path+"/a", "", "application/json", body)
			return
		}
		e.try(t, http.MethodPut, path+"/a", "", "application/json", body)
	})
}

// TestAliasBomb checks that YAML whose aliases grow exponentially is rejected in time.
func TestAliasBomb(t *testing.T) {
	e := newEnv(t, nil)
	bomb := strings.Builder{}
	bomb.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 12 {
		next, last := string(rune('b'+i)), "a0"
		if i > 0 {
			last = string(rune('b' + i - 1))
		}
		bomb.WriteString(next + ": &" + next + " [" + strings.Repeat("*"+last+",", 8) + "*" + last + "]\n")
	}
	for _, method := range []struct{ verb, path, mediaType string }{
		{http.MethodPost, "/api/v1/namespaces/ns/configmaps", "application/yaml"},
		{http.MethodPatch, "/api/v1/namespaces/ns/configmaps/a?fieldManager=m", "application/apply-patch+yaml"},
	} {
		if got := e.do(t, method.verb, method.path, bomb.String(), "Content-Type",
			method.mediaType); got.code != http.StatusBadRequest {
			t.Errorf("%s: %d %.200s", method.verb, got.code, got.body)
		}
	}
}
