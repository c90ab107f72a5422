// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// TestConvert checks the conversions that admission plugins use, for a kind with two versions.
func TestConvert(t *testing.T) {
	convert := registry.InterfacesOf(autoscalers(), known()).GetObjectConvertor()
	meta := metav1.ObjectMeta{Name: "a"}
	v1 := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: meta, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 4},
	}
	v2 := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 5},
	}
	loose := func(kind string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling/v1", "kind": kind, "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"maxReplicas": int64(6)},
		}}
	}
	broken := loose("HorizontalPodAutoscaler")
	broken.Object["spec"] = "none"
	unserved := loose("HorizontalPodAutoscaler")
	unserved.SetAPIVersion("autoscaling/v9")
	for name, tc := range map[string]struct {
		in, out runtime.Object
		most    int32
		text    string
	}{
		"to v1":          {in: v2, out: &autoscalingv1.HorizontalPodAutoscaler{}, most: 5},
		"to v2":          {in: v1, out: &autoscalingv2.HorizontalPodAutoscaler{}, most: 4},
		"same":           {in: v2, out: &autoscalingv2.HorizontalPodAutoscaler{}, most: 5},
		"without a type": {in: loose("HorizontalPodAutoscaler"), out: &autoscalingv2.HorizontalPodAutoscaler{}, most: 6},
		"wrong field": {
			in: broken, out: &autoscalingv2.HorizontalPodAutoscaler{},
			text: "unable to convert unstructured object to autoscaling/v1, Kind=HorizontalPodAutoscaler",
		},
		"version unserved": {in: unserved, out: &autoscalingv2.HorizontalPodAutoscaler{}, text: `not served in version "v9"`},
		"another kind": {
			in: &corev1.Pod{}, out: &autoscalingv2.HorizontalPodAutoscaler{},
			text: "converting (v1.Pod) to (autoscaling.HorizontalPodAutoscaler): unknown conversion",
		},
		"no object": {in: &metav1.Status{}, out: &autoscalingv2.HorizontalPodAutoscaler{}, text: "not objects"},
	} {
		t.Run(name, func(t *testing.T) {
			err := convert.Convert(tc.in, tc.out, nil)
			if tc.text != "" {
				if err == nil || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("error: %v", err)
				}
				return
			}
			var most int32
			switch out := tc.out.(type) {
			case *autoscalingv1.HorizontalPodAutoscaler:
				most = out.Spec.MaxReplicas
			case *autoscalingv2.HorizontalPodAutoscaler:
				most = out.Spec.MaxReplicas
			}
			if err != nil || most != tc.most {
				t.Errorf("maxReplicas %d, %v", most, err)
			}
		})
	}
	_, err := convert.ConvertToVersion(v2, schema.GroupVersion{Group: "autoscaling", Version: "v9"})
	if !runtime.IsNotRegisteredError(err) {
		t.Errorf("a version that is gone: %v", err)
	}
	if _, _, err := convert.ConvertFieldLabel(schema.GroupVersionKind{}, "metadata.name", "x"); err != nil {
		t.Error(err)
	}
}

// TestConvertCustom checks the conversions of custom resources, whose versions have the same form.
func TestConvertCustom(t *testing.T) {
	convert := registry.InterfacesOf(widgets(), known()).GetObjectConvertor()
	in, out := widget("w", "red"), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1"}}
	if err := convert.Convert(in, out, nil); err != nil || out.GetName() != "w" {
		t.Fatal(out, err)
	}
	out.SetName("other")
	if in.GetName() != "w" {
		t.Error("the copy shares the object")
	}
	for text, u := range map[string]*unstructured.Unstructured{
		`example.net/v1, Kind=Widget is unstructured and is not suitable for converting to "example.com/v1"`: with(
			widget("w", ""), "example.net/v1", "apiVersion",
		),
		"request to convert CR from an invalid group/version: example.com/v9": with(
			widget("w", ""), "example.com/v9", "apiVersion",
		),
	} {
		if _, err := convert.ConvertToVersion(
			u, schema.GroupVersion{Group: "example.com", Version: "v1"},
		); err == nil || err.Error() != text {
			t.Errorf("error: %v", err)
		}
	}
}

// TestTwin checks what admission plugins get for a resource whose objects another API group serves
// too: the equivalent resources and their kinds, and conversions in both directions.
func TestTwin(t *testing.T) {
	row, twin := events(), resource.Of[corev1.EventList](resource.Kind[*corev1.Event]{
		Version: "v1", Resource: "events", Kind: "Event", Namespaced: true,
		Subresources: []resource.Sub[*corev1.Event]{{Subresource: resource.Subresource{Name: "status"}}},
		StoredForms: []resource.StoredForm{resource.NewStoredForm(events().GroupVersionKind(),
			func(in *eventsv1.Event, out *corev1.Event) { out.Message = in.Note })},
	})
	row.StoredForms = []resource.StoredForm{resource.NewStoredForm(twin.GroupVersionKind(),
		func(in *corev1.Event, out *eventsv1.Event) { out.Note = in.Message })}
	row.Twin, twin.Twin = twin, row
	o := registry.InterfacesOf(row, known())
	mapper := o.GetEquivalentResourceMapper()
	own, other := row.GroupVersionKind().GroupVersion().WithResource("events"),
		schema.GroupVersionResource{Version: "v1", Resource: "events"}
	for _, gvr := range []schema.GroupVersionResource{own, other} {
		if got := mapper.EquivalentResourcesFor(gvr, ""); !slices.Equal(got, []schema.GroupVersionResource{own, other}) {
			t.Errorf("equivalent resources of %v: %v", gvr, got)
		}
		if got := mapper.EquivalentResourcesFor(gvr, "status"); !slices.Equal(got, []schema.GroupVersionResource{other}) {
			t.Errorf("equivalent resources of the status of %v: %v", gvr, got)
		}
		if got, want := mapper.KindFor(gvr, ""), gvr.GroupVersion().WithKind("Event"); got != want {
			t.Errorf("kind of %v is %v, want %v", gvr, got, want)
		}
	}
	loose := func(version, field string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": "Event", field: "text"}}
	}
	for name, in := range map[string]runtime.Object{
		"own":                 &eventsv1.Event{Note: "text"},
		"twin":                &corev1.Event{Message: "text"},
		"own without a type":  loose("events.k8s.io/v1", "note"),
		"twin without a type": loose("v1", "message"),
	} {
		e, c := &eventsv1.Event{}, &corev1.Event{}
		if err := o.GetObjectConvertor().Convert(in, e, nil); err != nil || e.Note != "text" {
			t.Errorf("%s to own: note %q, %v", name, e.Note, err)
		}
		if err := o.GetObjectConvertor().Convert(in, c, nil); err != nil || c.Message != "text" {
			t.Errorf("%s to twin: message %q, %v", name, c.Message, err)
		}
		out, err := o.GetObjectConvertor().ConvertToVersion(in, own.GroupVersion())
		if e, ok := out.(*eventsv1.Event); err != nil || !ok || e.Note != "text" {
			t.Errorf("%s to version: %+v, %v", name, out, err)
		}
	}
}

// TestInterfaces checks the creator, defaulter and resource mapper that admission plugins get for
// the objects of a resource.
func TestInterfaces(t *testing.T) {
	known := known()
	row := autoscalers()
	row.Subresources = []resource.RowSub{
		{
			Subresource: resource.Subresource{
				Name: "scale", Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
			},
		},
	}
	o := registry.InterfacesOf(row, known)
	v1 := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"}
	for _, kind := range []schema.GroupVersionKind{v1, {Version: "v1", Kind: "Pod"}} {
		if obj, err := o.GetObjectCreater().New(kind); err != nil || obj == nil {
			t.Errorf("new %v: %v", kind, err)
		}
	}
	if _, err := o.GetObjectCreater().New(
		schema.GroupVersionKind{Group: "autoscaling", Version: "v9", Kind: v1.Kind},
	); err == nil {
		t.Error("an object of a version that is not served")
	}
	a := &autoscalingv1.HorizontalPodAutoscaler{}
	if o.GetObjectDefaulter().Default(a); a.Spec.MinReplicas == nil {
		t.Error("no defaults")
	}
	o.GetObjectDefaulter().Default(&corev1.Pod{}) // objects of other kinds stay unchanged
	if o.GetObjectTyper() != known {
		t.Error("another scheme")
	}
	mapper, gvr := o.GetEquivalentResourceMapper(), v1.GroupVersion().WithResource("horizontalpodautoscalers")
	if got := mapper.EquivalentResourcesFor(gvr, ""); len(got) != 2 || !slices.Contains(got, gvr) {
		t.Errorf("equivalent resources %v", got)
	}
	if mapper.KindFor(gvr, "") != v1 || mapper.KindFor(gvr, "scale").Kind != "Scale" {
		t.Errorf("kinds %v and %v", mapper.KindFor(gvr, ""), mapper.KindFor(gvr, "scale"))
	}
	other := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	if mapper.EquivalentResourcesFor(other, "") != nil || !mapper.KindFor(other, "").Empty() {
		t.Error("the row knows another resource")
	}

	o = registry.SchemeInterfaces(known)
	if obj, err := o.GetObjectCreater().New(
		schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
	); err != nil || obj == nil {
		t.Error(err)
	}
	o.GetObjectDefaulter().Default(&corev1.Pod{})
	if o.GetObjectTyper() != known || o.GetEquivalentResourceMapper().EquivalentResourcesFor(other, "") != nil {
		t.Error("the scheme's interfaces know resources")
	}
	out := &corev1.Pod{}
	if err := o.GetObjectConvertor().Convert(pod("p"), out, nil); err != nil || out.Name != "p" {
		t.Error(out, err)
	}
	if err := o.GetObjectConvertor().Convert(pod("p"), &corev1.Node{}, nil); err == nil {
		t.Error("a pod became a node")
	}
}

// TestPrune checks that a field that a plugin adds is dropped before the object is stored if the
// kind does not have this field.
func TestPrune(t *testing.T) {
	row := widgets()
	e := newEnv(t, row, func(c *registry.Config) {
		c.Structure = func(_ string, obj resource.Object, _ bool) ([]error, error) {
			delete(obj.(*unstructured.Unstructured).Object, "extra")
			return nil, nil
		}
		c.Admission = plugin{
			admit: func(_ context.Context, a admission.Attributes) error {
				u := a.GetObject().(*unstructured.Unstructured)
				changed := u.DeepCopy()
				changed.Object["extra"] = "by plugin"
				u.Object = changed.Object
				return nil
			},
			validate: func(_ context.Context, a admission.Attributes) error {
				if a.GetObject().(*unstructured.Unstructured).Object["extra"] == nil {
					t.Error("validating plugins do not see what mutating ones added")
				}
				return nil
			},
		}
	})
	if w := create(t, e, widget("w", "red")); w.Object["extra"] != nil {
		t.Errorf("stored: %v", w)
	}
	rec, _, err := update(
		e, "w", registry.Update{Version: "v1"},
		func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) },
	)
	if w := must[*unstructured.Unstructured](t, rec, err); w.Object["extra"] != nil || w.GetLabels()["a"] != "b" {
		t.Errorf("stored: %v", w)
	}
}

// TestManagerName checks the names of field managers, in particular if the client does not choose
// one.
func TestManagerName(t *testing.T) {
	for name, tc := range map[string]struct{ chosen, agent, want string }{
		"chosen":      {"me", "kubectl/1", "me"},
		"agent":       {"", "kubectl/v1.36 (linux)", "kubectl"},
		"unprintable": {"", "kube\x01ctl/1", "kubectl"},
		"long":        {"", strings.Repeat("é", 100), strings.Repeat("é", 64)},
		"none":        {"", "", ""},
	} {
		if got := registry.ManagerName(registry.WithUserAgent(context.Background(), tc.agent), tc.chosen); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
