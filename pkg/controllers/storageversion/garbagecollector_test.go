// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion_test

import (
	"context"
	"testing"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/api/apiserverinternal"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/storageversion"
	"keelson.dev/keelson/pkg/features"
)

// TestServersThatGo checks that an API server's entry is kept as long as its lease exists, and that
// leases of other components do not count.
func TestServersThatGo(t *testing.T) {
	s := start(t, features.StorageVersionAPI, "internal.apiserver.k8s.io/v1alpha1")
	ctx, versions, leases := t.Context(), s.Client.InternalV1alpha1().StorageVersions(),
		s.Client.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease := func(name, identity string) {
		t.Helper()
		if _, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"apiserver.kubernetes.io/identity": identity},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tell := func(name string, servers ...string) {
		t.Helper()
		v, err := versions.Create(ctx,
			&apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range servers {
			v.Status.StorageVersions = append(v.Status.StorageVersions, apiserverinternalv1alpha1.ServerStorageVersion{
				APIServerID: id, EncodingVersion: "a.b/v-" + id, DecodableVersions: []string{"a.b/v-" + id},
			})
		}
		apiserverinternal.Agree(v, time.Now())
		if _, err := versions.UpdateStatus(ctx, v, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// servers waits until a StorageVersion has exactly the entries of the servers in want, or is
	// deleted if want is empty.
	servers := func(name string, want ...string) {
		t.Helper()
		controllertest.Eventually(t, name, func(ctx context.Context) (any, bool) {
			v, err := versions.Get(ctx, name, metav1.GetOptions{})
			if err != nil || len(want) == 0 {
				return err, len(want) == 0 && apierrors.IsNotFound(err)
			}
			ok := len(v.Status.StorageVersions) == len(want)
			for i := range min(len(want), len(v.Status.StorageVersions)) {
				ok = ok && v.Status.StorageVersions[i].APIServerID == want[i]
			}
			return v.Status, ok && (len(want) == 1) == (v.Status.CommonEncodingVersion != nil)
		})
	}
	lease("one", "kube-apiserver")
	lease("two", "kube-apiserver")
	lease("other", "something-else")
	tell("a.b.both", "one", "two")
	tell("a.b.twos", "two")
	tell("a.b.others", "other")
	tell("a.b.some", "one", "nobody")
	// Wait, because the server writes its own entry some time after it has started to serve.
	controllertest.Eventually(t, "core.pods", func(ctx context.Context) (any, bool) {
		v, err := versions.Get(ctx, "core.pods", metav1.GetOptions{})
		return err, err == nil && len(v.Status.StorageVersions) == 1
	})
	controllertest.RunAs(t, s, "storage-version-garbage-collector", controller.Options{},
		storageversion.NewGarbageCollector)
	servers("a.b.others")
	servers("a.b.some", "one")
	servers("a.b.both", "one", "two")
	if err := leases.Delete(ctx, "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	servers("a.b.both", "one")
	servers("a.b.twos")
	if v, err := versions.Get(ctx, "core.pods", metav1.GetOptions{}); err != nil || len(v.Status.StorageVersions) != 1 {
		t.Errorf("entry of a running server: %+v, %v", v, err)
	}
}
