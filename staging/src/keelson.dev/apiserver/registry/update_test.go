// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// TestUpdate checks what an update of a stored deployment changes, and which updates are rejected.
func TestUpdate(t *testing.T) {
	type u = registry.Update
	scale := func(n int32) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Spec.Replicas = &n }
	}
	conditional := func(k *resource.Kind[*appsv1.Deployment]) { k.AllowUnconditionalUpdate = false }
	for name, tc := range map[string]struct {
		row    *resource.Row
		update u
		change func(*appsv1.Deployment)
		reason metav1.StatusReason
		text   string
		check  func(t *testing.T, d, old *appsv1.Deployment)
	}{
		"spec": {change: scale(3), check: func(t *testing.T, d, old *appsv1.Deployment) {
			if *d.Spec.Replicas != 3 || d.Generation != 2 || d.ResourceVersion == old.ResourceVersion {
				t.Errorf("deployment: %+v", d)
			}
		}},
		"nothing": {change: func(*appsv1.Deployment) {}, check: func(t *testing.T, d, old *appsv1.Deployment) {
			if d.ResourceVersion != old.ResourceVersion {
				t.Errorf("resourceVersion %s became %s", old.ResourceVersion, d.ResourceVersion)
			}
		}},
		"system fields": {change: func(d *appsv1.Deployment) {
			d.UID, d.CreationTimestamp, d.Generation, d.SelfLink, d.Namespace = "", metav1.Time{}, 77, "/self", ""
			d.Status.Replicas = 9
		}, check: func(t *testing.T, d, old *appsv1.Deployment) {
			if d.UID != old.UID || !d.CreationTimestamp.Equal(&old.CreationTimestamp) || d.Generation != 1 ||
				d.SelfLink != "" || d.Namespace != "ns" || d.Status.Replicas != 0 {
				t.Errorf("deployment: %+v", d)
			}
		}},
		"another uid": {
			change: func(d *appsv1.Deployment) { d.UID = "other" }, reason: metav1.StatusReasonInvalid,
			text: "metadata.uid: Invalid value: \"other\": field is immutable",
		},
		"another namespace": {
			change: func(d *appsv1.Deployment) { d.Namespace = "other" }, reason: metav1.StatusReasonBadRequest,
			text: "does not match the namespace sent",
		},
		"invalid": {
			change: scale(-1), reason: metav1.StatusReasonInvalid,
			text: `Deployment.apps "d" is invalid: spec.replicas: Invalid value: -1`,
		},
		"old resourceVersion": {
			change: func(d *appsv1.Deployment) { d.ResourceVersion = "1" }, reason: metav1.StatusReasonConflict,
			text: `deployments.apps "d": the object has been modified; please apply your changes to the latest version`,
		},
		"resourceVersion, padded": {change: func(d *appsv1.Deployment) { d.ResourceVersion = "0" + d.ResourceVersion }},
		"resourceVersion, invalid": {
			change: func(d *appsv1.Deployment) { d.ResourceVersion = "x" }, reason: "-", text: "invalid syntax",
		},
		"no resourceVersion": {change: func(d *appsv1.Deployment) { d.ResourceVersion = "" }},
		"no resourceVersion, where it is needed": {row: deployments(conditional),
			change: func(d *appsv1.Deployment) { d.ResourceVersion = "" }, reason: metav1.StatusReasonInvalid,
			text: `deployments.apps "d" is invalid: metadata.resourceVersion: Invalid value: 0: must be ` +
				`specified for an update`},
		"uid precondition": {update: u{
			Preconditions: &metav1.Preconditions{UID: new(types.UID("other"))},
		}, change: scale(3), reason: metav1.StatusReasonConflict,
			text: "StorageError: invalid object, Code: 4, Key: /registry/deployments/ns/d, ResourceVersion: 0, " +
				"AdditionalErrorMsg: Precondition failed: UID in precondition: other, UID in object meta: uid-1"},
		"uid precondition that holds": {
			update: u{Preconditions: &metav1.Preconditions{UID: new(types.UID("uid-1"))}}, change: scale(3),
		},
		"resourceVersion precondition, dry run": {
			update: u{
				Preconditions: &metav1.Preconditions{ResourceVersion: new("1")},
				Options:       metav1.UpdateOptions{DryRun: []string{"All"}},
			}, change: scale(3),
			reason: metav1.StatusReasonConflict,
			text: "Key: /deployments/ns/d, ResourceVersion: 0, " +
				"AdditionalErrorMsg: Precondition failed: ResourceVersion in precondition: 1",
		},
		"dry run": {update: u{
			Options: metav1.UpdateOptions{DryRun: []string{"All"}},
		}, change: scale(3), check: func(t *testing.T, d, old *appsv1.Deployment) {
			if *d.Spec.Replicas != 3 || d.ResourceVersion != old.ResourceVersion {
				t.Errorf("deployment: %+v", d)
			}
		}},
		"status": {update: u{Subresource: "status"}, change: func(d *appsv1.Deployment) {
			d.Status.Replicas, d.Spec.Replicas, d.Labels = 5, new(int32(5)), map[string]string{"a": "b"}
		}, check: func(t *testing.T, d, _ *appsv1.Deployment) {
			if d.Status.Replicas != 5 || *d.Spec.Replicas != 1 || d.Labels != nil || d.Generation != 1 {
				t.Errorf("deployment: %+v", d)
			}
		}},
		"invalid status": {
			update: u{Subresource: "status"}, change: func(d *appsv1.Deployment) { d.Status.Replicas = -1 },
			reason: metav1.StatusReasonInvalid, text: "status.replicas: Invalid value",
		},
		"unknown subresource": {
			update: u{Subresource: "nothing"}, change: scale(3), reason: metav1.StatusReasonNotFound,
			text: `deployments.apps "d" not found`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.row == nil {
				tc.row = deployments()
			}
			e := newEnv(t, tc.row)
			old := create(t, e, deployment("d"))
			rec, created, err := update(e, "d", tc.update, tc.change)
			wantError(t, err, tc.reason, tc.text)
			if err != nil {
				return
			}
			d := must[*appsv1.Deployment](t, rec, err)
			if tc.check != nil {
				tc.check(t, d, old)
			}
			stored, _ := get[*appsv1.Deployment](t, e, "d")
			if dry := len(tc.update.Options.DryRun) > 0; created || (dry && stored.ResourceVersion != old.ResourceVersion) ||
				(!dry && stored.ResourceVersion != d.ResourceVersion) {
				t.Errorf(
					"created %v, stored %s, returned %s, was %s", created, stored.ResourceVersion, d.ResourceVersion,
					old.ResourceVersion,
				)
			}
		})
	}
}

// TestUpdateRefused checks that Update returns the error of the Transform function unchanged, even
// if it is a NotFound error.
func TestUpdateRefused(t *testing.T) {
	e := newEnv(t, configMaps(func(k *resource.Kind[*corev1.ConfigMap]) { k.AllowCreateOnUpdate = true }))
	create(t, e, configMap("c"))
	for _, want := range []*apierrors.StatusError{apierrors.NewGone("gone"), apierrors.NewNotFound(
		schema.GroupResource{Resource: "nodes"}, "n",
	)} {
		_, created, err := e.Update(e.ctx, registry.Update{
			Namespace: "ns", Name: "c",
			Transform: func(context.Context, resource.Object) (resource.Object, error) { return nil, want },
		})
		if created || err != want { //nolint:errorlint // the error must not be wrapped
			t.Errorf("created %v, error %v", created, err)
		}
	}
}

// allow is an authorizer that gives the same decision for every request.
type allow struct {
	decision authorizer.Decision
	err      error
	asked    *authorizer.Attributes
}

func (a allow) Authorize(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	*a.asked = attrs
	return a.decision, "a reason", a.err
}

// TestUpdateAbsent checks which updates create an object that does not exist.
func TestUpdateAbsent(t *testing.T) {
	creates := configMaps(func(k *resource.Kind[*corev1.ConfigMap]) { k.AllowCreateOnUpdate = true })
	type u = registry.Update
	for name, tc := range map[string]struct {
		row       *resource.Row
		update    u
		authorize allow
		version   string
		reason    metav1.StatusReason
		text      string
	}{
		"not created": {
			row: configMaps(), reason: metav1.StatusReasonNotFound, text: `configmaps "c" not found`,
		},
		"created": {row: creates, authorize: allow{decision: authorizer.DecisionAllow}},
		"created, dry run": {
			row: creates, authorize: allow{decision: authorizer.DecisionAllow},
			update: u{Options: metav1.UpdateOptions{DryRun: []string{"All"}}},
		},
		"created for the caller": {row: configMaps(), update: u{CreateAbsent: true},
			authorize: allow{decision: authorizer.DecisionAllow}},
		"not of a subresource": {
			row: deployments(), update: u{CreateAbsent: true, Subresource: "status"}, reason: metav1.StatusReasonNotFound,
			text: `deployments.apps "c" not found`,
		},
		"with a resourceVersion": {row: creates, version: "7", authorize: allow{decision: authorizer.DecisionAllow}},
		"with an invalid one":    {row: creates, version: "x", reason: "-", text: "invalid syntax"},
		"with a uid": {
			row: creates, update: u{Preconditions: &metav1.Preconditions{UID: new(types.UID("other"))}},
			reason: metav1.StatusReasonConflict, text: "Precondition failed: UID in precondition: other, UID in object meta: ",
		},
		"forbidden": {
			row: creates, authorize: allow{decision: authorizer.DecisionNoOpinion}, reason: metav1.StatusReasonForbidden,
			text: `configmaps "c" is forbidden: User "tester" cannot create resource "configmaps" in API group "" ` +
				`in the namespace "ns": a reason`,
		},
		"authorizer fails": {
			row: creates, authorize: allow{decision: authorizer.DecisionDeny, err: errors.New("out of order")},
			reason: metav1.StatusReasonInternalError, text: "out of order",
		},
		"without asking anybody": {
			row: creates, update: u{SkipAdmission: true}, authorize: allow{decision: authorizer.DecisionDeny},
		},
		"forbidden, cluster's scope": {
			row: configMaps(
				func(k *resource.Kind[*corev1.ConfigMap]) { k.AllowCreateOnUpdate, k.Namespaced = true, false },
			),
			authorize: allow{decision: authorizer.DecisionDeny}, reason: metav1.StatusReasonForbidden,
			text: `in API group "" at the cluster scope: a reason`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked authorizer.Attributes
			tc.authorize.asked = &asked
			e := newEnv(t, tc.row, func(c *registry.Config) { c.Authorizer = tc.authorize })
			rec, created, err := update(e, "c", tc.update, func(obj resource.Object) {
				obj.SetResourceVersion(tc.version)
				obj.SetUID("mine")
			})
			wantError(t, err, tc.reason, tc.text)
			if err != nil {
				return
			}
			if c := must[resource.Object](t, rec, err); !created || c.GetUID() != "uid-1" {
				t.Errorf("created %v, uid %s", created, c.GetUID())
			}
			if !tc.update.SkipAdmission &&
				(asked == nil || asked.GetVerb() != "create" || asked.GetName() != "c" || asked.GetNamespace() != "ns") {
				t.Errorf("asked for %+v", asked)
			}
		})
	}
}

// namespaces is a kind whose objects are namespaces. A deleted one is removed when the finalizers
// in its spec are gone.
func namespaces(change ...func(*resource.Kind[*corev1.Namespace])) *resource.Row {
	k := resource.Kind[*corev1.Namespace]{
		Version: "v1", Resource: "namespaces", Kind: "Namespace", NamespaceItself: true, AllowUnconditionalUpdate: true,
		Hooks: resource.Hooks[*corev1.Namespace]{
			KeepOnUpdate: func(n, _ *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 },
			Ending: func(_ context.Context, n *corev1.Namespace) bool {
				if len(n.Spec.Finalizers) == 0 {
					return false
				}
				n.Status.Phase = corev1.NamespaceTerminating
				return true
			},
		},
	}
	for _, c := range change {
		c(&k)
	}
	return resource.Of[corev1.NamespaceList](k)
}

// TestNamespaceItself checks that for a Namespace object, admission receives its own name as the
// namespace, and that hooks keep the object until the finalizers in its spec are gone.
func TestNamespaceItself(t *testing.T) {
	var calls []string
	e := newEnv(t, namespaces(), withAdmission(log(&calls)))
	n := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}},
	}
	if _, err := e.Create(e.ctx, "", n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rec, gone, err := e.Delete(e.ctx, "", "a", metav1.DeleteOptions{})
	if n = must[*corev1.Namespace](t, rec, err); gone || n.Status.Phase != corev1.NamespaceTerminating ||
		n.DeletionTimestamp == nil {
		t.Errorf("gone %v: %+v", gone, n)
	}
	if _, _, err = update(
		e, "a", registry.Update{}, func(n *corev1.Namespace) { n.Labels = map[string]string{"a": "b"} },
	); err != nil {
		t.Fatal(err)
	}
	if _, err = e.Get(e.ctx, "", "a", ""); err != nil {
		t.Fatalf("the namespace is gone: %v", err)
	}
	if _, _, err = update(e, "a", registry.Update{}, func(n *corev1.Namespace) { n.Spec.Finalizers = nil }); err != nil {
		t.Fatal(err)
	}
	if _, err = e.Get(e.ctx, "", "a", ""); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is still there: %v", err)
	}
	for _, c := range calls {
		if !strings.Contains(c, " a/a ") {
			t.Errorf("admission was asked: %s", c)
		}
	}
}

// TestUpdateTogether checks that Transform is called again if another client writes the object
// first.
func TestUpdateTogether(t *testing.T) {
	e := newEnv(t, configMaps(func(k *resource.Kind[*corev1.ConfigMap]) { k.AllowUnconditionalUpdate = true }))
	create(t, e, configMap("c", "n", "0"))
	tries := 0
	rec, _, err := update(e, "c", registry.Update{}, func(c *corev1.ConfigMap) {
		if tries++; tries == 1 {
			if _, _, err := update(
				e, "c", registry.Update{}, func(c *corev1.ConfigMap) { c.Data["other"] = "yes" },
			); err != nil {
				t.Error(err)
			}
		}
		c.Data["n"] = fmt.Sprint(tries)
	})
	if c := must[*corev1.ConfigMap](t, rec, err); tries != 2 || c.Data["n"] != "2" || c.Data["other"] != "yes" {
		t.Errorf("after %d tries: %v", tries, c.Data)
	}
}

// TestUpdateBlind checks that the Transform function of a blind update does not get the current
// object.
func TestUpdateBlind(t *testing.T) {
	e := newEnv(t, configMaps(func(k *resource.Kind[*corev1.ConfigMap]) { k.AllowUnconditionalUpdate = true }))
	create(t, e, configMap("c", "a", "1"))
	rec, _, err := e.Update(e.ctx, registry.Update{
		Namespace: "ns", Name: "c", Blind: true, OwnFields: true,
		Transform: func(_ context.Context, cur resource.Object) (resource.Object, error) {
			if cur != nil {
				t.Errorf("given %v", cur)
			}
			return configMap("c", "a", "2"), nil
		},
	})
	if c := must[*corev1.ConfigMap](t, rec, err); c.Data["a"] != "2" || c.ManagedFields != nil {
		t.Errorf("got %v", c)
	}
}

// TestMetaChecks checks which metadata checks an update repeats, for each value of MetaOnUpdate.
func TestMetaChecks(t *testing.T) {
	for name, tc := range map[string]struct {
		checks resource.MetaChecks
		want   []string // fields with an error
	}{
		"finalizers":          {resource.CheckFinalizers, []string{"metadata.finalizers[0]"}},
		"name and finalizers": {resource.CheckNameAndFinalizers, []string{"metadata.finalizers[0]", "metadata.generateName"}},
		"neither":             {resource.CheckNeither, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, configMaps(func(k *resource.Kind[*corev1.ConfigMap]) {
				k.AllowUnconditionalUpdate, k.MetaOnUpdate = true, tc.checks
			}))
			create(t, e, configMap("c"))
			_, _, err := update(e, "c", registry.Update{}, func(c *corev1.ConfigMap) {
				c.GenerateName, c.Finalizers = "A_", []string{"unqualified"}
			})
			var found []string
			if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
				for _, cause := range status.ErrStatus.Details.Causes {
					found = append(found, cause.Field)
				}
			}
			slices.Sort(found)
			if !slices.Equal(found, tc.want) {
				t.Errorf("findings %q, want %q: %v", found, tc.want, err)
			}
		})
	}
}

// TestFacade checks that in an update through a Facade, admission receives only views of the other
// kind.
func TestFacade(t *testing.T) {
	var calls []string
	e := newEnv(t, deployments(), withAdmission(log(&calls)))
	create(t, e, deployment("d"))
	calls = nil
	shape := func(obj resource.Object) (resource.Object, error) {
		return configMap("shown", "replicas", fmt.Sprint(*obj.(*appsv1.Deployment).Spec.Replicas)), nil
	}
	rec, _, err := e.Update(e.ctx, registry.Update{
		Namespace: "ns", Name: "d", Subresource: "scale", OwnFields: true,
		As: &registry.Facade{
			Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Of: shape,
			Change: func(_ context.Context, cur resource.Object, admit registry.AdmitFunc) (resource.Object, error) {
				before, err := shape(cur)
				if err != nil {
					return nil, err
				}
				if err := admit(configMap("wanted", "replicas", "4"), before); err != nil {
					return nil, err
				}
				cur.(*appsv1.Deployment).Spec.Replicas = new(int32(4))
				return cur, nil
			},
		},
	})
	if d := must[*appsv1.Deployment](t, rec, err); *d.Spec.Replicas != 4 {
		t.Errorf("replicas %d", *d.Spec.Replicas)
	}
	sameStrings(
		t, "calls", calls, []string{"admit UPDATE ns/d new=wanted old=shown", "validate UPDATE ns/d new=shown old=shown"},
	)
}
