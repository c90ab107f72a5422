// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// serve runs requests through the handler without a connection, so that the benchmark measures only
// the server.
func serve(b *testing.B, e *env, method, path, body string, header ...string) {
	b.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	e.handler.ServeHTTP(w, req)
	if w.Code >= http.StatusMultipleChoices {
		b.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
}

func filled(b *testing.B, n int) *env {
	b.Helper()
	e := newEnv(b, nil)
	for i := range n {
		e.must(b, "POST", pods, fmt.Sprintf(`{"metadata":{"name":"p%d","labels":{"app":"a%d"}},`+
			`"spec":{"nodeName":"n","containers":[{"name":"c","image":"i","env":[{"name":"A","value":"b"}]}]}}`, i, i%10))
	}
	b.ReportAllocs()
	b.ResetTimer()
	return e
}

func BenchmarkGet(b *testing.B) {
	for name, accept := range map[string]string{"JSON": "application/json",
		"Protobuf": "application/vnd.kubernetes.protobuf"} {
		b.Run(name, func(b *testing.B) {
			e := filled(b, 1)
			for b.Loop() {
				serve(b, e, "GET", pods+"/p0", "", "Accept", accept)
			}
		})
	}
}

func BenchmarkList1000(b *testing.B) {
	for name, accept := range map[string]string{
		"JSON": "application/json", "Protobuf": "application/vnd.kubernetes.protobuf",
		"Table": "application/json;as=Table;g=meta.k8s.io;v=v1",
	} {
		b.Run(name, func(b *testing.B) {
			e := filled(b, 1000)
			for b.Loop() {
				serve(b, e, "GET", pods, "", "Accept", accept)
			}
		})
	}
}

func BenchmarkCreate(b *testing.B) {
	e := filled(b, 0)
	i := 0
	for b.Loop() {
		i++
		serve(b, e, "POST", pods,
			fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, i))
	}
}

func BenchmarkPatch(b *testing.B) {
	for name, contentType := range map[string]string{"Merge": merge,
		"Strategic": "application/strategic-merge-patch+json"} {
		b.Run(name, func(b *testing.B) {
			e := filled(b, 1)
			i := 0
			for b.Loop() {
				i++
				serve(b, e, "PATCH", pods+"/p0", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i), "Content-Type", contentType)
			}
		})
	}
}

func BenchmarkApplyUnchanged(b *testing.B) {
	e := filled(b, 0)
	for b.Loop() {
		serve(b, e, "PATCH", configMaps+"/a?fieldManager=m",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"y"}}`, "Content-Type", apply)
	}
}
