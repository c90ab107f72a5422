// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestReported sends requests from public bug reports (docs/explanation/reports.md), in order. The cases have
// the correct answers, which may differ from those of Kubernetes.
func TestReported(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	const (
		core   = "/api/v1/namespaces/default/"
		slices = "/apis/resource.k8s.io/v1/resourceslices"
	)
	pod := func(name, resources string) string {
		return `{"metadata":{"name":"` + name +
			`"},"spec":{"containers":[{"name":"c","image":"i","resources":{` + resources + `}}]}}`
	}
	for _, tc := range []struct {
		name, method, path, body string
		code                     int
		want, warning            string
	}{
		{"account", "POST", core + "serviceaccounts", `{"metadata":{"name":"default"}}`, 201, "", ""},
		// kubernetes/kubernetes#136776
		{"pod", "POST", core + "pods", pod("p", ""), 201, "", ""},
		{"binding to what cannot be a node", "POST", core + "pods/p/binding",
			`{"metadata":{"name":"p"},"target":{"kind":"Node","name":"No_Node!"}}`, 500,
			`target.name: Invalid value: \"No_Node!\": a lowercase RFC 1123 subdomain`, ""},
		{"the same without a kind", "POST", core + "pods/p/binding",
			`{"metadata":{"name":"p"},"target":{"name":"No_Node!"}}`, 500, `target.name: Invalid value`, ""},
		{"binding", "POST", core + "pods/p/binding",
			`{"metadata":{"name":"p"},"target":{"name":"n.example.com"}}`, 201, "", ""},
		// kubernetes/kubernetes#139876
		{"pod with a claim", "POST", core + "pods", `{"metadata":{"name":"claims"},` +
			`"spec":{"resourceClaims":[{"name":"a","resourceClaimTemplateName":"t"}],` +
			`"containers":[{"name":"c","image":"i"}]}}`, 201, "", ""},
		{"its claim", "PATCH", core + "pods/claims/status",
			`{"status":{"resourceClaimStatuses":[{"name":"a","resourceClaimName":"made"}]}}`, 200,
			`"resourceClaimName":"made"`, ""},
		{"status by a client that does not know claims", "PATCH", core + "pods/claims/status",
			`{"status":{"message":"m","resourceClaimStatuses":null}}`, 200, `"resourceClaimName":"made"`, ""},
		// kubernetes/kubernetes#137150
		{"pod with empty resources of its own", "POST", core + "pods?dryRun=All",
			`{"metadata":{"name":"q"},"spec":{"resources":{},"containers":[{"name":"c","image":"i",` +
				`"resources":{"requests":{"cpu":"1"}}}]}}`, 201, `"qosClass":"Burstable"`, ""},
		// kubernetes/kubernetes#138574
		{"container of a user above 31 bits", "PATCH", core + "pods/p/status",
			`{"status":{"containerStatuses":[{"name":"c","ready":true,"restartCount":0,"image":"i",` +
				`"imageID":"","user":{"linux":{"uid":4294967294,"gid":1}}}]}}`, 200, `"uid":4294967294`, ""},
		// kubernetes/kubernetes#141349
		{"whole number above 64 bits", "POST", core + "pods?dryRun=All",
			pod("q", `"limits":{"example.com/d":"9223372036854775807"}`), 201, "", ""},
		{"fraction above 64 bits", "POST", core + "pods?dryRun=All",
			pod("q", `"limits":{"example.com/d":"18446744073709551616m"}`), 422, `must be an integer`, ""},
		// kubernetes/kubernetes#142131
		{"whole bytes above 64 bits", "POST", core + "pods?dryRun=All",
			pod("q", `"limits":{"memory":"9223372036854775807"}`), 201, "", ""},
		// kubernetes/kubernetes#141213
		{"device for nodes of several terms", "POST", slices,
			`{"metadata":{"name":"s"},"spec":{"driver":"d.e","pool":{"name":"p","resourceSliceCount":1},"perDeviceNodeSelection":true,"devices":[{"name":"x",
			"nodeSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]},{"matchExpressions":[{"key":"b","operator":"Exists"}]}]}}]}}`, 422,
			`spec.devices[0].nodeSelector.nodeSelectorTerms: Invalid value`, ""},
		// kubernetes/kubernetes#140666
		{"capacity in negative steps", "POST", slices,
			`{"metadata":{"name":"s"},"spec":{"driver":"d.e","pool":{"name":"p","resourceSliceCount":1},"nodeName":"n","devices":[{"name":"x",
			"allowMultipleAllocations":true,"capacity":{"c":{"value":"10","requestPolicy":{"default":"4","validRange":{"min":"2","step":"-2"}}}}}]}}`, 422, `validRange.step: Invalid value: \"-2\"`, ""},
		// kubernetes/kubernetes#141169
		{"claim", "POST", core + "persistentvolumeclaims", `{"metadata":{"name":"c"},` +
			`"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, 201, "", ""},
		{"negative size that is no whole number", "PATCH", core + "persistentvolumeclaims/c/status",
			`{"status":{"capacity":{"storage":"-9.5Gi"}}}`, 422, `status.capacity[storage]: Invalid value`, ""},
		{"negative size beyond 64 bits", "PATCH", core + "persistentvolumeclaims/c/status",
			`{"status":{"capacity":{"storage":"-1e30"}}}`, 422, `status.capacity[storage]: Invalid value`, ""},
		{"size beyond 64 bits", "PATCH", core + "persistentvolumeclaims/c/status",
			`{"status":{"capacity":{"storage":"9223372036854775808"}}}`, 200, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, s.Config.Host+tc.path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			if tc.method == http.MethodPatch {
				req.Header.Set("Content-Type", "application/merge-patch+json")
			}
			resp, body := testserver.Do(t, client, req)
			warning := resp.Header.Get("Warning")
			if resp.StatusCode != tc.code || !strings.Contains(body, tc.want) ||
				!strings.Contains(warning, tc.warning) || tc.warning == "" && warning != "" {
				t.Errorf("%d %s (warning %q), want %d %s (warning %q)", resp.StatusCode, body, warning, tc.code,
					tc.want, tc.warning)
			}
		})
	}
}
