// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/storageversion"
	"keelson.dev/keelson/pkg/features"
)

// TestKeys checks that after a migration all objects are encrypted with the first key of the
// configuration, so that they can be read after the other key was removed.
func TestKeys(t *testing.T) {
	const (
		a = "secretbox: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}"
		b = "aesgcm: {keys: [{name: b, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}"
		n = 5
	)
	store := memory.New(clock.Real())
	serve := func(keys ...string) *testserver.Server {
		t.Helper()
		text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- " +
			"resources: [secrets]\n  providers:\n"
		for _, k := range keys {
			text += "  - " + k + "\n"
		}
		file := filepath.Join(t.TempDir(), "encryption.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return testserver.Start(t, testserver.Options{KV: store, Configure: func(c *config.Config) {
			c.EncryptionConfig, c.RuntimeConfig = file, map[string]bool{"storagemigration.k8s.io/v1": true}
			c.Features.Turned = features.Turned{features.StorageVersionMigrator: true}
		}})
	}
	before := serve(a)
	for i := range n {
		if _, err := before.Client.CoreV1().Secrets("default").Create(t.Context(), &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s-", i)}, StringData: map[string]string{"a": "b"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before.Stop(t)
	s := serve(b, a)
	controllertest.RunAs(t, s, "storage-version-migrator-controller", controller.Options{}, storageversion.NewMigrator)
	if m := ended(t, s, "", "secrets"); !succeeded(m) {
		t.Fatalf("migration: %+v", m.Status)
	}
	r, err := store.Range(t.Context(), kv.RangeOptions{Prefix: "/registry/secrets/"})
	if err != nil || len(r.Items) != n {
		t.Fatalf("%d secrets, %v", len(r.Items), err)
	}
	for _, item := range r.Items {
		if !bytes.HasPrefix(item.Value, []byte("k8s:enc:aesgcm:v1:b:")) {
			t.Errorf("%s is encrypted as %.30q", item.Key, item.Value)
		}
	}
}
