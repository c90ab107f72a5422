// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

const (
	jsonPatch = types.JSONPatchType
	merge     = types.MergePatchType
	strategic = types.StrategicMergePatchType
	apply     = types.ApplyYAMLPatchType
)

// TestPatch patches a stored deployment with each type of patch, and checks the result or the
// error.
func TestPatch(t *testing.T) {
	strict := metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}
	ignore := metav1.PatchOptions{FieldValidation: metav1.FieldValidationIgnore}
	dry := metav1.PatchOptions{DryRun: []string{"All"}}
	for name, tc := range map[string]struct {
		kind        types.PatchType
		data        string
		subresource string
		version     string
		absent      bool // the deployment to patch does not exist
		options     metav1.PatchOptions
		reason      metav1.StatusReason
		text        string
		warning     string
		replicas    int32 // wanted replicas; 1 before the patch
		status      int32
	}{
		"JSON": {
			kind: jsonPatch, data: `[{"op":"replace","path":"/spec/replicas","value":3}]`, replicas: 3,
		},
		"JSON, test fails": {
			kind: jsonPatch, data: `[{"op":"test","path":"/spec/replicas","value":7}]`, reason: metav1.StatusReasonInvalid,
			text: "the server rejected our request due to an error in our request",
		},
		"JSON, not a patch": {
			kind: jsonPatch, data: `{"a"`, reason: metav1.StatusReasonBadRequest, text: "unexpected end of JSON input",
		},
		"JSON, invalid object": {
			kind: jsonPatch, data: `[{"op":"replace","path":"/spec/replicas","value":"x"}]`,
			reason: metav1.StatusReasonInvalid,
			text:   "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
		},
		"JSON, unknown field": {
			kind: jsonPatch, data: `[{"op":"add","path":"/spec/color","value":"x"}]`, warning: `unknown field "spec.color"`,
			replicas: 1,
		},
		"JSON, other kind": {
			kind: jsonPatch, data: `[{"op":"replace","path":"/kind","value":"ReplicaSet"}]`,
			reason: metav1.StatusReasonInvalid, text: "converting (v1.ReplicaSet) to (apps.Deployment): unknown conversion",
		},
		"JSON, unknown kind": {
			kind: jsonPatch, data: `[{"op":"replace","path":"/kind","value":"Nothing"}]`, reason: metav1.StatusReasonInvalid,
			text: `no kind "Nothing" is registered for version "apps/v1" in scheme`,
		},
		"JSON, no version": {
			kind: jsonPatch, data: `[{"op":"remove","path":"/apiVersion"}]`, reason: metav1.StatusReasonBadRequest,
			text: "name must be provided", warning: `unknown field "metadata"; unknown field "spec"; unknown field "status"`,
		},
		"JSON, no version/strict": {
			kind: jsonPatch, data: `[{"op":"remove","path":"/apiVersion"}]`, options: strict,
			reason: metav1.StatusReasonInvalid,
			text:   `strict decoding error: unknown field "metadata", unknown field "spec", unknown field "status"`,
		},
		"JSON, version no string": {
			kind: jsonPatch, data: `[{"op":"replace","path":"/apiVersion","value":3}]`, reason: metav1.StatusReasonInvalid,
			text: "couldn't get version/kind; json parse error",
		},
		"JSON, absent": {
			kind: jsonPatch, data: `[]`, absent: true, reason: metav1.StatusReasonNotFound,
			text: `deployments.apps "absent" not found`,
		},
		"merge": {kind: merge, data: `{"spec":{"replicas":3}}`, replicas: 3},
		"merge, unknown field": {
			kind: merge, data: `{"spec":{"replicas":3,"color":"red"}}`, warning: `unknown field "spec.color"`, replicas: 3,
		},
		"merge, unknown, strict": {
			kind: merge, data: `{"spec":{"color":"red"}}`, options: strict, reason: metav1.StatusReasonInvalid,
			text: `strict decoding error: unknown field "spec.color"`,
		},
		"merge, unknown, ignored": {kind: merge, data: `{"spec":{"replicas":3,"color":"red"}}`, options: ignore, replicas: 3},
		"merge, old revision": {
			kind: merge, data: `{"metadata":{"resourceVersion":"1"},"spec":{"replicas":3}}`,
			reason: metav1.StatusReasonConflict, text: "the object has been modified",
		},
		"merge, another name": {
			kind: merge, data: `{"metadata":{"name":"x"}}`, reason: metav1.StatusReasonBadRequest,
			text: "the name of the object (x) does not match the name on the URL (d)",
		},
		"merge, no name": {
			kind: merge, data: `{"metadata":{"name":null}}`, reason: metav1.StatusReasonBadRequest,
			text: "the name of the object (d based on URL) was undeterminable: name must be provided",
		},
		"merge, other namespace": {
			kind: merge, data: `{"metadata":{"namespace":"x"}}`, reason: metav1.StatusReasonBadRequest,
			text: "the namespace of the provided object does not match the namespace sent on the request",
		},
		"merge, dry run": {kind: merge, data: `{"spec":{"replicas":3}}`, options: dry, replicas: 3},
		"merge, default": {kind: merge, data: `{"spec":{"replicas":null}}`, replicas: 1},
		"merge, status": {
			kind: merge, subresource: "status", data: `{"status":{"replicas":2},"spec":{"replicas":9}}`, replicas: 1,
			status: 2,
		},
		"merge, no status": {kind: merge, data: `{"status":{"replicas":2}}`, replicas: 1},
		"merge, invalid": {
			kind: merge, data: `{"spec":{"replicas":-2}}`, reason: metav1.StatusReasonInvalid,
			text: "spec.replicas: Invalid value: -2",
		},
		"merge, no subresource": {kind: merge, subresource: "nothing", data: `{}`, reason: metav1.StatusReasonNotFound},
		"merge, no version": {
			kind: merge, version: "v7", data: `{}`, reason: "-", text: `deployments.apps is not served in version "v7"`,
		},
		"strategic": {
			kind: strategic, data: `{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			replicas: 3,
		},
		"strategic, directive": {
			kind: strategic,
			data: `{"spec":{"replicas":3,"template":{"spec":{"containers":[{"$patch":"delete","name":"c"}]}}}}`, replicas: 3,
		},
		"strategic, unknown": {
			kind: strategic, data: `{"spec":{"replicas":3,"color":"red"}}`, warning: `unknown field "spec.color"`, replicas: 3,
		},
		"strategic, invalid": {
			kind: strategic, data: `{"spec":{"replicas":"x"}}`, reason: metav1.StatusReasonInvalid,
			text: "unrecognized type: int32",
		},
		"strategic, absent": {kind: strategic, data: `{}`, absent: true, reason: metav1.StatusReasonNotFound},
		"apply": {
			kind: apply, options: metav1.PatchOptions{FieldManager: "me", Force: new(true)},
			data: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":3}}`, replicas: 3,
		},
		"apply, YAML": {
			kind: apply, options: metav1.PatchOptions{FieldManager: "me", Force: new(true)},
			data: "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  replicas: 3\n", replicas: 3,
		},
		"apply, conflict": {
			kind: apply, options: metav1.PatchOptions{FieldManager: "me"},
			data:   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":3}}`,
			reason: metav1.StatusReasonConflict, text: `conflict with "tester" using apps/v1: .spec.replicas`,
		},
		"apply, YAML conflict": {
			kind: apply, options: metav1.PatchOptions{FieldManager: "me"},
			data:   "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  replicas: 3\n",
			reason: metav1.StatusReasonConflict, text: `conflict with "tester" using apps/v1: .spec.replicas`,
		},
		"apply, same value": {
			kind: apply, options: metav1.PatchOptions{FieldManager: "me"},
			data: "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  replicas: 1\n  " +
				"template:\n    spec:\n      containers: []\n",
			replicas: 1,
		},
		"apply, not YAML": {
			kind: apply, options: metav1.PatchOptions{FieldManager: "me"}, data: "{", reason: metav1.StatusReasonBadRequest,
			text: "error decoding patch",
		},
		"apply, field twice": {
			kind: apply, options: metav1.PatchOptions{FieldManager: "me", Force: new(true)},
			data:    "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  replicas: 2\n  replicas: 3\n",
			warning: `line 7: key "replicas" already set in map`, replicas: 3,
		},
		"apply, twice, strict": {
			kind: apply, options: metav1.PatchOptions{FieldManager: "me", Force: new(true), FieldValidation: "Strict"},
			data:   "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  replicas: 2\n  replicas: 3\n",
			reason: metav1.StatusReasonBadRequest, text: "error strict decoding patch",
		},
		"apply, creates": {
			kind: apply, absent: true, options: metav1.PatchOptions{FieldManager: "me"},
			data:     `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"absent"},"spec":{"replicas":3}}`,
			replicas: 3,
		},
		"apply, absent uid": {
			kind: apply, absent: true, options: metav1.PatchOptions{FieldManager: "me"},
			data:   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"absent","uid":"x"}}`,
			reason: metav1.StatusReasonConflict,
			text:   "uid mismatch: the provided object specified uid x, and no existing object was found",
		},
		"unknown type": {
			kind: "application/riddle", data: `{}`, reason: "-", text: "application/riddle: unimplemented patch type",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, deployments())
			d := deployment("d")
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
			old := create(t, e, d)
			p := registry.Patch{
				Namespace: "ns", Name: "d", Subresource: tc.subresource, Version: tc.version, Type: tc.kind,
				Data: []byte(tc.data), Options: tc.options,
			}
			if tc.absent {
				p.Name = "absent"
			}
			rec, created, err := e.Patch(e.ctx, p)
			wantError(t, err, tc.reason, tc.text)
			if warnings := strings.Join(*e.warnings, "; "); warnings != tc.warning {
				t.Errorf("warnings: %s", warnings)
			}
			if err != nil {
				return
			}
			d = must[*appsv1.Deployment](t, rec, err)
			if *d.Spec.Replicas != tc.replicas || d.Status.Replicas != tc.status || created != tc.absent {
				t.Errorf("created %v, replicas %d, status %d", created, *d.Spec.Replicas, d.Status.Replicas)
			}
			if stored, _ := get[*appsv1.Deployment](t, e, p.Name); len(tc.options.DryRun) > 0 &&
				stored.ResourceVersion != old.ResourceVersion {
				t.Error("a dry run was stored")
			}
		})
	}
}

// TestApplyOwners checks which manager owns which fields after creates, updates and applies, and
// that an apply that changes nothing is not stored.
func TestApplyOwners(t *testing.T) {
	config := func(manager, data string) registry.Patch {
		return registry.Patch{
			Namespace: "ns", Name: "c", Type: apply, Options: metav1.PatchOptions{FieldManager: manager},
			Data: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{` + data + `}}`),
		}
	}
	for name, change := range map[string]func(*registry.Config){
		"keeper": func(*registry.Config) {}, "apimachinery": func(c *registry.Config) { c.Ownership = nil },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, configMaps(), change)
			rec, created, err := e.Patch(e.ctx, config("one", `"a":"1","b":"1"`))
			first := must[*corev1.ConfigMap](t, rec, err)
			if !created {
				t.Error("the apply does not create")
			}
			e.clock.Step(1)
			rec, _, err = e.Patch(e.ctx, config("one", `"a":"1","b":"1"`))
			if again := must[*corev1.ConfigMap](t, rec, err); again.ResourceVersion != first.ResourceVersion {
				t.Error("an apply without change was stored")
			}
			_, _, err = e.Patch(e.ctx, config("two", `"a":"2"`))
			wantError(t, err, metav1.StatusReasonConflict, `Apply failed with 1 conflict: conflict with "one": .data.a`)
			if _, _, err = e.Patch(e.ctx, config("two", `"a":"1"`)); err != nil {
				t.Fatal(err)
			}
			// Both managers own a, so a stays when the manager "one" no longer applies it. Only
			// "one" owns b, so b is removed.
			rec, _, err = e.Patch(e.ctx, config("one", `"c":"1"`))
			if c := must[*corev1.ConfigMap](t, rec, err); len(c.Data) != 2 || c.Data["a"] != "1" || c.Data["c"] != "1" {
				t.Errorf("data %v", c.Data)
			}
			rec, _, err = update(
				e, "c", registry.Update{Options: metav1.UpdateOptions{FieldManager: "three"}},
				func(c *corev1.ConfigMap) { c.Data["a"] = "3" },
			)
			c := must[*corev1.ConfigMap](t, rec, err)
			owners := map[string]string{}
			for _, f := range c.ManagedFields {
				owners[f.Manager] = string(f.FieldsV1.GetRawBytes())
			}
			if owners["three"] != `{"f:data":{"f:a":{}}}` || owners["one"] != `{"f:data":{"f:c":{}}}` || owners["two"] != "" {
				t.Errorf("owners %v", owners)
			}
		})
	}
	e := newEnv(t, configMaps(), func(c *registry.Config) { c.TypeConverter = nil })
	_, _, err := e.Patch(e.ctx, config("one", `"a":"1"`))
	wantError(t, err, "-", "server-side apply needs managed fields, which are not kept for this resource")
	if c := create(t, e, configMap("d", "a", "1")); c.ManagedFields != nil {
		t.Errorf("managedFields %v", c.ManagedFields)
	}
}

// TestPatchVersion patches an object in a version that is not its storage version, and with a patch
// that changes the version.
func TestPatchVersion(t *testing.T) {
	e := newEnv(t, autoscalers())
	a := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3},
	}
	if rec, err := e.CreateIn(e.ctx, "v1", "ns", a, metav1.CreateOptions{}); err != nil || rec == nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		version string
		kind    types.PatchType
		data    string
		text    string
		most    int32
		least   *int32
	}{
		"v1, merge":     {version: "v1", kind: merge, data: `{"spec":{"maxReplicas":4}}`, most: 4, least: new(int32(1))},
		"v1, strategic": {version: "v1", kind: strategic, data: `{"spec":{"maxReplicas":5}}`, most: 5, least: new(int32(1))},
		"v2 by v1": {
			version: "v1", kind: jsonPatch,
			data: `[{"op":"replace","path":"/apiVersion","value":"autoscaling/v2"},{"op":"replace",` +
				`"path":"/spec/maxReplicas","value":6}]`,
			most: 6, least: new(int32(1)),
		},
		"v1 by v2": {
			version: "v2", kind: merge, data: `{"apiVersion":"autoscaling/v1","spec":{"maxReplicas":7}}`, most: 7,
			least: new(int32(1)),
		},
		"v1, apply": {
			version: "v1", kind: apply, most: 8, least: new(int32(1)),
			data: `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},` +
				`"spec":{"maxReplicas":8}}`,
		},
		"apply of another version": {
			version: "v2", kind: apply,
			data: `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"}}`,
			text: "invalid object type: autoscaling/v1, Kind=HorizontalPodAutoscaler",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := registry.Patch{Namespace: "ns", Name: "a", Version: tc.version, Type: tc.kind, Data: []byte(tc.data)}
			if tc.kind == apply {
				p.Options = metav1.PatchOptions{FieldManager: "me", Force: new(true)}
			}
			rec, _, err := e.Patch(e.ctx, p)
			if tc.text != "" {
				if err == nil || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("error %v", err)
				}
				return
			}
			if a := must[*autoscalingv2.HorizontalPodAutoscaler](t, rec, err); a.Spec.MaxReplicas != tc.most ||
				a.Spec.MinReplicas == nil || *a.Spec.MinReplicas != *tc.least {
				t.Errorf("spec %+v", a.Spec)
			}
		})
	}
	rec, _, err := e.Update(e.ctx, registry.Update{Namespace: "ns", Name: "a", Version: "v1", Transform: func(
		_ context.Context, cur resource.Object,
	) (resource.Object, error) {
		cur.(*autoscalingv2.HorizontalPodAutoscaler).Spec.MaxReplicas = 9
		return cur, nil
	}})
	a = must[*autoscalingv2.HorizontalPodAutoscaler](t, rec, err)
	if !slices.ContainsFunc(a.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.APIVersion == "autoscaling/v1" && f.Manager == "tester" && strings.Contains(
			string(f.FieldsV1.GetRawBytes()), `"f:maxReplicas"`,
		)
	}) {
		t.Errorf("owners %v", a.ManagedFields)
	}
}

// TestPatchCustom patches objects without a Go type.
func TestPatchCustom(t *testing.T) {
	structure := func(_ string, obj resource.Object, unknown bool) ([]error, error) {
		u := obj.(*unstructured.Unstructured).Object
		if _, ok := u["broken"]; ok {
			return nil, errors.New("it is broken")
		}
		if _, ok := u["extra"]; ok && unknown {
			return []error{errors.New(`unknown field "extra"`)}, nil
		}
		return nil, nil
	}
	for name, tc := range map[string]struct {
		kind       types.PatchType
		data       string
		validation string
		reason     metav1.StatusReason
		text       string
		warning    string
		color      string
	}{
		"merge": {kind: merge, data: `{"spec":{"color":"blue"}}`, color: "blue"},
		"JSON":  {kind: jsonPatch, data: `[{"op":"add","path":"/spec/color","value":"green"}]`, color: "green"},
		"finding": {
			kind: merge, data: `{"extra":1,"spec":{"color":"blue"}}`, warning: `unknown field "extra"`, color: "blue",
		},
		"finding, strict": {
			kind: merge, data: `{"extra":1}`, validation: "Strict", reason: metav1.StatusReasonInvalid,
			text: `unknown field "extra"`,
		},
		"broken": {kind: merge, data: `{"broken":1}`, reason: metav1.StatusReasonInvalid, text: "it is broken"},
		"field twice": {
			kind: jsonPatch, data: `[{"op":"add","path":"/spec","value":{"color":"a","color":"b"}}]`,
			warning: `json patch duplicate field "[0].value.color"; duplicate field "spec.color"`, color: "b",
		},
		"other kind": {
			kind: merge, data: `{"kind":"Gadget"}`, reason: metav1.StatusReasonInvalid,
			text: "kind: Invalid value: \"Gadget\": must be Widget",
		},
		"no kind": {
			kind: merge, data: `{"kind":null}`, reason: metav1.StatusReasonInvalid, text: "Object 'Kind' is missing",
		},
		"no version": {
			kind: merge, data: `{"apiVersion":null}`, reason: metav1.StatusReasonInternalError,
			text: "object has no apiVersion field",
		},
		"strategic": {
			kind: strategic, data: `{"spec":{"color":"a"}}`, reason: metav1.StatusReasonBadRequest,
			text: "strategic merge patch format is not supported",
		},
		"apply without any": {kind: apply, data: `{}`, reason: "-", text: "server-side apply needs managed fields"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, widgets(), func(c *registry.Config) { c.Structure = structure })
			create(t, e, widget("w", "red"))
			p := registry.Patch{
				Namespace: "ns", Name: "w", Type: tc.kind, Data: []byte(tc.data),
				Options: metav1.PatchOptions{FieldValidation: tc.validation},
			}
			rec, _, err := e.Patch(e.ctx, p)
			wantError(t, err, tc.reason, tc.text)
			if warnings := strings.Join(*e.warnings, "; "); warnings != tc.warning {
				t.Errorf("warnings: %s", warnings)
			}
			if err != nil {
				return
			}
			w := must[*unstructured.Unstructured](t, rec, err)
			if color, _, _ := unstructured.NestedString(w.Object, "spec", "color"); color != tc.color {
				t.Errorf("color %s", color)
			}
		})
	}
}

// TestPatchRaw checks that a patch rewrites values without a type (runtime.RawExtension) as
// Kubernetes does.
func TestPatchRaw(t *testing.T) {
	row := resource.Of[resourcev1.ResourceClaimList](resource.Kind[*resourcev1.ResourceClaim]{
		Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims", Kind: "ResourceClaim", Namespaced: true,
		AllowUnconditionalUpdate: true,
	})
	for name, tc := range map[string]struct {
		kind types.PatchType
		want string
	}{"merge": {merge, `{"b":1,"a":2}`}, "strategic": {strategic, `{"a":2,"b":1}`}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, row)
			c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
			parameters := resourcev1.DeviceConfiguration{
				Opaque: &resourcev1.OpaqueDeviceConfiguration{
					Driver: "d", Parameters: runtime.RawExtension{Raw: []byte(`{ "b": 1, "a": 2 }`)},
				},
			}
			c.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: parameters}, {}}
			create(t, e, c)
			rec, _, err := e.Patch(
				e.ctx,
				registry.Patch{Namespace: "ns", Name: "c", Type: tc.kind, Data: []byte(`{"metadata":{"labels":{"a":"b"}}}`)},
			)
			c = must[*resourcev1.ResourceClaim](t, rec, err)
			if got := string(c.Spec.Devices.Config[0].Opaque.Parameters.Raw); got != tc.want || c.Labels["a"] != "b" {
				t.Errorf("parameters %s, labels %v", got, c.Labels)
			}
		})
	}
}
