// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// TestConflict checks that after a Conflict error an object counts neither as rewritten nor as
// refused, and that a retry writes it.
func TestConflict(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	what := &target{gvr: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"},
		gvk: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}}
	client := fake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Thing"},
		ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default", ResourceVersion: "7"},
	})
	writes := 0
	client.PrependReactor("patch", "things", func(clienttesting.Action) (bool, runtime.Object, error) {
		if writes++; writes == 1 {
			return true, nil, apierrors.NewConflict(what.gvr.GroupResource(), "one", nil)
		}
		return true, &metav1.PartialObjectMetadata{}, nil
	})
	c := &migrator{Deps: controller.Deps{Metadata: client}}
	try := func() (o *objects, refused, err error) {
		t.Helper()
		if o, err = c.objects(t.Context(), what, "10"); err != nil {
			t.Fatal(err)
		}
		refused, err = c.migrate(t.Context(), what, o)
		return o, refused, err
	}
	o, refused, err := try()
	if refused != nil || !apierrors.IsConflict(err) {
		t.Errorf("with a conflict: refused %v, error %v", refused, err)
	}
	if got, want := runningMessage(o, err), "The migration is running, 1/1 objects not yet migrated; transient error: "+
		err.Error(); got != want {
		t.Errorf("with a conflict: %q, want %q", got, want)
	}
	if o, refused, err = try(); refused != nil || err != nil || writes != 2 {
		t.Errorf("the second time: refused %v, error %v, %d writes", refused, err, writes)
	}
	if got, want := runningMessage(o, nil), "The migration is running, 1 objects verified migrated"; got != want {
		t.Errorf("the second time: %q, want %q", got, want)
	}
}

// TestRunningMessage checks the message if the resource has no objects.
func TestRunningMessage(t *testing.T) {
	if got := runningMessage(&objects{}, nil); got != "The migration is running" {
		t.Error(got)
	}
}
