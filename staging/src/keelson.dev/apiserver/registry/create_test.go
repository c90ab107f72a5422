// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store/kv"
)

// TestCreate checks which objects a create stores, and which creates are rejected.
func TestCreate(t *testing.T) {
	meta := func(change func(*metav1.ObjectMeta)) *corev1.ConfigMap {
		c := configMap("new")
		change(&c.ObjectMeta)
		return c
	}
	for name, tc := range map[string]struct {
		row       *resource.Row
		namespace string // "ns" if empty
		obj       resource.Object
		options   metav1.CreateOptions
		reason    metav1.StatusReason
		text      string
		check     func(t *testing.T, obj resource.Object)
	}{
		"server fields": {obj: meta(func(m *metav1.ObjectMeta) {
			m.UID, m.SelfLink, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = "mine", "/self",
				&metav1.Time{Time: start}, new(int64(3))
			m.CreationTimestamp = metav1.Unix(1, 0)
		}), check: func(t *testing.T, obj resource.Object) {
			if obj.GetUID() != "uid-2" || !obj.GetCreationTimestamp().Time.Equal(start) || obj.GetSelfLink() != "" ||
				obj.GetDeletionTimestamp() != nil ||
				obj.GetDeletionGracePeriodSeconds() != nil || obj.GetResourceVersion() == "" || obj.GetNamespace() != "ns" {
				t.Errorf("metadata: %+v", obj)
			}
		}},
		"namespace of another path": {obj: meta(
			func(m *metav1.ObjectMeta) { m.Namespace = "other" },
		), reason: metav1.StatusReasonBadRequest,
			text: "the namespace of the provided object does not match the namespace sent on the request"},
		"namespace in a cluster-scoped object": {
			row: configMaps(
				func(k *resource.Kind[*corev1.ConfigMap]) { k.Namespaced = false },
			), obj: meta(func(m *metav1.ObjectMeta) { m.Namespace = "other" }),
			check: func(t *testing.T, obj resource.Object) {
				if obj.GetNamespace() != "" {
					t.Errorf("namespace %q", obj.GetNamespace())
				}
			},
		},
		"no name": {
			obj: configMap(""), reason: metav1.StatusReasonInvalid,
			text: "metadata.name: Required value: name or generateName is required",
		},
		"invalid name": {
			obj: configMap("No"), reason: metav1.StatusReasonInvalid,
			text: `metadata.name: Invalid value: "No": a lowercase RFC 1123 subdomain`,
		},
		"invalid finalizer": {obj: meta(
			func(m *metav1.ObjectMeta) { m.Finalizers = []string{"mine", "kubernetes", "a.b/c"} },
		), reason: metav1.StatusReasonInvalid,
			text: `metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name ` +
				`nor is it fully qualified`},
		"finalizers of a kind that allows any": {
			row: configMaps(
				func(k *resource.Kind[*corev1.ConfigMap]) { k.AnyFinalizer = true },
			), obj: meta(func(m *metav1.ObjectMeta) { m.Finalizers = []string{"mine"} }),
		},
		"taken name": {
			obj: configMap("old"), reason: metav1.StatusReasonAlreadyExists, text: `configmaps "old" already exists`,
		},
		"taken name, dry run": {
			obj: configMap("old"), options: metav1.CreateOptions{DryRun: []string{"All"}},
			reason: metav1.StatusReasonAlreadyExists, text: `configmaps "old" already exists`,
		},
		"resourceVersion": {
			obj: meta(func(m *metav1.ObjectMeta) { m.ResourceVersion = "7" }), reason: "-",
			text: "resourceVersion should not be set on objects to be created",
		},
		"resourceVersion 0":              {obj: meta(func(m *metav1.ObjectMeta) { m.ResourceVersion = "0" })},
		"resourceVersion not a revision": {obj: meta(func(m *metav1.ObjectMeta) { m.ResourceVersion = "x" })},
		"dry run": {obj: meta(
			func(m *metav1.ObjectMeta) { m.ResourceVersion = "7" },
		), options: metav1.CreateOptions{DryRun: []string{"All"}}, check: func(t *testing.T, obj resource.Object) {
			if obj.GetUID() == "" || obj.GetResourceVersion() != "7" {
				t.Errorf("uid %q, resourceVersion %q", obj.GetUID(), obj.GetResourceVersion())
			}
		}},
		"field manager": {obj: configMap("new", "a", "b"), options: metav1.CreateOptions{FieldManager: "me"}, check: func(
			t *testing.T, obj resource.Object,
		) {
			f := obj.GetManagedFields()
			if len(f) != 1 || f[0].Manager != "me" || f[0].Operation != metav1.ManagedFieldsOperationUpdate ||
				string(f[0].FieldsV1.GetRawBytes()) != `{"f:data":{".":{},"f:a":{}}}` {
				t.Errorf("managedFields %v", f)
			}
		}},
		"user agent": {obj: configMap("new", "a", "b"), check: func(t *testing.T, obj resource.Object) {
			if f := obj.GetManagedFields(); len(f) != 1 || f[0].Manager != "tester" {
				t.Errorf("managedFields %v", f)
			}
		}},
		"strategy": {row: deployments(), obj: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "new"}, Status: appsv1.DeploymentStatus{Replicas: 3},
		}, check: func(t *testing.T, obj resource.Object) {
			d := obj.(*appsv1.Deployment)
			if d.Status.Replicas != 0 || d.Generation != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
				t.Errorf("deployment: %+v", d)
			}
		}},
		"invalid": {row: deployments(), obj: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "No"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(-1))},
		},
			reason: metav1.StatusReasonInvalid, text: `Deployment.apps "No" is invalid: [metadata.name: Invalid value`},
		"metadata last": {row: deployments(func(k *resource.Kind[*appsv1.Deployment]) { k.MetaLast = true }),
			obj: &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: "No"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(-1))},
			},
			reason: metav1.StatusReasonInvalid,
			text:   `Deployment.apps "No" is invalid: spec.replicas: Invalid value: -1: must not be negative`},
		"name rule of the kind": {row: configMaps(func(k *resource.Kind[*corev1.ConfigMap]) {
			k.ValidateName = func(name string, _ bool) []string {
				if name == "old" {
					return nil
				}
				return []string{"not today"}
			}
		}), obj: configMap("new"), reason: metav1.StatusReasonInvalid,
			text: `metadata.name: Invalid value: "new": not today`},
		"custom resource": {row: widgets(), obj: widget("new", "red")},
		"custom resource of another kind": {
			row: widgets(), obj: with(widget("new", "red"), "Gadget", "kind"), reason: metav1.StatusReasonInvalid,
			text: `Gadget.example.com "new" is invalid: kind: Invalid value: "Gadget": must be Widget`,
		},
		"custom resource of other version": {
			row: widgets(), obj: with(widget("new", "red"), "example.com/v2", "apiVersion"),
			reason: metav1.StatusReasonInvalid, text: `apiVersion: Invalid value: "example.com/v2": must be example.com/v1`,
		},
		"any finalizer of custom resources": {
			row: widgets(), obj: with(widget("new", "red"), []any{"mine"}, "metadata", "finalizers"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.row == nil {
				tc.row = configMaps()
			}
			e := newEnv(t, tc.row)
			if _, ok := tc.obj.(*corev1.ConfigMap); ok {
				create(t, e, configMap("old"))
			}
			rec, err := e.Create(e.ctx, "ns", tc.obj, tc.options)
			wantError(t, err, tc.reason, tc.text)
			if err != nil {
				return
			}
			obj := must[resource.Object](t, rec, err)
			if tc.check != nil {
				tc.check(t, obj)
			}
			_, stored := get[resource.Object](t, e, obj.GetName())
			if stored != (len(tc.options.DryRun) == 0) {
				t.Errorf("stored: %v", stored)
			}
		})
	}
}

// with sets a field of a custom resource.
func with(u *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
	// All elements of the path except the last are names of maps.
	_ = unstructured.SetNestedField(u.Object, value, path...)
	return u
}

// TestCreateDuringDeletion checks the error message if the name belongs to an object that is being
// deleted.
func TestCreateDuringDeletion(t *testing.T) {
	e := newEnv(t, pods())
	create(t, e, pod("p"))
	if _, gone, err := e.Delete(e.ctx, "ns", "p", metav1.DeleteOptions{}); gone || err != nil {
		t.Fatal(gone, err)
	}
	_, err := e.Create(e.ctx, "ns", pod("p"), metav1.CreateOptions{})
	wantError(t, err, metav1.StatusReasonAlreadyExists, `object is being deleted: pods "p" already exists`)
}

// TestGenerateName checks the suffix of generated names, and how many names are tried if some are
// taken.
func TestGenerateName(t *testing.T) {
	generated := func(prefix string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	}
	suffixes := func(list ...string) (func(*registry.Config), *int) {
		asked := 0
		return func(c *registry.Config) {
			c.Random = func(n int) string {
				s := list[min(asked, len(list)-1)]
				asked++
				if len(s) != n {
					t.Errorf("suffix of length %d", n)
				}
				return s
			}
		}, &asked
	}
	t.Run("retry", func(t *testing.T) {
		random, asked := suffixes("aaaaa", "aaaaa", "bbbbb")
		e := newEnv(t, configMaps(), random)
		if c := create(t, e, generated("x-")); c.Name != "x-aaaaa" || c.GenerateName != "x-" {
			t.Errorf("name %q", c.Name)
		}
		if c := create(t, e, generated("x-")); c.Name != "x-bbbbb" || *asked != 3 {
			t.Errorf("name %q after %d suffixes", c.Name, *asked)
		}
	})
	t.Run("exhausted", func(t *testing.T) {
		random, asked := suffixes("aaaaa")
		e := newEnv(t, configMaps(), random)
		create(t, e, generated("x-"))
		_, err := e.Create(e.ctx, "ns", generated("x-"), metav1.CreateOptions{})
		wantError(
			t, err, metav1.StatusReasonAlreadyExists,
			`configmaps "x-aaaaa" already exists, the server was not able to generate a unique name for the object`,
		)
		if *asked != 1+8 {
			t.Errorf("%d suffixes", *asked)
		}
	})
	t.Run("long prefix", func(t *testing.T) {
		random, _ := suffixes("aaaaa")
		e := newEnv(t, configMaps(), random)
		if c := create(t, e, generated(strings.Repeat("x", 70))); c.Name != strings.Repeat("x", 58)+"aaaaa" {
			t.Errorf("name %q", c.Name)
		}
	})
	t.Run("name wins", func(t *testing.T) {
		e := newEnv(t, configMaps())
		c := generated("x-")
		c.Name = "chosen"
		if c = create(t, e, c); c.Name != "chosen" {
			t.Errorf("name %q", c.Name)
		}
	})
	t.Run("not asked for a random one", func(t *testing.T) {
		e := newEnv(t, configMaps(), func(c *registry.Config) { c.UID = nil })
		if c := create(t, e, generated("x-")); len(c.Name) != 7 || len(c.UID) != 36 {
			t.Errorf("name %q, uid %q", c.Name, c.UID)
		}
	})
}

// TestCreateWarnings checks the kind's own warnings, and the warnings about repeated owner
// references.
func TestCreateWarnings(t *testing.T) {
	e := newEnv(t, deployments())
	d := deployment("d")
	d.Spec.Paused = true
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u", Controller: new(true)}
	d.OwnerReferences = []metav1.OwnerReference{owner, owner, {APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}}
	d = create(t, e, d)
	if len(d.OwnerReferences) != 2 {
		t.Errorf("owners: %v", d.OwnerReferences)
	}
	sameStrings(t, "warnings", *e.warnings, []string{
		".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, " +
			"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u",
		"spec.paused: the deployment is paused",
	})
}

// TestCreateAdmission checks what admission plugins receive, that they can change the object, and
// that they can reject it.
func TestCreateAdmission(t *testing.T) {
	var calls []string
	e := newEnv(t, configMaps(), withAdmission(log(&calls)))
	create(t, e, configMap("a"))
	sameStrings(t, "calls", calls, []string{"admit CREATE ns/a new=a old=-", "validate CREATE ns/a new=a old=-"})

	e = newEnv(t, configMaps(), withAdmission(plugin{
		admit: func(_ context.Context, a admission.Attributes) error {
			a.GetObject().(*corev1.ConfigMap).Data = map[string]string{"set": "by plugin"}
			a.GetObject().(*corev1.ConfigMap).ManagedFields = []metav1.ManagedFieldsEntry{{Operation: "Guess"}}
			return nil
		},
		validate: func(_ context.Context, a admission.Attributes) error {
			if a.GetName() == "bad" {
				return admission.NewForbidden(a, errors.New("bad name"))
			}
			return nil
		},
	}))
	if c := create(
		t, e, configMap("a", "k", "v"),
	); c.Data["set"] != "by plugin" || len(c.ManagedFields) != 1 || c.ManagedFields[0].Manager != "tester" {
		t.Errorf("got %v", c)
	}
	if len(*e.warnings) != 1 || !strings.Contains(
		(*e.warnings)[0], ".metadata.managedFields was in an invalid state after admission",
	) {
		t.Errorf("warnings: %q", *e.warnings)
	}
	_, err := e.Create(e.ctx, "ns", configMap("bad"), metav1.CreateOptions{})
	wantError(t, err, metav1.StatusReasonForbidden, `configmaps "bad" is forbidden: bad name`)

	e = newEnv(
		t, configMaps(),
		withAdmission(plugin{admit: func(context.Context, admission.Attributes) error { return errors.New("no") }}),
	)
	_, err = e.Create(e.ctx, "ns", configMap("a"), metav1.CreateOptions{})
	wantError(t, err, "-", "no")
}

// TestCreateHooks checks that the function returned by BeforeCreate receives the outcome of the
// create. It also checks that AfterCreate runs after successful creates, but not for dry runs.
func TestCreateHooks(t *testing.T) {
	var calls []string
	row := configMaps(func(k *resource.Kind[*corev1.ConfigMap]) {
		k.Hooks.BeforeCreate = func(_ context.Context, c *corev1.ConfigMap, dryRun bool) (func(bool), error) {
			switch c.Name {
			case "refused":
				return nil, apierrors.NewBadRequest("refused")
			case "nothing":
				return nil, nil
			}
			calls = append(calls, fmt.Sprint("before ", c.Name, " dry=", dryRun))
			return func(ok bool) { calls = append(calls, fmt.Sprint("finish ", c.Name, " ", ok)) }, nil
		}
		k.Hooks.AfterCreate = func(_ context.Context, c *corev1.ConfigMap) { calls = append(calls, "after "+c.Name) }
	})
	e := newEnv(t, row)
	create(t, e, configMap("a"))
	create(t, e, configMap("nothing"))
	_, err := e.Create(e.ctx, "ns", configMap("a"), metav1.CreateOptions{})
	wantError(t, err, metav1.StatusReasonAlreadyExists, "")
	_, err = e.Create(e.ctx, "ns", configMap("b"), metav1.CreateOptions{DryRun: []string{"All"}})
	wantError(t, err, "", "")
	_, err = e.Create(e.ctx, "ns", configMap("refused"), metav1.CreateOptions{})
	wantError(t, err, metav1.StatusReasonBadRequest, "refused")
	sameStrings(t, "calls", calls, []string{
		"before a dry=false", "after a", "finish a true", "after nothing",
		"before a dry=false", "finish a false", "before b dry=true", "finish b true",
	})
}

// TestNamespaceCheck checks when a create runs the check of its namespace. If the namespace has
// changed since the check, the create repeats it with the latest state. Some creates do not run it.
func TestNamespaceCheck(t *testing.T) {
	var asked []bool
	closed := false
	check := func(c *registry.Config) {
		c.NamespaceCheck = func(_ context.Context, a admission.Attributes, latest bool) ([]kv.Unchanged, error) {
			asked = append(asked, latest)
			if closed && latest {
				return nil, apierrors.NewForbidden(
					schema.GroupResource{Resource: "configmaps"}, a.GetName(), errors.New("the namespace is being terminated"),
				)
			}
			if !latest {
				// This condition does not hold.
				return []kv.Unchanged{{Key: "namespaces/ns", Revision: 1 << 40}}, nil
			}
			return nil, nil
		}
	}
	e := newEnv(t, configMaps(), check)
	create(t, e, configMap("a"))
	if fmt.Sprint(asked) != "[false true]" {
		t.Errorf("asked for the latest: %v", asked)
	}
	closed = true
	_, err := e.Create(e.ctx, "ns", configMap("b"), metav1.CreateOptions{})
	wantError(t, err, metav1.StatusReasonForbidden, "the namespace is being terminated")
	asked = nil
	if _, err = e.Create(
		e.ctx, "ns", configMap("c"), metav1.CreateOptions{DryRun: []string{"All"}},
	); err != nil || asked != nil {
		t.Errorf("dry run: %v, asked %v", err, asked)
	}
}
