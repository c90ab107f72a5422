// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

// serverAnswers returns the cases of TestAnswers about the server's own paths, discovery and
// OpenAPI.
func serverAnswers() []answer {
	return []answer{
		{"service range made at the start", "", "GET", networkAPI + "servicecidrs/kubernetes", "", 200,
			`"managedFields":[{"manager":"kubernetes-service-cidr-controller","operation":"Apply","apiVersion":"networking.k8s.io/v1"`,
			""},
		{"DELETE of the aggregator's group", "", "DELETE", "/apis/apiregistration.k8s.io", "", 405,
			`the server does not allow this method on the requested resource`, ""},
		{"DELETE of another group", "", "DELETE", "/apis/apps", "", 200, `"kind":"APIGroup"`, ""},
		{"path below a document", "", "GET", "/version/x", "", 404,
			`"message":"the server could not find the requested resource","reason":"NotFound"`, ""},
		{"slashes after a document", "", "GET", "/version///", "", 200, `"gitVersion"`, ""},
		{"list of debug flags", "", "GET", "/debug/flags", "", 200, "<tr>v<br>\n", ""},
		{"verbosity", "", "PUT", "/debug/flags/v", `4`, 200, "successfully set klog.logging.verbosity to 4\n", ""},
		{"invalid verbosity", "", "PUT", "/debug/flags/v", `x`, 400,
			"strconv.ParseUint: parsing \"x\": invalid syntax\n", ""},
		{"verbosity cannot be read", "", "GET", "/debug/flags/v", "", 406, "unsupported http method\n", ""},
		{"readiness with a list of excluded checks", "", "GET", "/readyz?verbose&exclude=ping,log", "", 200,
			`[+]ping ok`, ""},
		{"readiness with unknown excluded checks", "", "GET", "/readyz?verbose&exclude=ping,log&exclude=", "", 200,
			`no matches for "","ping,log"`, ""},
		{"profile of the command line", "", "GET", "/debug/pprof/cmdline", "", 404, `Unknown profile`, ""},
		{"reset of metrics", "", "DELETE", "/metrics", "", 200, "metrics reset\n", ""},
		{"OpenAPI of a custom resource", "", "GET", "/openapi/v3/apis/y.example.com/v1", "", 200,
			`"title":"Kubernetes CRD Swagger"`, ""},
		{"OpenAPI info", "", "GET", "/openapi/v3/apis/batch/v1", "", 200,
			`{"openapi":"3.0.0","info":{"title":"Kubernetes","version":"`, ""},
		{"kinds of operations in OpenAPI", "", "GET", "/openapi/v3/apis/batch/v1", "", 200,
			`"x-kubernetes-group-version-kind":{"group":"batch","version":"v1","kind":"CronJob"}`, ""},
		{"kinds of DeleteOptions of a custom resource in OpenAPI", "", "GET", "/openapi/v3/apis/y.example.com/v1", "",
			200,
			`"x-kubernetes-group-version-kind":[{"group":"","kind":"DeleteOptions","version":"v1"},{"group":"admissionregistration.k8s.io",`,
			""},
		{"descriptions of a custom resource in OpenAPI", "", "GET", "/openapi/v3/apis/y.example.com/v1", "", 200,
			`"description":"list objects of kind B"`, ""},
		{"export", "", "GET", "/api/v1/namespaces/nope?export=", "", 400,
			`"message":"the export parameter, deprecated since v1.14, is no longer supported","reason":"BadRequest","code":400`,
			""},
		{"export=False", "", "GET", "/api/v1/namespaces/default?export=False", "", 200, `"kind":"Namespace"`, ""},
	}
}
