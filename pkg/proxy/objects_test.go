// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
)

// world is the expected content of objects: which services exist, and the service of each slice.
type world struct {
	services map[string]bool
	slices   map[string]string
}

func (w world) list() (services, endpointSlices []any) {
	for name := range w.services {
		services = append(services, aService(name))
	}
	for name, of := range w.slices {
		endpointSlices = append(endpointSlices, aSlice(name, of))
	}
	return services, endpointSlices
}

func aService(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}
}

func aSlice(name, of string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: of}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
}

// names returns the names of a service's slices.
func (w world) names(of string) []string {
	var out []string
	for name, s := range w.slices {
		if s == of {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// TestObjects calls the caches in random order, as reflectors do. It checks that the content is
// that of the last calls, and that every changed service was noted.
func TestObjects(t *testing.T) {
	some := func(kind string) *rapid.Generator[string] {
		return rapid.Map(rapid.IntRange(0, 3), func(i int) string { return fmt.Sprint(kind, i) })
	}
	rapid.Check(t, func(t *rapid.T) {
		d := newDirty(time.Time{})
		// The caches do not run; the test calls their methods itself.
		o := newObjects("here", fake.NewClientset(), d, clock.Real(), slog.New(slog.DiscardHandler))
		w := world{services: map[string]bool{}, slices: map[string]string{}}
		seen := world{services: map[string]bool{}, slices: map[string]string{}} // the state at the last call of Take
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"service": func(t *rapid.T) {
				name := some("s").Draw(t, "name")
				w.services[name] = true
				must(o.services.Update(aService(name)))
			},
			"delete service": func(t *rapid.T) {
				name := some("s").Draw(t, "name")
				delete(w.services, name)
				must(o.services.Delete(aService(name)))
			},
			"service without cluster IP": func(t *rapid.T) {
				name := some("s").Draw(t, "name")
				delete(w.services, name)
				s := aService(name)
				s.Spec.Type = corev1.ServiceTypeExternalName
				must(o.services.Update(s))
			},
			"slice": func(t *rapid.T) {
				name, of := some("e").Draw(t, "name"), some("s").Draw(t, "of")
				w.slices[name] = of
				must(o.slices.Add(aSlice(name, of)))
			},
			"delete slice": func(t *rapid.T) {
				name := some("e").Draw(t, "name")
				must(o.slices.Delete(aSlice(name, w.slices[name])))
				delete(w.slices, name)
			},
			"list": func(t *rapid.T) {
				w = world{
					services: rapid.MapOf(some("s"), rapid.Just(true)).Draw(t, "services"),
					slices:   rapid.MapOf(some("e"), some("s")).Draw(t, "slices"),
				}
				services, endpointSlices := w.list()
				if rapid.Bool().Draw(t, "converted") { // converts the object first, as a reflector does for a streamed list
					for i := range endpointSlices {
						var err error
						endpointSlices[i], err = o.slices.Transformer()(endpointSlices[i])
						must(err)
					}
				}
				must(o.services.Replace(services, ""))
				must(o.slices.Replace(endpointSlices, ""))
			},
			"take": func(t *rapid.T) {
				dirty := d.Take().services
				for i := range 4 {
					name := fmt.Sprint("s", i)
					changed := w.services[name] != seen.services[name] || !slices.Equal(w.names(name), seen.names(name))
					if changed && !dirty[types.NamespacedName{Namespace: "ns", Name: name}] {
						t.Fatalf("%s has changed but was not noted", name)
					}
				}
				seen = world{services: maps.Clone(w.services), slices: maps.Clone(w.slices)}
			},
			"": func(t *rapid.T) {
				for i := range 4 {
					name := fmt.Sprint("s", i)
					svc, list := o.get(types.NamespacedName{Namespace: "ns", Name: name})
					if (svc != nil) != w.services[name] {
						t.Fatalf("service %s: %v, want %v", name, svc, w.services[name])
					}
					var got []string
					for _, s := range list {
						got = append(got, s.Key().Name)
					}
					slices.Sort(got)
					if diff := cmp.Diff(w.names(name), got); diff != "" {
						t.Fatalf("slices of %s (-want +got):\n%s", name, diff)
					}
				}
				if got := o.services.Len(); got != len(w.services) {
					t.Fatalf("%d services, want %d", got, len(w.services))
				}
				if len(o.ofService) > 4 || o.slices.Len() != len(w.slices) {
					t.Fatalf("%d and %d kept", len(o.ofService), o.slices.Len())
				}
			},
		})
	})
}

// TestChangesAreCountedOnce checks that each change of a slice counts as one change, also if it
// changes the slice's service.
func TestChangesAreCountedOnce(t *testing.T) {
	d := newDirty(time.Time{})
	o := newObjects("here", fake.NewClientset(), d, clock.Real(), slog.New(slog.DiscardHandler))
	for i, change := range []func() error{
		func() error { return o.slices.Add(aSlice("e", "s")) },
		func() error { return o.slices.Update(aSlice("e", "other")) },
		func() error { return o.slices.Delete(aSlice("e", "other")) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if n := d.Take().slices; n != 1 {
			t.Errorf("change %d counts as %d", i, n)
		}
	}
}
