// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestAnswers sends requests one after the other; code, words and warnings of the
// answers are those of Kubernetes 1.36.
func TestAnswers(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	const (
		core = "/api/v1/namespaces/default/"
		jobs = "/apis/batch/v1/namespaces/default/jobs"
		deps = "/apis/apps/v1/namespaces/default/deployments"
		net  = "/apis/networking.k8s.io/v1/"
		pod  = `"spec":{"containers":[{"name":"c","image":"i"}]}`
		crd  = `{"metadata":{"name":"as.x.example.com"},"spec":{"group":"x.example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},
			"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.a"}],"schema":{"openAPIV3Schema":
			{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string","$ref":"x"}}}}}}}]}}`
	)
	for _, tc := range []struct {
		name, method, path, body string
		code                     int
		want                     string // in the body
		warning                  string
	}{
		{"account", "POST", core + "serviceaccounts", `{"metadata":{"name":"default"}}`, 201, "", ""},
		{"no rules", "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", `{"metadata":{"name":"r"},"rules":[]}`, 201, `"rules":null`, ""},
		{"no rules, read", "GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r", ``, 200, `"rules":null`, ""},
		{"no endpoints", "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `{"metadata":{"name":"e"},"addressType":"IPv4","endpoints":[],"ports":[]}`, 201, `"endpoints":null,"ports":null`, ""},
		{"nothing allocatable", "POST", "/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"capacity":{"cpu":"1"},"allocatable":{}}}`, 201, `"allocatable":{"cpu":"1"}`, ""},
		{"job", "POST", jobs, `{"metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, 201, "", ""},
		{"job left alone", "DELETE", jobs + "/j?dryRun=All", ``, 200, "", "child pods are preserved by default"},
		{"job with pods", "DELETE", jobs + "/j?propagationPolicy=Background", ``, 200, "", ""},
		{"map", "POST", core + "configmaps", `{"metadata":{"name":"m"}}`, 201, "", ""},
		{"options of any version", "DELETE", core + "configmaps/m", `{"kind":"DeleteOptions","apiVersion":"nope/v1"}`, 200, `"Success"`, ""},
		{"pod", "POST", core + "pods", `{"metadata":{"name":"p"},` + pod + `}`, 201, "", ""},
		{"pod of another's uid", "POST", core + "pods/p/eviction", `{"metadata":{"name":"p"},"deleteOptions":{"preconditions":{"uid":"x"}}}`, 409, `Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (x)`, ""},
		{"old eviction", "POST", core + "pods/p/eviction", `{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"p"}}`, 201, `"Success"`, ""},
		{"deployment", "POST", deps, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` + pod + `}}}`, 201, "", ""},
		{"another's scale", "PATCH", deps + "/d/scale", `{"metadata":{"name":"e"}}`, 400, "the name of the object (e) does not match the name on the URL (d)", ""},
		{"odd scale", "PATCH", deps + "/d/scale", `{"bogus":1}`, 200, "", `unknown field \"bogus\"`},
		{"some host processes", "POST", core + "pods", `{"metadata":{"name":"h"},"spec":{"containers":[{"name":"c","image":"i","securityContext":{"windowsOptions":{"hostProcess":true}}},{"name":"d","image":"i"}]}}`, 422,
			`[spec: Invalid value: \"\": If pod contains any hostProcess containers then all containers must be HostProcess containers, spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers]`, ""},
		{"address", "POST", core + "services", `{"metadata":{"name":"s"},"spec":{"clusterIP":"x"}}`, 422, `is invalid: spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address`, ""},
		{"claim", "POST", core + "persistentvolumeclaims", `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, 201, "", ""},
		{"claim of less than nothing", "PATCH", core + "persistentvolumeclaims/c/status", `{"status":{"allocatedResources":{"storage":"-1"}}}`, 422, `status.allocatedResources[storage]: Invalid value: -1: must be a valid resource quantity`, ""},
		{"claim in no state", "PATCH", core + "persistentvolumeclaims/c/status", `{"status":{"allocatedResourceStatuses":{"storage":"x"}}}`, 422, `status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: \"ControllerResizeInProgress\"`, ""},
		{"range with bits", "POST", net + "namespaces/default/networkpolicies", `{"metadata":{"name":"n"},"spec":{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.1.2.3/24"}}]}]}}`, 422, `ipBlock.cidr: Invalid value: \"10.1.2.3/24\": must not have bits set beyond the prefix length`, ""},
		{"range", "POST", net + "servicecidrs", `{"metadata":{"name":"c"},"spec":{"cidrs":["192.168.0.0/24"]}}`, 201, "", ""},
		{"other range", "PATCH", net + "servicecidrs/c", `{"spec":{"cidrs":["192.168.1.0/24"]}}`, 422, `spec.cidrs[0]: Invalid value: \"192.168.1.0/24\": field is immutable`, ""},
		{"container resource", "POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `{"metadata":{"name":"h"},"spec":{"maxReplicas":2,"scaleTargetRef":{"kind":"D","name":"d"},"metrics":[{"type":"ContainerResource","containerResource":{"name":"x","container":"c","target":{"type":"Utilization","averageUtilization":5}}}]}}`, 422,
			`spec.metrics[0].containerResource.name: Invalid value: \"x\": must be a standard resource for containers`, ""},
		{"schema that cannot be walked", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd, 422, "$ref is not supported", ""},
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
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			warning := resp.Header.Get("Warning")
			if resp.StatusCode != tc.code || !strings.Contains(string(body), tc.want) || !strings.Contains(warning, tc.warning) || tc.warning == "" && warning != "" {
				t.Errorf("%d %s (warning %q), want %d %s (warning %q)", resp.StatusCode, body, warning, tc.code, tc.want, tc.warning)
			}
		})
	}
}
