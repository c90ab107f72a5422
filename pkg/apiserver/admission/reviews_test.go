// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestReviews checks which object and options a webhook receives for requests of many kinds, such
// as evictions, scales and deletes, and that it is called once for each request.
func TestReviews(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("all", allow)
	w := mutating(h, "all", "*/*")
	w.Rules = rules("*/*", admissionregistrationv1.OperationAll)
	w.MatchConditions = []admissionregistrationv1.MatchCondition{
		{Name: "ours", Expression: `request.userInfo.username == "admin"`}}
	install(t, s, nil, []admissionregistrationv1.MutatingWebhook{w})
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		_, err := try(ctx, s, configMap("a", nil))
		return err == nil && len(h.take("all")) > 0
	})
	const pods, deployments, replicas = "/api/v1/namespaces/default/pods",
		"/apis/apps/v1/namespaces/default/deployments", `"f:spec":{"f:replicas":{}}`
	for _, test := range []struct {
		name, method, path, body string
		what, part               string // operation, resource and name in the only review; part of its object or options
	}{
		{"an account", "POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`,
			"CREATE serviceaccounts default", ""},
		{"a pod", "POST", pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
			"CREATE pods p", `"image":"i"`},
		{"the same again", "PATCH", pods + "/p", `{"metadata":{"labels":{}}}`, "UPDATE pods p", `"image":"i"`},
		{"an eviction", "POST", pods + "/p/eviction?dryRun=All",
			`{"metadata":{"name":"p"},"deleteOptions":{"gracePeriodSeconds":3}}`,
			"CREATE pods/eviction p", `"f:gracePeriodSeconds":{}`},
		{"an eviction that is a trial itself", "POST", pods + "/p/eviction",
			`{"metadata":{"name":"p"},"deleteOptions":{"dryRun":["All"]}}`,
			"CREATE pods/eviction p", `options {"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`},
		{"a binding", "POST", "/api/v1/namespaces/default/bindings?dryRun=All",
			`{"metadata":{"name":"p"},"target":{"name":"n"}}`,
			"CREATE bindings p", `"fieldsV1":{"f:target":{}}`},
		{"a deployment", "POST", deployments, `{"metadata":{"name":"d"},"spec":{"replicas":1,` +
			`"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			"CREATE deployments d", `"image":"i"`},
		{"a scale that is put", "PUT", deployments + "/d/scale",
			`{"metadata":{"name":"d"},"spec":{"replicas":2}}`, "UPDATE deployments/scale d", `"status":{"replicas":0}}`},
		{"a scale that is patched", "PATCH", deployments + "/d/scale", `{"spec":{"replicas":3}}`,
			"UPDATE deployments/scale d", replicas},
		{"a scale that cannot be", "PATCH", deployments + "/d/scale", `{"spec":{"replicas":-3}}`,
			"UPDATE deployments/scale d", replicas},
		{"a namespace", "POST", "/api/v1/namespaces", `{"metadata":{"name":"n"}}`, "CREATE namespaces n", `"name":"n"`},
		{"a namespace that ends", "DELETE", "/api/v1/namespaces/n", ``, "DELETE namespaces n", `"preconditions":{"uid":"`},
		{"what finalizers keep", "POST", "/api/v1/namespaces/default/configmaps",
			`{"metadata":{"name":"c","finalizers":["a/b"]}}`, "CREATE configmaps c", `"a/b"`},
		{"its end", "DELETE", "/api/v1/namespaces/default/configmaps/c", ``, "DELETE configmaps c", `options`},
		{"its end again", "DELETE", "/api/v1/namespaces/default/configmaps/c", ``, "DELETE configmaps c", `options`},
	} {
		code := send(t, s, test.method, test.path, test.body)
		seen := h.take("all")
		if len(seen) != 1 || title(&seen[0]) != test.what || !strings.Contains(told(&seen[0]), test.part) {
			t.Errorf("%s (%d): want %s with %s, got %d:", test.name, code, test.what, test.part, len(seen))
			for i := range seen {
				t.Errorf("%s: %s", title(&seen[i]), told(&seen[i]))
			}
		}
	}
}

func title(r *admissionv1.AdmissionRequest) string {
	at := r.Resource.Resource
	if r.SubResource != "" {
		at += "/" + r.SubResource
	}
	return fmt.Sprintf("%s %s %s", r.Operation, at, r.Name)
}

func told(r *admissionv1.AdmissionRequest) string {
	return fmt.Sprintf("%s options %s", r.Object.Raw, r.Options.Raw)
}

// send sends a request as an administrator and returns the status code.
func send(t *testing.T, s *testserver.Server, method, path, body string) int {
	t.Helper()
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.Config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", string(types.MergePatchType))
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
