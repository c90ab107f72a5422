// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestManagersOfLargeObjects checks that an object that is too large to store with its managed
// fields is stored without them, except by an apply, which needs them.
func TestManagersOfLargeObjects(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Etcd: embedded.Start}) // only etcd limits the size of objects
	ctx := t.Context()
	maps := s.Client.CoreV1().ConfigMaps("default")
	large := map[string]string{} // 0.8 MB; the managed fields take as much again
	for i := range 9999 {
		large[fmt.Sprintf(
			"a-key-that-is-long-so-that-all-fields-together-take-as-much-as-their-values-and-then-some-%d", i)] = "v"
	}
	written := map[string]func(name string) (*corev1.ConfigMap, error){
		"create": func(name string) (*corev1.ConfigMap, error) {
			return maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: large},
				metav1.CreateOptions{})
		},
		"update": func(name string) (*corev1.ConfigMap, error) {
			small, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err != nil {
				return nil, err
			}
			small.Data = large
			return maps.Update(ctx, small, metav1.UpdateOptions{})
		},
		"patch": func(name string) (*corev1.ConfigMap, error) {
			if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{}); err != nil {
				return nil, err
			}
			change, err := json.Marshal(map[string]any{"data": large})
			if err != nil {
				return nil, err
			}
			return maps.Patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{})
		},
	}
	for name, write := range written {
		t.Run(name, func(t *testing.T) {
			got, err := write(name)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Data) != len(large) || got.ManagedFields != nil {
				t.Errorf("%d keys, managers %v", len(got.Data), got.ManagedFields)
			}
			config := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"a":"b"}}}`, name)
			_, err = maps.Patch(ctx, name, types.ApplyPatchType, config, metav1.PatchOptions{FieldManager: "applier"})
			status, _ := err.(apierrors.APIStatus)
			if status == nil || status.Status().Code != http.StatusInternalServerError ||
				status.Status().Message != "etcdserver: request is too large" {
				t.Errorf("applied: %v", err)
			}
			if after, err := maps.Get(ctx, name, metav1.GetOptions{}); err != nil || after.Labels != nil {
				t.Errorf("labels %v after an apply that was refused, error %v", after.Labels, err)
			}
		})
	}
}
