// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import "strings"

// batchAnswers returns the cases of TestAnswers about BindingBatch and VerdictBatch, by which a
// scheduler sends many bindings or verdicts in one request. Only this project has these resources,
// so there are no answers of Kubernetes to compare with.
func batchAnswers() []answer {
	const (
		group    = "/apis/scheduling.keelson.dev/v1alpha1"
		bindings = group + "/bindingbatches"
		verdicts = group + "/verdictbatches"
	)
	long := func(n int) string { return `{"reportingController":"` + strings.Repeat("x", n) + `"}` }
	return []answer{
		{"binding batches in discovery", "", "GET", group, "", 200,
			`{"name":"bindingbatches","singularName":"bindingbatch","namespaced":false,"kind":"BindingBatch","verbs":["create"]}`,
			""},
		{"verdict batches in discovery", "", "GET", group, "", 200,
			`{"name":"verdictbatches","singularName":"verdictbatch","namespaced":false,"kind":"VerdictBatch","verbs":["create"]}`,
			""},
		{"path of a binding batch in OpenAPI", "", "GET", "/openapi/v3" + group, "", 200,
			`"` + bindings + `":{"post":`, ""},
		{"schema of a verdict in OpenAPI", "", "GET", "/openapi/v3" + group, "", 200,
			`"dev.keelson.api.scheduling.v1alpha1.Verdict":{`, ""},
		{"APIService of batches", "", "GET",
			"/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.scheduling.keelson.dev", "", 200,
			`"groupPriorityMinimum":1500`, ""},
		{"empty binding batch", "", "POST", bindings, `{}`, 201,
			`{"kind":"BindingBatch","apiVersion":"scheduling.keelson.dev/v1alpha1"}`, ""},
		{"empty verdict batch", "", "POST", verdicts, `{}`, 201,
			`{"kind":"VerdictBatch","apiVersion":"scheduling.keelson.dev/v1alpha1"}`, ""},
		{"batch larger than other bodies", "", "POST", bindings, long(3<<20 + 1), 201, `"kind":"BindingBatch"`, ""},
		{"batch that is too large", "", "POST", bindings, long(4<<20 + 1), 400, `http: request body too large`, ""},
		{"batch in a dry run", "", "POST", bindings + "?dryRun=All", `{}`, 400,
			`bindingbatches does not support the option \"dryRun\"`, ""},
		{"list of batches", "", "GET", bindings, "", 405,
			`the server does not allow this method on the requested resource`, ""},
	}
}
