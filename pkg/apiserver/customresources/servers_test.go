// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestTwoServers checks that once one server has established a CustomResourceDefinition, the other
// serves it at once, and that both stop serving it when it is deleted.
func TestTwoServers(t *testing.T) {
	one := newEnv(t, testserver.Options{})
	two := newEnv(t, testserver.Options{KV: one.KV, Dir: one.Dir})
	ctx := t.Context()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			doc := strings.NewReplacer("crontab", fmt.Sprint("crontab", i), "CronTab", fmt.Sprint("CronTab", i),
				"[ct]", "[]").Replace(crontabs)
			crd := one.define(t, doc)
			gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: "v1", Resource: crd.Spec.Names.Plural}
			u := crontab(t, "a", `{cronSpec: "*"}`)
			u.SetKind(crd.Spec.Names.Kind)
			if _, err := two.dynamic.Resource(gvr).Namespace("default").Create(ctx, u, metav1.CreateOptions{}); err != nil {
				t.Errorf("through the other server: %v", err)
			}
			if err := two.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, crd.Name,
				metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			one.await(t, crd.Name, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd == nil })
			eventually(t, func() bool {
				_, err := two.dynamic.Resource(gvr).Namespace("default").Get(ctx, "a", metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			})
		})
	}
	wg.Wait()
}

// TestEnd checks that a CustomResourceDefinition that is being deleted stays until its last object
// is gone, and that new objects are rejected meanwhile.
func TestEnd(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	crd := e.define(t, crontabs)
	ctx, tabs := t.Context(), e.dynamic.Resource(crontabResource()).Namespace("default")
	held := crontab(t, "held", `{cronSpec: "*"}`)
	held.SetFinalizers([]string{"example.com/held"})
	if _, err := tabs.Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := tabs.Create(ctx, crontab(t, "free", `{cronSpec: "*"}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch, err := tabs.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, crd.Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for ev := range watch.ResultChan() { // the watch must deliver events while the definition is being deleted
		if ev.Type == "DELETED" {
			break
		}
	}
	if _, err := tabs.Create(ctx, crontab(t, "late", `{cronSpec: "*"}`),
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "create not allowed while custom resource definition is terminating") {
		t.Errorf("created late: %v", err)
	}
	list, err := e.Client.Discovery().ServerResourcesForGroupVersion("stable.example.com/v1")
	if err != nil || fmt.Sprint(list.APIResources[0].Verbs) != "[delete deletecollection get list watch]" {
		t.Errorf("discovered %v: %v", list, err)
	}
	if _, err := tabs.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.await(t, crd.Name, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd == nil })
}

// TestNamesPassOn checks that a CustomResourceDefinition whose names belong to another one gets
// them when the other one is deleted.
func TestNamesPassOn(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	first := e.define(t, crontabs)
	doc := strings.Replace(strings.Replace(crontabs, "name: crontabs.", "name: others.", 1),
		"plural: crontabs, singular: crontab", "plural: others, singular: other", 1)
	second, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(),
		parse[apiextensionsv1.CustomResourceDefinition](t, doc), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.await(t, second.Name, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return condition(crd, apiextensionsv1.NamesAccepted) == "False"
	})
	if _, err := e.Client.Discovery().RESTClient().Get().AbsPath("/apis/stable.example.com/v1/others").DoRaw(
		t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("served without its names: %v", err)
	}
	if err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), first.Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.await(t, second.Name, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return condition(crd, apiextensionsv1.Established) == "True"
	})
}

// condition returns the status of the condition of the given type, or "" if crd has none.
func condition(crd *apiextensionsv1.CustomResourceDefinition,
	kind apiextensionsv1.CustomResourceDefinitionConditionType) string {
	if c := apihelpers.FindCRDCondition(crd, kind); c != nil {
		return string(c.Status)
	}
	return ""
}

// TestChangesUnderLoad checks that requests for custom resources succeed while their definition is
// changed.
func TestChangesUnderLoad(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	crd := e.define(t, crontabs)
	ctx, tabs := t.Context(), e.dynamic.Resource(crontabResource()).Namespace("default")
	var wg sync.WaitGroup
	changed := make(chan struct{})
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-changed:
					return
				default:
				}
				name := fmt.Sprintf("a%d-%d", worker, i)
				if _, err := tabs.Create(ctx, crontab(t, name, `{cronSpec: "*"}`), metav1.CreateOptions{}); err != nil {
					t.Error("create: ", err)
				}
				if _, err := tabs.Get(ctx, name, metav1.GetOptions{}); err != nil {
					t.Error("get: ", err)
				}
				if _, err := tabs.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":1}}`),
					metav1.PatchOptions{}); err != nil {
					t.Error("patch: ", err)
				}
				if err := tabs.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					t.Error("delete: ", err)
				}
			}
		})
	}
	for i := range 30 {
		if _, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, crd.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"names":{"categories":["c%d"]}}}`, i), metav1.PatchOptions{}); err != nil {
			t.Error("definition: ", err)
		}
	}
	close(changed)
	wg.Wait()
}
