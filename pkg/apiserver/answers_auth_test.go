// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

// authAnswers returns the cases of TestAnswers about roles, tokens and reviews.
func authAnswers() []answer {
	return []answer{
		{"order of a role binding's errors", "roleBinding", "PATCH",
			"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{ns}",
			`{"metadata":{"uid":"x"},"roleRef":{"name":""}}`, 422,
			`"field":"metadata.uid"},{"reason":"FieldValueRequired","message":"Required value","field":"roleRef.name"},`,
			""},
		{"role without rules", "", "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
			`{"metadata":{"name":"r"},"rules":[]}`, 201, `"rules":null`, ""},
		{"get a role without rules", "role", "GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/r", "",
			200, `"rules":null`, ""},
		{"role with an invalid finalizer", "role", "PUT",
			"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/r",
			`{"metadata":{"name":"r","finalizers":["b!"]}}`, 422,
			`"field":"metadata.finalizers"},{"reason":"FieldValueInvalid","message":"Invalid value: \"b!\": ` +
				`name is neither a standard finalizer name nor is it fully qualified","field":"metadata.finalizers[0]"}]`,
			""},
		{"access review with metadata", "", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"metadata":{"selfLink":"x","uid":"y"},"spec":{"nonResourceAttributes":{"path":"/x","verb":"get"}}}`,
			201, `"allowed":true`, ""},
		{"token bound to an object without a name", "", "POST", coreAPI + "serviceaccounts/default/token",
			`{"spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1"}}}`, 400,
			`"message":"Name parameter required."`, ""},
		{"token with attestations", "", "POST", coreAPI + "serviceaccounts/default/token",
			`{"spec":{"expirationSeconds":1,"attestations":{"a":["b"]}}}`, 422,
			`spec.attestations: Invalid value: {\"a\":[\"b\"]}: attestations may only be specified with a webhook bound ` +
				`object reference","reason"`, ""},
		{"token bound to a webhook, without attestations", "", "POST", coreAPI + "serviceaccounts/default/token",
			`{"spec":{"audiences":["a","b"],"boundObjectRef":{"kind":"MutatingWebhookConfiguration",` +
				`"apiVersion":"admissionregistration.k8s.io/v1","name":"w"}}}`, 422,
			`[spec.audiences: Invalid value: [\"a\",\"b\"]: must be length 1 when bound to a webhook config, ` +
				`spec.attestations: Invalid value: null: webhook bound requests require exactly one ` +
				`admissionReviewAPIGroups attestation]`, ""},
		{"token bound to a webhook", "", "POST", coreAPI + "serviceaccounts/default/token",
			`{"spec":{"audiences":["a"],"attestations":{"admissionReviewAPIGroups":["apps"]},"boundObjectRef":` +
				`{"kind":"MutatingWebhookConfiguration","apiVersion":"admissionregistration.k8s.io/v1","name":"w"}}}`, 400,
			`cannot bind token to object of type admissionregistration.k8s.io/v1, Kind=MutatingWebhookConfiguration ` +
				`(feature gate APIServerWebhookAuthenticationToken is disabled)`, ""},
		{"token for another uid", "", "POST", coreAPI + "serviceaccounts/default/token", `{"metadata":{"uid":"x"}}`,
			409,
			`Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"default\": the UID in ` +
				`the token request (x) does not match the UID of the service account (`,
			""},
		{"token review with finalizers", "", "POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"metadata":{"finalizers":["a.b/c"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},"spec":{"token":"x"}}`,
			201,
			`{"f:metadata":{"f:finalizers":{".":{},"v:\"a.b/c\"":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"u\"}":{}}},"f:spec":{"f:token":{}}}`,
			""},
		{"review of a blank token", "", "POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"spec":{"token":" "}}`, 201,
			`"status":{"authenticated":true,"user":{"username":"system:anonymous","groups":["system:unauthenticated"]},"audiences":["`,
			""},
		{"review of an unsigned token", "", "POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"spec":{"token":"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9.AAAA"}}`,
			201, `"error":"[invalid bearer token, `, ""},
		{"token review with a namespace", "", "POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"metadata":{"name":"q","namespace":"x"},"spec":{"token":"x"}}`, 201,
			`"metadata":{"name":"q","managedFields"`, ""},
	}
}
