// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api"
)

// rows runs check in a subtest for every row of the kind table.
func rows(t *testing.T, check func(t *testing.T, row *resource.Row)) {
	t.Helper()
	all := api.Rows(api.Deps{})
	if len(all) < 60 {
		t.Fatalf("the table has %d rows", len(all))
	}
	for _, row := range all {
		t.Run(row.Group+"/"+row.Resource, func(t *testing.T) { check(t, row) })
	}
}

func TestRowsAreComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	rows(t, func(t *testing.T, row *resource.Row) {
		key := row.Group + "/" + row.Resource
		if seen[key] {
			t.Error("declared twice")
		}
		seen[key] = true
		if row.Kind == "" || row.Singular == "" || row.StoragePrefix == "" || len(row.Versions) == 0 ||
			row.Versions[0].Name == "" {
			t.Errorf("incomplete: %+v", row)
		}
		if kind := reflect.TypeOf(row.New()).Elem().Name(); kind != row.Kind {
			t.Errorf("New makes a %s, the row says %s", kind, row.Kind)
		}
		if row.NewList() == nil {
			t.Error("no list")
		}
		if row.Ephemeral && !slices.Contains(row.Verbs, "create") && !slices.Contains(row.Verbs, "list") {
			t.Errorf("an ephemeral row with verbs %v", row.Verbs)
		}
		for _, s := range row.Subresources {
			if s.Name == "" || len(s.Verbs) == 0 {
				t.Errorf("subresource %+v", s)
			}
			if s.View && s.PrepareUpdate == nil {
				t.Errorf("subresource %s updates everything", s.Name)
			}
			if (s.Name == "scale") != (s.Scale != nil) {
				t.Errorf("subresource %s and its Scale do not agree", s.Name)
			}
		}
	})
}

func TestStoragePrefixesDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, row := range api.Rows(api.Deps{}) {
		if row.Ephemeral || row.Group == "events.k8s.io" { // stored as events of the core group
			continue
		}
		if other, ok := seen[row.StoragePrefix]; ok {
			t.Errorf("%s and %s are stored in one place", other, row.Resource)
		}
		seen[row.StoragePrefix] = row.Resource
	}
}

func TestSelectableFieldsAreThere(t *testing.T) {
	t.Parallel()
	rows(t, func(t *testing.T, row *resource.Row) {
		if row.Fields == nil {
			if len(row.SelectableFields) > 0 {
				t.Error("selectable fields without values")
			}
			return
		}
		for name := range maps.Keys(row.Fields(row.New())) {
			if !slices.Contains(row.SelectableFields, name) {
				t.Errorf("%s has a value but cannot be selected by", name)
			}
		}
	})
}

// env is a cell environment that prints the same text for every age.
var env = resource.CellEnv{Age: func(metav1.Time) string { return "age" }}

func TestCellsFitColumns(t *testing.T) {
	t.Parallel()
	rows(t, func(t *testing.T, row *resource.Row) {
		if (row.Columns == nil) != (row.Cells == nil) {
			t.Fatal("columns without cells, or cells without columns")
		}
		if row.Cells == nil {
			return
		}
		fill := filler(row)
		for i := range 30 {
			obj := row.New()
			if i > 0 {
				fill.Fill(obj)
			}
			if row.Default != nil {
				row.Default(obj)
			}
			want := len(row.Columns)
			if row.Resource == "ipaddresses" {
				want++ // like Kubernetes, a printed row has a cell for the age, but there is no column for it
			}
			if cells := row.Cells(obj, env); len(cells) != want {
				t.Fatalf("%d cells for %d columns: %v", len(cells), len(row.Columns), cells)
			}
		}
	})
}

// filler returns a generator of random objects of the kind that row declares. It always generates
// the same objects.
func filler(row *resource.Row) *randfill.Filler {
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(serializer.CodecFactory) []any {
		return []any{
			// A schema contains schemas. If the generator filled every level, it would not end.
			func(s *apiextensionsv1.JSONSchemaProps, c randfill.Continue) {
				s.Type, s.Description = c.String(8), c.String(8)
				s.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}}
				s.Properties = map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "object"}, "b": {Type: "string"}}
			},
			// Definitions are stored in an older version, which supports webhooks only with a
			// client configuration.
			func(w *apiextensionsv1.WebhookConversion, c randfill.Continue) {
				c.FillNoCustom(w)
				w.ClientConfig = &apiextensionsv1.WebhookClientConfig{CABundle: []byte("x")}
			},
			func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte(`{"a":"b"}`) },
			func(v *metav1.FieldsV1, _ randfill.Continue) { v.Raw = []byte(`{"f:a":{}}`) },
		}
	})
	seed := int64(len(row.Resource))
	return fuzzer.FuzzerFor(funcs, rand.NewSource(seed), serializer.NewCodecFactory(clientscheme.Scheme)).NilChance(0.4)
}

// TestRoundTrip stores random objects with defaults and reads them back. The objects must be
// unchanged. It does the same with JSON in place of the stored form.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rows(t, func(t *testing.T, row *resource.Row) {
		if row.Ephemeral {
			return
		}
		fill, codec := filler(row), registry.Codec(row)
		for range 20 {
			obj := row.New()
			fill.Fill(obj)
			obj.SetResourceVersion("")
			obj.SetSelfLink("")
			obj = sent(t, row, obj)
			if row.Default != nil {
				row.Default(obj)
			}
			text, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			again := row.New()
			if err := json.Unmarshal(text, again); err != nil {
				t.Fatal(err)
			}
			same(t, row, "JSON", obj, again)
			data, err := codec.Encode(obj)
			if err != nil {
				t.Fatal(err)
			}
			stored, err := codec.Decode(data, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range data {
				data[i] ^= 0xff // a caller may overwrite the bytes once Decode has returned
			}
			same(t, row, "storage", obj, stored)
		}
	})
}

// sent returns an object as it is decoded from its JSON, so that fields that clients do not send,
// such as empty lists, are unset.
func sent(t *testing.T, row *resource.Row, obj resource.Object) resource.Object {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	out := row.New()
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func same(t *testing.T, row *resource.Row, how string, want, got resource.Object) {
	t.Helper()
	if row.Default != nil {
		row.Default(got)
	}
	got.GetObjectKind().SetGroupVersionKind(want.GetObjectKind().GroupVersionKind())
	if equality.Semantic.DeepEqual(want, got) {
		return
	}
	a, errA := json.Marshal(want)
	b, errB := json.Marshal(got)
	if errA == nil && errB == nil && string(a) == string(b) {
		return // the JSON of an empty list can be the same as that of a missing list
	}
	t.Fatalf("%s changes the object:\n%s", how, cmp.Diff(string(a), string(b)))
}

// TestStrategiesDoNotPanic calls all functions of each row of the kind table with random objects, to
// find functions that panic. Most of these objects are invalid.
func TestStrategiesDoNotPanic(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rows(t, func(t *testing.T, row *resource.Row) {
		fill := filler(row)
		for range 60 {
			obj, old := row.New(), row.New()
			fill.Fill(obj)
			fill.Fill(old)
			for _, o := range []resource.Object{obj, old} {
				if row.Default != nil {
					row.Default(o)
				}
				if row.PrepareCreate != nil {
					row.PrepareCreate(ctx, o)
				}
			}
			if row.Validate != nil {
				row.Validate(ctx, obj)
			}
			if row.PrepareUpdate != nil {
				row.PrepareUpdate(ctx, obj, old)
			}
			if row.ValidateUpdate != nil {
				row.ValidateUpdate(ctx, obj, old)
			}
			for _, s := range row.Subresources {
				changed := row.New()
				fill.Fill(changed)
				if s.PrepareUpdate != nil {
					s.PrepareUpdate(ctx, changed, old)
				}
				if s.ValidateUpdate != nil {
					s.ValidateUpdate(ctx, changed, old)
				}
			}
		}
	})
}

func TestScaleReadsWhatItWrites(t *testing.T) {
	t.Parallel()
	n := 0
	rows(t, func(t *testing.T, row *resource.Row) {
		for _, s := range row.Subresources {
			if s.Scale == nil {
				continue
			}
			n++
			obj := row.New()
			s.Scale.Set(obj, 7)
			if spec, _, _, err := s.Scale.Get(obj); err != nil || spec != 7 {
				t.Errorf("wrote 7, read %d, %v", spec, err)
			}
			if !strings.HasPrefix(s.Scale.SpecPath, "spec.") {
				t.Errorf("path %q", s.Scale.SpecPath)
			}
		}
	})
	if n != 4 {
		t.Errorf("%d kinds can be scaled, want 4", n)
	}
}

func TestGracefulDelete(t *testing.T) {
	t.Parallel()
	var pods *resource.Row
	for _, row := range api.Rows(api.Deps{}) {
		if row.Group == "" && row.Resource == "pods" {
			pods = row
		}
	}
	seconds := func(n int64) *int64 { return &n }
	cases := map[string]struct {
		pod  corev1.Pod
		asks *int64
		want int64
	}{
		"AsItAsks": {corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: seconds(30)}}, nil, 30},
		"AsAsked": {corev1.Pod{
			Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: seconds(30)}}, seconds(5), 5},
		"Unscheduled": {corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: seconds(30)}}, nil, 0},
		"Ended": {corev1.Pod{
			Spec:   corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: seconds(30)},
			Status: corev1.PodStatus{Phase: corev1.PodFailed}}, nil, 0},
		"Negative": {corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: seconds(-1)}}, nil, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			options := &metav1.DeleteOptions{GracePeriodSeconds: c.asks}
			if !pods.GracefulDelete(context.Background(), &c.pod, options) {
				t.Fatal("goes at once")
			}
			if *options.GracePeriodSeconds != c.want {
				t.Errorf("%d seconds, want %d", *options.GracePeriodSeconds, c.want)
			}
		})
	}
}
