// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/ownership"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv/memory"
)

// start is the time of the registries' clocks when a test begins.
var start = time.Date(2030, time.May, 4, 12, 0, 0, 0, time.UTC)

// known returns the scheme of the built-in kinds, and schemas returns their schemas. Tests do not
// change them.
var (
	known = sync.OnceValue(func() *runtime.Scheme {
		s := runtime.NewScheme()
		utilruntime.Must(scheme.AddToScheme(s))
		return s
	})
	schemas = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(known()) })
)

// env is a registry over a store in memory.
type env struct {
	*registry.Registry
	ctx      context.Context
	clock    *clocktesting.FakeClock
	warnings *[]string
}

// newEnv returns the registry of a resource. The functions in change may change its configuration.
func newEnv(t testing.TB, row *resource.Row, change ...func(*registry.Config)) *env {
	t.Helper()
	running, cancel := context.WithCancel(context.Background())
	backend := store.NewBackend(
		store.BackendConfig{KV: memory.New(clock.Real()), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)},
	)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = backend.Run(running)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	e := &env{clock: clocktesting.NewFakeClock(start), warnings: new([]string)}
	uids := 0
	cfg := registry.Config{
		Scheme: known(), Clock: e.clock, TypeConverter: schemas(), Ownership: ownership.NewTypes(),
		Store: func(row *resource.Row) store.Interface {
			return store.New(store.Config{
				Backend: backend, Prefix: row.StoragePrefix, GroupResource: row.GroupResource(),
				Codec: registry.Codec(row), Attrs: registry.Attrs(row), FinalState: registry.FinalState(row), TTL: row.TTL,
			})
		},
		UID: func() types.UID { uids++; return types.UID("uid-" + strconv.Itoa(uids)) },
	}
	if row.Custom {
		cfg.TypeConverter = nil
	}
	for _, c := range change {
		c(&cfg)
	}
	reg, err := registry.New(row, cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.Registry = reg
	ctx := request.WithUser(running, &user.DefaultInfo{Name: "tester"})
	e.ctx = registry.WithUserAgent(warning.WithWarningRecorder(ctx, recorder{e.warnings}), "tester/1.0")
	return e
}

// recorder records warnings.
type recorder struct{ to *[]string }

func (r recorder) AddWarning(_, text string) { *r.to = append(*r.to, text) }

// must returns the object that a write has stored. It fails the test if the write failed.
func must[T resource.Object](t testing.TB, rec *store.Record, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	obj, err := rec.Object()
	if err != nil {
		t.Fatal(err)
	}
	return obj.(T)
}

// create stores obj in namespace "ns" and returns what is stored.
func create[T resource.Object](t testing.TB, e *env, obj T) T {
	t.Helper()
	rec, err := e.Create(e.ctx, "ns", obj, metav1.CreateOptions{})
	return must[T](t, rec, err)
}

// get returns the stored object, or false if there is none.
func get[T resource.Object](t testing.TB, e *env, name string) (obj T, ok bool) {
	t.Helper()
	rec, err := e.Get(e.ctx, "ns", name, "")
	if apierrors.IsNotFound(err) {
		return obj, false
	}
	return must[T](t, rec, err), true
}

// update updates an object with change. u has the other settings of the update.
func update[T resource.Object](
	e *env, name string, u registry.Update, change func(obj T),
) (*store.Record, bool, error) {
	if e.Row().Namespaced {
		u.Namespace = "ns"
	}
	u.Name = name
	u.Transform = func(_ context.Context, cur resource.Object) (resource.Object, error) {
		obj, ok := cur.(T)
		if !ok {
			obj = e.Row().New().(T)
			obj.SetName(name)
		}
		change(obj)
		return obj, nil
	}
	return e.Update(e.ctx, u)
}

// wantError checks the reason of an error and a part of its text. The reason "" means that there
// must be no error, and "-" that the error must have no Status.
func wantError(t testing.TB, err error, reason metav1.StatusReason, text string) {
	t.Helper()
	if reason == "" {
		if err != nil {
			t.Errorf("error: %v", err)
		}
		return
	}
	if err == nil {
		t.Errorf("no error; want %s: %s", reason, text)
		return
	}
	if reason == "-" {
		reason = metav1.StatusReasonUnknown
	}
	if got := apierrors.ReasonForError(err); got != reason || !strings.Contains(err.Error(), text) {
		t.Errorf("error %s: %v; want %s: %s", got, err, reason, text)
	}
}

// plugin is an admission plugin. Its functions may be nil.
type plugin struct {
	admit, validate func(ctx context.Context, a admission.Attributes) error
}

func (plugin) Handles(admission.Operation) bool { return true }

func (p plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if p.admit == nil {
		return nil
	}
	return p.admit(ctx, a)
}

func (p plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if p.validate == nil {
		return nil
	}
	return p.validate(ctx, a)
}

// log returns a plugin that appends a description of each of its calls to a list.
func log(to *[]string) plugin {
	write := func(step string) func(context.Context, admission.Attributes) error {
		return func(_ context.Context, a admission.Attributes) error {
			has := func(o runtime.Object) string {
				if o == nil {
					return "-"
				}
				return o.(resource.Object).GetName()
			}
			*to = append(
				*to,
				fmt.Sprintf(
					"%s %s %s/%s new=%s old=%s", step, a.GetOperation(), a.GetNamespace(), a.GetName(), has(a.GetObject()),
					has(a.GetOldObject()),
				),
			)
			return nil
		}
	}
	return plugin{write("admit"), write("validate")}
}

func withAdmission(p admission.Interface) func(*registry.Config) {
	return func(c *registry.Config) { c.Admission = p }
}

// configMaps is a kind without rules of its own.
func configMaps(change ...func(*resource.Kind[*corev1.ConfigMap])) *resource.Row {
	k := resource.Kind[*corev1.ConfigMap]{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	for _, c := range change {
		c(&k)
	}
	return resource.Of[corev1.ConfigMapList](k)
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := 0; i+1 < len(data); i += 2 {
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data[data[i]] = data[i+1]
	}
	return c
}

// pods is a kind with graceful deletion. Its default grace period is 30 seconds.
func pods(change ...func(*resource.Kind[*corev1.Pod])) *resource.Row {
	k := resource.Kind[*corev1.Pod]{
		Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true, AllowUnconditionalUpdate: true,
		Fields:           func(p *corev1.Pod) fields.Set { return fields.Set{"spec.nodeName": p.Spec.NodeName} },
		FieldPaths:       []string{"spec.nodeName"},
		SelectableFields: []string{"spec.nodeName"},
		PrepareCreate:    func(_ context.Context, p *corev1.Pod) { p.Generation = 1 },
		GracefulDelete: func(_ context.Context, _ *corev1.Pod, o *metav1.DeleteOptions) bool {
			if o.GracePeriodSeconds == nil {
				o.GracePeriodSeconds = new(int64(30))
			}
			return true
		},
		Subresources: []resource.Sub[*corev1.Pod]{{
			Subresource:   resource.Subresource{Name: "status", View: true},
			PrepareUpdate: func(_ context.Context, p, old *corev1.Pod) { p.Spec = old.Spec },
		}},
	}
	for _, c := range change {
		c(&k)
	}
	return resource.Of[corev1.PodList](k)
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

// deployments is a kind with a status, and with functions for all rules.
func deployments(change ...func(*resource.Kind[*appsv1.Deployment])) *resource.Row {
	k := resource.Kind[*appsv1.Deployment]{
		Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		Default: func(d *appsv1.Deployment) {
			if d.Spec.Replicas == nil {
				d.Spec.Replicas = new(int32(1))
			}
		},
		PrepareCreate: func(_ context.Context, d *appsv1.Deployment) {
			d.Status, d.Generation = appsv1.DeploymentStatus{}, 1
		},
		Validate: func(_ context.Context, d *appsv1.Deployment) field.ErrorList { return checkReplicas(d) },
		PrepareUpdate: func(_ context.Context, d, old *appsv1.Deployment) {
			d.Status = old.Status
			if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
				d.Generation = old.Generation + 1
			}
		},
		ValidateUpdate: func(_ context.Context, d, _ *appsv1.Deployment) field.ErrorList { return checkReplicas(d) },
		Warnings: func(_ context.Context, d, old *appsv1.Deployment) []string {
			if d.Spec.Paused && (old == nil || !old.Spec.Paused) {
				return []string{"spec.paused: the deployment is paused"}
			}
			return nil
		},
		Canonicalize: func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType },
		Subresources: []resource.Sub[*appsv1.Deployment]{
			{
				Subresource:    resource.Subresource{Name: "status", View: true, ResetFields: []string{"spec"}},
				PrepareUpdate:  func(_ context.Context, d, old *appsv1.Deployment) { d.Spec, d.Labels = old.Spec, old.Labels },
				ValidateUpdate: func(_ context.Context, d, _ *appsv1.Deployment) field.ErrorList { return checkStatus(d) },
			},
			{Subresource: resource.Subresource{Name: "scale"}},
		},
	}
	for _, c := range change {
		c(&k)
	}
	return resource.Of[appsv1.DeploymentList](k)
}

func checkReplicas(d *appsv1.Deployment) (errs field.ErrorList) {
	if d.Spec.Replicas != nil && *d.Spec.Replicas < 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "replicas"), *d.Spec.Replicas, "must not be negative"))
	}
	return errs
}

func checkStatus(d *appsv1.Deployment) (errs field.ErrorList) {
	if d.Status.Replicas < 0 {
		errs = append(errs, field.Invalid(field.NewPath("status", "replicas"), d.Status.Replicas, "must not be negative"))
	}
	return errs
}

func deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))},
	}
}

// events is a kind whose objects expire and own no other objects.
func events() *resource.Row {
	return resource.Of[eventsv1.EventList](resource.Kind[*eventsv1.Event]{
		Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true,
		TTL: func(*eventsv1.Event) int64 { return 3600 }, DefaultGarbageCollection: "Unsupported",
	})
}

// autoscalers is a kind that is served in two versions. Its objects are stored in the second one.
func autoscalers() *resource.Row {
	return resource.Of[autoscalingv2.HorizontalPodAutoscalerList](resource.Kind[*autoscalingv2.HorizontalPodAutoscaler]{
		Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler",
		Namespaced:               true,
		AllowUnconditionalUpdate: true,
		Versions: []resource.Version{{Name: "v2"}, {
			Name: "v1", New: func() resource.Object { return &autoscalingv1.HorizontalPodAutoscaler{} },
			Default: func(obj resource.Object) {
				if a := obj.(*autoscalingv1.HorizontalPodAutoscaler); a.Spec.MinReplicas == nil {
					a.Spec.MinReplicas = new(int32(1))
				}
			},
			FromStorage: func(obj resource.Object) (resource.Object, error) {
				a := obj.(*autoscalingv2.HorizontalPodAutoscaler)
				return &autoscalingv1.HorizontalPodAutoscaler{
					ObjectMeta: a.ObjectMeta,
					Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
						MinReplicas: a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas,
					},
				}, nil
			},
			ToStorage: func(obj resource.Object) (resource.Object, error) {
				a := obj.(*autoscalingv1.HorizontalPodAutoscaler)
				return &autoscalingv2.HorizontalPodAutoscaler{
					ObjectMeta: a.ObjectMeta,
					Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
						MinReplicas: a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas,
					},
				}, nil
			},
		}},
	})
}

// asJSON is a codec that stores objects without a Go type as JSON.
type asJSON struct{}

// Lossy implements store.Codec.
func (asJSON) Lossy() bool { return false }

func (asJSON) Encode(obj store.Object) ([]byte, error) {
	u := obj.(*unstructured.Unstructured).DeepCopy()
	u.SetResourceVersion("")
	return u.MarshalJSON()
}

func (asJSON) Decode(data []byte, revision int64) (store.Object, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	u.SetResourceVersion(strconv.FormatInt(revision, 10))
	return u, nil
}

// widgets is a custom resource.
func widgets() *resource.Row {
	return &resource.Row{
		Group: "example.com", Version: "v1", Resource: "widgets", Singular: "widget", Kind: "Widget",
		ListKind: "WidgetList", Namespaced: true,
		Versions: []resource.Version{{Name: "v1"}, {Name: "v2"}}, Custom: true, StoragePrefix: "example.com/widgets",
		Codec:                    asJSON{},
		New:                      func() resource.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		NewList:                  func() runtime.Object { return &unstructured.UnstructuredList{} },
		AllowUnconditionalUpdate: true, SelectableFields: []string{"spec.color"},
		UnknownField: "field label not supported: %[1]s",
		Fields: func(obj resource.Object) fields.Set {
			color, _, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "spec", "color")
			return fields.Set{"spec.color": color}
		},
	}
}

func widget(name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"color": color},
	}}
}

// sameStrings fails the test if two lists differ, also if only the order of their elements does.
func sameStrings(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
