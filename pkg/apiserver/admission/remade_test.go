// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// gadgets is the definition of a custom resource with two versions. The schema of v2 has no field
// for replicas, although its scale subresource refers to one.
const gadgets = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.example.com"},"spec":{
	"group":"example.com","scope":"Cluster","names":{"plural":"gadgets","kind":"Gadget"},"versions":[
	{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
	{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object"}}}},
	 "subresources":{"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}}}]}}`

// TestRemadeObjects checks the errors if a mutating webhook replaces the object by one of another
// kind or version, or removes its metadata.
func TestRemadeObjects(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	const path, scaler = "/apis/example.com/v2/gadgets", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
	api := s.Client.CoreV1().RESTClient()
	if err := api.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Body(
		[]byte(gadgets)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gadgets are served", func(ctx context.Context) bool {
		return api.Post().AbsPath(path).Body(
			[]byte(`{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"g"}}`)).Do(ctx).Error() == nil
	})
	other := `[{"op":"replace","path":"","value":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"h"}}}]`
	hooks := []admissionregistrationv1.MutatingWebhook{mutating(h, "first", "*"), mutating(h, "second", "*")}
	for i := range hooks {
		hooks[i].Rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create,
			admissionregistrationv1.Update}
		hooks[i].Rules[0].APIGroups = []string{"example.com", "autoscaling"}
	}
	hooks[0].Rules[0].APIVersions = []string{"v1"} // objects in v2 are converted to v1 for the webhook
	h.on("first", patch(other))
	h.on("second", allow)
	install(t, s, nil, hooks)
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		return api.Patch(types.MergePatchType).AbsPath(path+"/g").Param("dryRun",
			"All").Body([]byte(`{"spec":{"a":1}}`)).Do(ctx).Error() != nil
	})
	for _, test := range []struct{ change, path, want string }{
		{`[{"op":"replace","path":"/kind","value":"Secret"}]`, path + "/g",
			`Secret.example.com "g" is invalid: kind: Invalid value: "Secret": must be Gadget`},
		{`[{"op":"replace","path":"/apiVersion","value":"v1"}]`, path + "/g",
			`Internal error occurred: Internal error occurred: /v1, Kind=Gadget is unstructured and is not ` +
				`suitable for converting to "example.com/v2"`},
		{`[{"op":"replace","path":"/apiVersion","value":"example.com/v9"}]`, path + "/g",
			`Internal error occurred: Internal error occurred: request to convert CR from an invalid ` +
				`group/version: example.com/v9`},
		{`[{"op":"remove","path":"/metadata"}]`, path + "/g", `gadgets.example.com "g" is invalid: ` +
			`metadata.resourceVersion: Invalid value: 0: must be specified for an update`},
		{other, scaler, `converting (v1.ConfigMap) to (autoscaling.HorizontalPodAutoscaler): unknown conversion`},
	} {
		h.on("first", patch(test.change))
		r := api.Patch(types.MergePatchType).AbsPath(test.path).Body([]byte(`{"spec":{"b":1}}`))
		if test.path == scaler {
			r = api.Post().AbsPath(test.path).Body([]byte(`{"metadata":{"name":"h"}}`))
		}
		if err := r.Param("dryRun", "All").Do(t.Context()).Error(); err == nil || err.Error() != test.want {
			t.Errorf("%s\n got %v\nwant %s", test.change, err, test.want)
		}
	}
}

// TestUnscaled scales an object whose schema has no field for replicas. Webhooks and clients get a
// Scale without replicas, which means zero.
func TestUnscaled(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("scale", deny("no"))
	api := s.Client.CoreV1().RESTClient()
	if err := api.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Body(
		[]byte(gadgets)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	install(t, s, []admissionregistrationv1.ValidatingWebhook{
		validating(h, "scale", "gadgets/scale", admissionregistrationv1.Update)}, nil)
	eventually(t, "gadgets are served", func(ctx context.Context) bool {
		return api.Post().AbsPath("/apis/example.com/v2/gadgets").Body(
			[]byte(`{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"g"}}`)).Do(ctx).Error() == nil
	})
	var seen []admissionv1.AdmissionRequest
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		err := api.Patch(types.MergePatchType).AbsPath("/apis/example.com/v2/gadgets/g/scale").Param("dryRun",
			"All").Body([]byte(`{"spec":{"replicas":3}}`)).Do(ctx).Error()
		seen = h.take("scale")
		return err != nil && len(seen) == 1
	})
	if got := string(seen[0].OldObject.Raw); !strings.Contains(got, `"spec":{},"status":{"replicas":0}`) ||
		!strings.Contains(string(seen[0].Object.Raw), `"spec":{"replicas":3}`) {
		t.Errorf("seen %s, before %s", seen[0].Object.Raw, got)
	}
	h.on("scale", allow)
	for _, want := range []string{`"spec":{},"status"`, `"spec":{}}`} {
		r := api.Get().AbsPath("/apis/example.com/v2/gadgets/g")
		if want != `"spec":{}}` {
			r = api.Patch(types.MergePatchType).AbsPath("/apis/example.com/v2/gadgets/g/scale").Body(
				[]byte(`{"spec":{"replicas":3}}`))
		}
		if got, err := r.DoRaw(t.Context()); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("got %s, error %v, want %s", got, err, want)
		}
	}
}

// TestScaleOfAnotherVersion checks that a webhook for the scale subresource in one version is also
// called for requests in another version than the one that its rules name. The webhook gets the
// scale of its own version.
func TestScaleOfAnotherVersion(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("scale", deny("no"))
	api := s.Client.CoreV1().RESTClient()
	const scaled = `"schema":{"openAPIV3Schema":{"type":"object",` +
		`"x-kubernetes-preserve-unknown-fields":true}},"subresources":{"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}}`
	gizmos :=
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gizmos.example.com"},"spec":{
		"group":"example.com","scope":"Cluster","names":{"plural":"gizmos","kind":"Gizmo"},"versions":[
		{"name":"v1","served":true,"storage":true,` + scaled + `},{"name":"v2","served":true,"storage":false,` +
			scaled + `}]}}`
	if err := api.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Body(
		[]byte(gizmos)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	hook := validating(h, "scale", "gizmos/scale", admissionregistrationv1.Update)
	hook.Rules[0].APIVersions = []string{"v1"}
	install(t, s, []admissionregistrationv1.ValidatingWebhook{hook}, nil)
	eventually(t, "gizmos are served", func(ctx context.Context) bool {
		return api.Post().AbsPath("/apis/example.com/v2/gizmos").Body(
			[]byte(`{"apiVersion":"example.com/v2","kind":"Gizmo","metadata":{"name":"g"},"spec":{"n":1}}`)).Do(
			ctx).Error() == nil
	})
	var seen []admissionv1.AdmissionRequest
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		err := api.Patch(types.MergePatchType).AbsPath("/apis/example.com/v2/gizmos/g/scale").Param("dryRun",
			"All").Body([]byte(`{"spec":{"replicas":3}}`)).Do(ctx).Error()
		seen = h.take("scale")
		return err != nil && len(seen) == 1
	})
	if r := &seen[0]; r.Resource.Version != "v1" || r.RequestResource.Version != "v2" ||
		r.Kind.Kind != "Scale" || r.Kind.Group != "autoscaling" || !strings.Contains(string(r.Object.Raw), `"replicas":3`) {
		t.Errorf("seen %v of %v, asked at %v: %s", r.Kind, r.Resource, r.RequestResource, r.Object.Raw)
	}
}
