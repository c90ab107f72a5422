// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"slices"
	"strings"
	"testing"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
)

// pairs are the functions of this package with their counterparts in apimachinery.
var pairs = map[string][2]func(string) []string{
	"IsDNS1123Label":           {IsDNS1123Label, validation.IsDNS1123Label},
	"IsDNS1123Subdomain":       {IsDNS1123Subdomain, validation.IsDNS1123Subdomain},
	"IsQualifiedName":          {IsQualifiedName, validation.IsQualifiedName},
	"IsValidLabelValue":        {IsValidLabelValue, validation.IsValidLabelValue},
	"IsConfigMapKey":           {IsConfigMapKey, validation.IsConfigMapKey},
	"IsValidPortName":          {IsValidPortName, validation.IsValidPortName},
	"NameIsDNSSubdomain":       {with(NameIsDNSSubdomain, false), with(apivalidation.NameIsDNSSubdomain, false)},
	"NameIsDNSSubdomainPrefix": {with(NameIsDNSSubdomain, true), with(apivalidation.NameIsDNSSubdomain, true)},
	"NameIsDNSLabel":           {with(NameIsDNSLabel, false), with(apivalidation.NameIsDNSLabel, false)},
	"NameIsDNSLabelPrefix":     {with(NameIsDNSLabel, true), with(apivalidation.NameIsDNSLabel, true)},
}

func with(f func(string, bool) []string, prefix bool) func(string) []string {
	return func(s string) []string { return f(s, prefix) }
}

// parts are joined to names that are valid or nearly valid.
var parts = []string{
	"", "a", "b", "z", "0", "9", "A", "Z", "-", "--", "_", ".", "..", "/", "-a", "a-", "web", "example.com",
	"kubernetes.io/", "é", "\n", " ", "\x00", "\xff", "`", "{", "@", "[", ":",
	strings.Repeat("a", 14), strings.Repeat("b", 62), strings.Repeat("c", 63), strings.Repeat("d.", 120),
	strings.Repeat("e", 252),
}

func compare(t interface {
	Helper()
	Errorf(string, ...any)
}, s string,
) (refused int) {
	t.Helper()
	for name, pair := range pairs {
		got, want := pair[0](s), pair[1](s)
		if !slices.Equal(got, want) {
			t.Errorf("%s(%q): %q, want %q", name, s, got, want)
		}
		if len(want) > 0 {
			refused++
		}
	}
	return refused
}

// TestShort tries all names of one, two and three parts.
func TestShort(t *testing.T) {
	for _, a := range parts {
		for _, b := range parts {
			compare(t, a+b)
			for _, c := range parts[:28] {
				compare(t, a+c+b)
			}
		}
	}
}

func TestLikeApimachinery(t *testing.T) {
	outcomes := map[int]int{}
	rapid.Check(t, func(t *rapid.T) {
		outcomes[compare(t, strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 8).Draw(t, "parts"), ""))]++
	})
	if !testing.Short() && (outcomes[0] == 0 || outcomes[len(pairs)] == 0) { // a short run may not have both results
		t.Errorf("refused by how many: %v", outcomes)
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range parts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { compare(t, s) })
}

// TestSuspect checks that apimachinery finds the same errors in an object and in its Suspect.
func TestSuspect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom(append([]string{"x", "y", "w"}, parts...)), 1, 3),
			func(s []string) string { return strings.Join(s, "") })
		obj := &metav1.ObjectMeta{
			Name: "a", Namespace: "b",
			Labels:      rapid.MapOfN(text, text, 0, 3).Draw(t, "labels"),
			Annotations: rapid.MapOfN(text, text, 0, 3).Draw(t, "annotations"),
		}
		if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
			obj.Annotations = map[string]string{"a": strings.Repeat("x", apivalidation.TotalAnnotationSizeLimitB)}
		}
		say := func(o metav1.Object) []string {
			var all []string
			for _, err := range append(apivalidation.ValidateObjectMetaAccessor(o, true, NameIsDNSSubdomain,
				field.NewPath("metadata")),
				apivalidation.ValidateObjectMetaAccessorUpdate(o, obj, field.NewPath("metadata"))...) {
				all = append(all, err.Error())
			}
			slices.Sort(all) // sorted, because maps have no order
			return all
		}
		if got, want := say(Suspect{obj}), say(obj); !slices.Equal(got, want) {
			t.Fatalf("got %q\nwant %q", got, want)
		}
	})
}

func BenchmarkNames(b *testing.B) {
	for name, f := range pairs["IsQualifiedName"] {
		b.Run([]string{"naming", "apimachinery"}[name], func(b *testing.B) {
			for b.Loop() {
				if f("app.kubernetes.io/managed-by") != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}
