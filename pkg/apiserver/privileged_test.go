// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestPrivileged checks that without --allow-privileged, privileged containers are rejected in
// pods, templates and ephemeral containers, and that other errors are reported as well.
func TestPrivileged(t *testing.T) {
	const (
		pods  = "/api/v1/namespaces/default/pods"
		small = `{"containers":[{"name":"c","image":"i"}]}`
		large = `{"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}`
		host  = `{"securityContext":{"windowsOptions":{"hostProcess":true}},"hostNetwork":true,` +
			`"containers":[{"name":"c","image":"i"}]}`
	)
	of := func(spec string) string {
		return `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":` + spec + `}`
	}
	later := func(securityContext string) string {
		return `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","securityContext":` + securityContext + `}]}}`
	}
	type step struct {
		method, path, body string
		refused            string // the error without --allow-privileged; empty if the request succeeds
		wrong              string // the error with --allow-privileged; empty if the request succeeds
	}
	steps := []step{
		{"POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`, "", ""},
		{"POST", pods, `{"metadata":{"name":"p"},"spec":` + small + `}`, "", ""},
		{"POST", pods, `{"metadata":{"name":"q"},"spec":` + large + `}`,
			`spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy`, ""},
		{"POST", pods, `{"metadata":{"name":"r"},"spec":` + host + `}`,
			`spec: Forbidden: hostProcess containers are disallowed by cluster policy`, ""},
		{"PATCH", pods + "/p/ephemeralcontainers", later(`{"windowsOptions":{"hostProcess":true}}`),
			"spec: Forbidden: hostProcess", "then all containers must be HostProcess containers"},
		{"PATCH", pods + "/p/ephemeralcontainers", later(`{"privileged":true}`),
			"spec.ephemeralContainers[0].securityContext.privileged: Forbidden", ""},
		{"POST", "/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"d"},"spec":{` +
			of(large) + `}}`, "spec.template.spec.containers[0].securityContext.privileged: Forbidden", ""},
		{"POST", "/apis/apps/v1/namespaces/default/statefulsets", `{"metadata":{"name":"d"},"spec":{` +
			of(large) + `}}`, "spec.template.spec.containers[0].securityContext.privileged: Forbidden", ""},
		{"POST", "/apis/batch/v1/namespaces/default/cronjobs", `{"metadata":{"name":"d"},` +
			`"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never",` +
			large[1:] + `}}}}}`,
			"spec.jobTemplate.spec.template.spec.containers[0].securityContext.privileged: Forbidden", ""},
	}
	for name, allow := range map[string]bool{"refused": false, "allowed": true} {
		t.Run(name, func(t *testing.T) {
			s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.AllowPrivileged = allow }})
			client, err := rest.HTTPClientFor(s.Config)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range steps {
				req, err := http.NewRequestWithContext(t.Context(), step.method, s.Config.Host+step.path,
					strings.NewReader(step.body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				if step.method == http.MethodPatch {
					req.Header.Set("Content-Type", "application/strategic-merge-patch+json")
				}
				want := step.refused
				if allow {
					want = step.wrong
				}
				resp, body := testserver.Do(t, client, req)
				if (resp.StatusCode >= 400) != (want != "") || !strings.Contains(body, want) {
					t.Errorf("%s %s: %d %s, want %q", step.method, step.path, resp.StatusCode, body, want)
				}
			}
		})
	}
}
