// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestMethods checks that a HEAD of a custom resource is handled as a GET whose answer has no body,
// and that unknown methods are rejected.
func TestMethods(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	e.define(t, crontabs)
	if _, err := e.dynamic.Resource(crontabResource()).Namespace("default").Create(t.Context(),
		crontab(t, "c", `{cronSpec: "* * * * *"}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(e.Config)
	if err != nil {
		t.Fatal(err)
	}
	const all = "/apis/stable.example.com/v1/namespaces/default/crontabs"
	const refused = `"message":" is not supported on resources of kind \"crontabs.stable.example.com\"",` +
		`"reason":"MethodNotAllowed","details":{"group":"stable.example.com","kind":"crontabs"},"code":405}`
	for _, tc := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"HEAD", all, 200, ""},
		{"HEAD", all + "/c", 200, ""},
		{"HEAD", all + "/d", 404, ""},
		{"OPTIONS", all, 405, refused},
		{"OPTIONS", all + "/c", 405, refused},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, e.Config.Host+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/json")
		resp, body := testserver.Do(t, client, req)
		if resp.StatusCode != tc.code || tc.want == "" != (len(body) == 0) || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tc.method, tc.path, resp.StatusCode, body, tc.code, tc.want)
		}
	}
}
