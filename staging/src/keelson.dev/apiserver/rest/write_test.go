// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/rest"
)

const (
	configMaps  = "/api/v1/namespaces/t/configmaps"
	pods        = "/api/v1/namespaces/t/pods"
	deployments = "/apis/apps/v1/namespaces/t/deployments"
	deployment  = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2,` +
		`"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	apply = "application/apply-patch+yaml"
	merge = "application/merge-patch+json"
)

// parse decodes a reply into an object.
func parse[T any](t testing.TB, r reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("%v in %d %s", err, r.code, r.body)
	}
	return v
}

type object struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Data              map[string]string
	Spec              map[string]any
	Status            any
	Code              int
	Message           string
}

// status returns a field of an object's status.
func (o object) status(field string) any {
	m, _ := o.Status.(map[string]any)
	return m[field]
}

func TestGenerateName(t *testing.T) {
	suffixes := []string{"aaaaa", "aaaaa", "aaaaa", "bbbbb"}
	e := newEnv(t, func(c *rest.Config) {
		c.Random = func(int) string {
			s := suffixes[0]
			if len(suffixes) > 1 {
				suffixes = suffixes[1:]
			}
			return s
		}
	})
	for _, want := range []string{"x-aaaaa", "x-bbbbb"} {
		got := parse[object](t, e.must(t, "POST", configMaps, `{"metadata":{"generateName":"x-"}}`))
		if got.Name != want || got.GenerateName != "x-" {
			t.Errorf("name %q, want %q", got.Name, want)
		}
	}
	r := e.do(t, "POST", configMaps, `{"metadata":{"generateName":"x-"}}`)
	if r.code != 409 || !strings.Contains(r.body, "the server was not able to generate a unique name for the object") {
		t.Errorf("exhausted: %d %s", r.code, r.body)
	}
}

// TestSubresources checks that an update of the status does not change the rest of the object, and
// that an update of the object does not change the status.
func TestSubresources(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", deployments, deployment)
	got := parse[object](t,
		e.must(t, "PATCH", deployments+"/d/status", `{"status":{"replicas":1},"spec":{"replicas":9}}`, "Content-Type", merge))
	if got.status("replicas") != 1.0 || got.Spec["replicas"] != 2.0 || got.Generation != 1 {
		t.Errorf("after status: %+v", got)
	}
	got = parse[object](t,
		e.must(t, "PATCH", deployments+"/d", `{"status":{"replicas":7},"spec":{"replicas":3}}`, "Content-Type", merge))
	if got.status("replicas") != 1.0 || got.Spec["replicas"] != 3.0 || got.Generation != 2 {
		t.Errorf("after spec: %+v", got)
	}
	subresources := map[string]bool{}
	for _, f := range got.ManagedFields {
		subresources[f.Subresource] = true
	}
	if !subresources["status"] || !subresources[""] {
		t.Errorf("managedFields %+v", got.ManagedFields)
	}
}

func TestScale(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", deployments, deployment)
	scale := func(method, body, contentType string) object {
		return parse[object](t, e.do(t, method, deployments+"/d/scale", body, "Content-Type", contentType))
	}
	if got := scale("GET", "", ""); got.Kind != "Scale" || got.Spec["replicas"] != 2.0 || got.status("selector") != "a=b" {
		t.Errorf("get: %+v", got)
	}
	if got := scale("PUT", `{"metadata":{"name":"d"},"spec":{"replicas":4}}`,
		"application/json"); got.Spec["replicas"] != 4.0 {
		t.Errorf("put: %+v", got)
	}
	if got := scale("PATCH", `{"spec":{"replicas":5}}`, merge); got.Spec["replicas"] != 5.0 {
		t.Errorf("patch: %+v", got)
	}
	if got := scale("PATCH", `{"spec":{"replicas":-5}}`, merge); got.Code != 422 {
		t.Errorf("negative: %+v", got)
	}
	if got := scale("PUT", `{"metadata":{"name":"d","resourceVersion":"1"},"spec":{"replicas":4}}`,
		"application/json"); got.Code != 409 {
		t.Errorf("stale: %+v", got)
	}
	got := parse[object](t, e.must(t, "GET", deployments+"/d", ""))
	if got.Spec["replicas"] != 5.0 || got.Generation != 3 {
		t.Errorf("object: %+v", got)
	}
	if n := len(got.ManagedFields); n != 2 || got.ManagedFields[0].Subresource != "scale" {
		t.Errorf("managedFields %+v", got.ManagedFields)
	}
}

// TestPatchTypes checks which Content-Type headers of patches are accepted, and that the errors for
// others are those of Kubernetes' router or handler.
func TestPatchTypes(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	const unknown = "application/json-patch+json, application/merge-patch+json, " +
		"application/strategic-merge-patch+json, application/apply-patch+yaml"
	for _, tc := range []struct {
		contentType, body string
		code              int
		want              string
	}{
		{"application/merge-patch+json;a", `{}`, 200, ""},
		{"application/merge-patch+json;a=b;a=c", `{}`, 200, ""},
		{"Application/merge-patch+json", `{}`, 415, "415: Unsupported Media Type"},
		{"application/merge-patch+json ;x", `{}`, 415, unknown},
		{"application/merge-patch+json,a", `{}`, 415, unknown},
		{"application/json-patch+json", `[{"op":1}]`, 400, "Go struct field jsonPatchOp.op of type string"},
		{"application/json-patch+json", `{}`, 400, "Go value of type []handlers.jsonPatchOp"},
	} {
		r := e.do(t, "PATCH", configMaps+"/a", tc.body, "Content-Type", tc.contentType)
		if r.code != tc.code || !strings.Contains(r.body, tc.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tc.contentType, tc.body, r.code, r.body, tc.code, tc.want)
		}
	}
}

// TestApply checks server-side apply: owners, conflicts, force, and the removal of fields that the
// manager no longer applies.
func TestApply(t *testing.T) {
	e := newEnv(t, nil)
	do := func(manager, data string) reply {
		return e.do(t, "PATCH", configMaps+"/a?fieldManager="+manager,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":`+data+`}`, "Content-Type", apply)
	}
	if r := do("one", `{"x":"1","y":"1"}`); r.code != 201 {
		t.Fatalf("create: %d %s", r.code, r.body)
	}
	before := parse[object](t, e.must(t, "GET", configMaps+"/a", ""))
	if r := do("one", `{"x":"1","y":"1"}`); r.code != 200 ||
		parse[object](t, r).ResourceVersion != before.ResourceVersion {
		t.Errorf("the same again wrote: %d %s", r.code, r.body)
	}
	r := do("two", `{"x":"2"}`)
	if r.code != 409 || !strings.Contains(r.body, `conflict with \"one\": .data.x`) ||
		!strings.Contains(r.body, "FieldManagerConflict") {
		t.Errorf("conflict: %d %s", r.code, r.body)
	}
	if r := do("two&force=true", `{"x":"2"}`); r.code != 200 {
		t.Errorf("force: %d %s", r.code, r.body)
	}
	if got := parse[object](t, do("one", `{"z":"3"}`)); len(got.Data) != 2 || got.Data["x"] != "2" ||
		got.Data["z"] != "3" {
		t.Errorf("after removal of x and y: %v", got.Data)
	}
}

// TestConcurrentPatches increments a number with concurrent patches, and checks that no increment
// is lost.
func TestConcurrentPatches(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", configMaps, `{"metadata":{"name":"n"},"data":{"n":"0"}}`)
	const writers, each = 4, 10
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				increment(t, e)
			}
		})
	}
	wg.Wait()
	if got := parse[object](t, e.must(t, "GET", configMaps+"/n", "")); got.Data["n"] != strconv.Itoa(writers*each) {
		t.Errorf("n is %s", got.Data["n"])
	}
}

func increment(t *testing.T, e *env) {
	for {
		cur := parse[object](t, e.do(t, "GET", configMaps+"/n", ""))
		n, err := strconv.Atoi(cur.Data["n"])
		if err != nil {
			t.Error(err)
			return
		}
		r := e.do(t, "PATCH", configMaps+"/n",
			fmt.Sprintf(`[{"op":"test","path":"/data/n","value":"%d"},{"op":"replace","path":"/data/n","value":"%d"}]`, n, n+1),
			"Content-Type", "application/json-patch+json")
		if r.code == 200 {
			return
		}
		if r.code != 422 {
			t.Errorf("patch: %d %s", r.code, r.body)
			return
		}
	}
}

func TestLimits(t *testing.T) {
	e := newEnv(t, func(c *rest.Config) { c.MaxBodyBytes = 1000 })
	r := e.do(t, "POST", configMaps, `{"data":{"x":"`+strings.Repeat("x", 1000)+`"}}`)
	if got := parse[object](t, r); r.code != 413 || got.Message != "Request entity too large: limit is 1000" {
		t.Errorf("%d %s", r.code, r.body)
	}
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	if r := e.do(t, "POST", configMaps, `{"metadata":{"name":"x"},"data":`+deep[:900]+`}`); r.code != 400 {
		t.Errorf("%d %s", r.code, r.body)
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c " +
		"[*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e " +
		"[*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n"
	if r := e.do(t, "POST", configMaps, bomb, "Content-Type", "application/yaml"); r.code != 400 {
		t.Errorf("YAML bomb: %d %.200s", r.code, r.body)
	}
}

// TestVersions checks that an object written in one version can be read in the other.
func TestVersions(t *testing.T) {
	e := newEnv(t, nil)
	base := "/apis/autoscaling/%s/namespaces/t/horizontalpodautoscalers"
	v1, v2 := fmt.Sprintf(base, "v1"), fmt.Sprintf(base, "v2")
	e.must(t, "POST", v1, `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler",`+
		`"metadata":{"name":"h"},"spec":{"maxReplicas":5}}`)
	for path, want := range map[string]string{v1: "autoscaling/v1", v2: "autoscaling/v2"} {
		if got := parse[object](t, e.must(t, "GET", path+"/h", "")); got.APIVersion != want ||
			got.Spec["maxReplicas"] != 5.0 {
			t.Errorf("%s: %+v", path, got)
		}
		r := e.must(t, "PATCH", path+"/h", `{"spec":{"maxReplicas":5}}`, "Content-Type", merge)
		if got := parse[object](t, r); got.APIVersion != want {
			t.Errorf("patched in %s: %+v", path, got)
		}
		if r := e.must(t, "GET", path, ""); !strings.Contains(r.body, `"apiVersion":"`+want+`"`) {
			t.Errorf("list of %s: %s", path, r.body)
		}
		if r := e.must(t, "GET", path+"/h", "", "Accept",
			"application/vnd.kubernetes.protobuf"); !strings.Contains(r.body, want) {
			t.Errorf("protobuf of %s: %q", path, r.body)
		}
	}
	r := e.do(t, "POST", v1, `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"i"}}`)
	if r.code != 400 {
		t.Errorf("wrong version: %d %s", r.code, r.body)
	}
}

// chain is an admission plugin that records its calls, and adds a label to the objects that it
// mutates.
type chain struct {
	mu     sync.Mutex
	asked  []string
	refuse string
}

func (c *chain) Handles(admission.Operation) bool { return true }

func (c *chain) note(what string, a admission.Attributes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, fmt.Sprintf("%s %s %s %s/%s", what, a.GetOperation(), a.GetKind().Kind,
		a.GetNamespace(), a.GetName()))
}

func (c *chain) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	c.note("admit", a)
	if cm, ok := a.GetObject().(*corev1.ConfigMap); ok {
		cm.Labels = map[string]string{"admitted": "yes"}
	}
	return nil
}

func (c *chain) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	c.note("validate", a)
	if a.GetName() == c.refuse {
		return admission.NewForbidden(a, errors.New("not this one"))
	}
	return nil
}

func TestAdmission(t *testing.T) {
	plugin := &chain{refuse: "bad"}
	e := newEnv(t, func(c *rest.Config) { c.Admission = plugin })
	if got := parse[object](t,
		e.must(t, "POST", configMaps, `{"metadata":{"name":"a"}}`)); got.Labels["admitted"] != "yes" {
		t.Errorf("created %+v", got)
	}
	e.must(t, "PATCH", configMaps+"/a", `{"data":{"x":"y"}}`, "Content-Type", merge)
	e.must(t, "DELETE", configMaps+"/a", "")
	want := []string{
		"admit CREATE ConfigMap t/a", "validate CREATE ConfigMap t/a", "admit UPDATE ConfigMap t/a",
		"validate UPDATE ConfigMap t/a",
		"admit DELETE ConfigMap t/a", "validate DELETE ConfigMap t/a",
	}
	if got := strings.Join(plugin.asked, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("asked:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	r := e.do(t, "POST", configMaps, `{"metadata":{"name":"bad"}}`)
	if r.code != 403 || parse[object](t, r).Message != `configmaps "bad" is forbidden: not this one` {
		t.Errorf("%d %s", r.code, r.body)
	}
	if r := e.do(t, "GET", configMaps+"/bad", ""); r.code != 404 {
		t.Errorf("the refused object is there: %d", r.code)
	}
}

// TestHooks checks that the function returned by a hook is called exactly once, with the outcome of
// the write.
func TestHooks(t *testing.T) {
	var log []string
	hooks := resource.Hooks[resource.Object]{
		BeforeCreate: func(_ context.Context, obj resource.Object, dryRun bool) (func(bool), error) {
			log = append(log, fmt.Sprint("begin ", obj.GetName(), dryRun))
			return func(ok bool) { log = append(log, fmt.Sprint("end ", obj.GetName(), ok)) }, nil
		},
		AfterDelete: func(_ context.Context, obj resource.Object) { log = append(log, "deleted "+obj.GetName()) },
	}
	e := newEnv(t, func(c *rest.Config) {
		rowOf(t, c, "configmaps").Hooks = hooks
	})
	e.do(t, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	e.do(t, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	e.do(t, "POST", configMaps+"?dryRun=All", `{"metadata":{"name":"b"}}`)
	e.do(t, "DELETE", configMaps+"/a", "")
	want := "begin a false,end a true,begin a false,end a false,begin b true,end b true,deleted a"
	if got := strings.Join(log, ","); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestCreator checks that the Creator of an ephemeral kind answers POST.
func TestCreator(t *testing.T) {
	e := newEnv(t, func(c *rest.Config) {
		rowOf(t, c, "selfsubjectaccessreviews").Create = &resource.Creator{
			New: func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} },
			Create: func(_ context.Context, _ *resource.Request, obj runtime.Object, _ resource.ValidateFunc,
				_ *metav1.CreateOptions) (runtime.Object, error) {
				review := obj.(*authorizationv1.SelfSubjectAccessReview)
				review.Status.Allowed = true
				return review, nil
			},
		}
	})
	const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	got := parse[object](t, e.must(t, "POST", path, `{"spec":{}}`))
	if got.status("allowed") != true || got.Kind != "SelfSubjectAccessReview" {
		t.Errorf("%+v", got)
	}
	if r := e.do(t, "GET", path, ""); r.code != 405 {
		t.Errorf("GET: %d", r.code)
	}
}

// TestInProcess uses a registry directly, without HTTP, as other parts of the server do.
func TestInProcess(t *testing.T) {
	e := newEnv(t, nil)
	r := e.server.Registry(schema.GroupResource{Resource: "configmaps"})
	ctx := context.Background()
	if _, err := r.Create(ctx, "t", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, created, err := r.Update(ctx, registry.Update{
		Namespace: "t", Name: "a",
		Transform: func(_ context.Context, cur resource.Object) (resource.Object, error) {
			cur.(*corev1.ConfigMap).Data = map[string]string{"x": "y"}
			return cur, nil
		},
	})
	if err != nil || created {
		t.Fatal(created, err)
	}
	rec, err := r.Get(ctx, "t", "a", "")
	if err != nil {
		t.Fatal(err)
	}
	obj, err := rec.Object()
	if err != nil || obj.(*corev1.ConfigMap).Data["x"] != "y" {
		t.Errorf("%+v, %v", obj, err)
	}
	if e.server.Registry(schema.GroupResource{Group: "authorization.k8s.io",
		Resource: "selfsubjectaccessreviews"}) != nil {
		t.Error("an ephemeral kind has a registry")
	}
}
