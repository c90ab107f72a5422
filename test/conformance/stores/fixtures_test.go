// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/test/integration/etcd"
)

// TestFixtures puts upstream's serialized objects, which have a value in every field, into etcd, and
// compares how kube-apiserver and Keelson read them. Validation would reject most of them on create.
func TestFixtures(t *testing.T) {
	needPrograms(t)
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"v1.36.0", "HEAD"} {
		t.Run(dir, func(t *testing.T) {
			s := newStore(t)
			put(t, s, filepath.Join(strings.TrimSpace(string(out)), "testdata", dir))
			beta := "--runtime-config=api/beta=true"
			kube := s.kubernetes(t, v137, beta)
			before := kube.snapshot(t)
			kube.end(t)
			keelson := s.keelson(t, beta)
			after := keelson.snapshot(t)
			for _, snapshot := range []map[id]map[string]any{before, after} {
				for _, object := range snapshot {
					prune(object)
				}
			}
			compare(t, kube, keelson, before, after)
			keelson.end(t)
		})
	}
}

// contradicting are fields whose values in the serialized objects contradict other fields, so that no
// server has stored such objects. kube-apiserver ignores one of two contradicting fields, because its
// internal types have only one field for both, or because it defaults requests to limits.
var contradicting = []string{
	"serviceAccount", "podCIDRs", "podIPs", "limitsKey", "stringData", "stringDataKey",
	"deprecated.daemonset.template.generation",
}

// prune removes contradicting fields from a JSON value.
func prune(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range contradicting {
			delete(value, name)
		}
		for _, v := range value {
			prune(v)
		}
	case []any:
		for _, v := range value {
			prune(v)
		}
	}
}

// put writes the serialized objects of a directory to etcd, one of each resource, with the key and in
// the version that kube-apiserver uses for the resource.
func put(t *testing.T, s *store, dir string) {
	t.Helper()
	keys := storageKeys()
	files, err := filepath.Glob(filepath.Join(dir, "*.pb"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range files {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(file), ".pb"), ".")
		if parts[len(parts)-1] == "after_roundtrip" {
			continue
		}
		group, version, kind := strings.Join(parts[:len(parts)-2], "."), parts[len(parts)-2], parts[len(parts)-1]
		if group == "core" {
			group = ""
		}
		gvr, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
		key, ok := keys[gvr]
		if !ok {
			continue // not stored, or not in this version
		}
		value, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.etcd.Put(t.Context(), key, string(value)); err != nil {
			t.Fatal(err)
		}
		count++
	}
	t.Logf("%d serialized objects", count)
}

// storageKeys returns the key of the serialized object of each resource, in the version in which the
// resource is stored.
func storageKeys() map[schema.GroupVersionResource]string {
	keys := map[schema.GroupVersionResource]string{}
	for gvr, data := range etcd.GetEtcdStorageDataForNamespaceServedAt(namespace, string(v137), false) {
		if data.ExpectedGVK != nil {
			gvr.Group, gvr.Version = data.ExpectedGVK.Group, data.ExpectedGVK.Version
		}
		key := path.Dir(data.ExpectedEtcdPath)
		if path.Base(key) == namespace {
			key = path.Dir(key) + "/namespaceValue"
		}
		keys[gvr] = key + "/nameValue"
	}
	return keys
}
