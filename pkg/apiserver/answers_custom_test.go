// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

// customAnswers are requests about custom resources and their definitions.
func customAnswers() []answer {
	const crd = `{"metadata":{"name":"as.x.example.com"},"spec":{"group":"x.example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},
			"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.a"}],"schema":{"openAPIV3Schema":
			{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string","$ref":"x"}}}}}}}]}}`
	return []answer{
		{"custom resource, selfLink in a dry run", "linked", "PATCH", "/apis/y.example.com/v1/namespaces/{ns}/bs/linked?dryRun=All", `{"metadata":{"selfLink":"/x"}}`,
			200, `"selfLink":"/x"`, ""},
		{"custom resource, selfLink", "linked", "PATCH", "/apis/y.example.com/v1/namespaces/{ns}/bs/linked", `{"metadata":{"selfLink":"/x","labels":{"a":"b"}}}`,
			200, `"name":"linked","namespace":"{ns}","resourceVersion":`, ""},
		{"custom resource without a version", "linked", "PUT", "/apis/y.example.com/v1/namespaces/{ns}/bs/linked", `{"apiVersion":null,"kind":"B","metadata":{"name":"linked"}}`,
			400, `B in version \"\" cannot be handled as a B: .apiVersion accessor error: \u003cnil\u003e is of the type \u003cnil\u003e, expected string`, ""},
		{"custom resource with empty annotations", "linked linkedLabel", "PATCH", "/apis/y.example.com/v1/namespaces/{ns}/bs/linked?fieldManager=f&force=true", `{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"linked","annotations":{}}}`,
			200, `"metadata":{"creationTimestamp"`, ""},
		{"embedded resource without a name", "linked", "PATCH", "/apis/y.example.com/v1/namespaces/{ns}/bs/linked?fieldManager=f", `{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"linked"},"e":{"apiVersion":"v1","kind":"C","metadata":{"name":null,"labels":{"a":"b"}}}}`,
			200, `"metadata":{"labels":{"a":"b"}}},"kind":"B"`, ""},
		{"custom resource, patch of generation", "linked", "PATCH", "/apis/y.example.com/v1/namespaces/{ns}/bs/linked", `{"metadata":{"generation":9}}`,
			200, `,"uid":`, ""},
		{"deprecated version of a custom resource", "", "GET", "/apis/y.example.com/v1beta1/namespaces/{ns}/bs/b", "",
			404, "", "use v1"},
		{"status of a deprecated version without status", "", "GET", "/apis/y.example.com/v1beta1/namespaces/{ns}/bs/b/status", "",
			404, "", "use v1"},
		{"apply null to an integer", "", "PATCH", "/apis/y.example.com/v1/namespaces/{ns}/bs/n?fieldManager=f", `{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"n"},"n":null}`,
			422, `n: Invalid value: \"null\": n in body must be of type integer: \"null\"`, ""},
		{"update of a collection of custom resources", "", "PUT", "/apis/y.example.com/v1/namespaces/{ns}/bs", `{}`,
			400, `"message":"name must be provided"`, ""},
		{"patch of a collection of custom resources", "", "PATCH", "/apis/y.example.com/v1/namespaces/{ns}/bs/", `{}`,
			400, `"message":"name must be provided"`, ""},
		{"create with a name in the path", "", "POST", "/apis/y.example.com/v1/namespaces/{ns}/bs/x", `{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"{ns}"}}`,
			201, "", ""},
		{"duplicate field in a JSON patch", "bs", "PATCH", "/apis/y.example.com/v1/namespaces/{ns}/bs/{ns}?fieldValidation=Strict", `[{"op":"add","path":"/metadata/labels","value":{"a":"1","a":"2"}}]`,
			422, `strict decoding error: json patch duplicate field \"[0].value.a\", duplicate field \"metadata.labels.a\"`, ""},
		{"deprecated watch of a custom resource without a namespace", "bs", "GET", "/apis/y.example.com/v1/watch/bs/{ns}?timeoutSeconds=1", "",
			200, `{"type":"ADDED","object":{"apiVersion":"y.example.com/v1"`, ""},
		{"deprecated watch of a custom resource by POST", "bs", "POST", "/apis/y.example.com/v1/watch/namespaces/{ns}/bs/{ns}?timeoutSeconds=1", "",
			200, `{"type":"ADDED","object":{"apiVersion":"y.example.com/v1"`, ""},
		{"definition with a generateName", "", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.x.example.com","generateName":"x"},"spec":{"group":"x.example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
			422, `metadata.generateName: Invalid value: \"x\": must be spec.names.plural+\".\"+spec.group`, ""},
		{"definition without a schema", "", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.x.example.com"},"spec":{"group":"x.example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{}},{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","nullable":true}}}]}}`,
			422, `[spec.versions[0].schema.openAPIV3Schema: Required value, spec.versions[1].schema.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root]`, ""},
		{"definition without a schema but with selectable fields", "", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.x.example.com"},"spec":{"group":"x.example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},
			"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.a"}],"schema":{}}]}}`,
			422, `is invalid: spec.versions[0].schema.openAPIV3Schema: Required value"`, ""},
		{"definition with a reference in its schema", "", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd,
			422, "$ref is not supported", ""},
	}
}
