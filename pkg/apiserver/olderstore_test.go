// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/apiserver/wire"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestDefaultsOfOlderServers stores objects without fields that older servers did not set. It
// checks that the answers contain the defaults of these fields, in every encoding, and that
// selectors match them.
func TestDefaultsOfOlderServers(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	for key, object := range map[string]wire.Message{
		"namespaces/old": &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "1"}},
		"csidrivers/old": &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "2"}},
		"services/specs/default/old": &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old",
			UID: "3"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9", Ports: []corev1.ServicePort{{Port: 80}}}},
		"statefulsets/default/old": &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old",
			UID: "4"}},
	} {
		version, kind := "v1", strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1.")
		switch kind {
		case "CSIDriver":
			version = "storage.k8s.io/v1"
		case "StatefulSet":
			version = "apps/v1"
		}
		data, err := wire.NewHeader(version, kind).Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.KV.Put(t.Context(), "/registry/"+key, data, 0, 0); err != nil || !r.OK {
			t.Fatalf("store %s: %v, %v", key, r, err)
		}
	}
	for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(encoding, func(t *testing.T) {
			config := rest.CopyConfig(s.Config)
			config.ContentType, config.AcceptContentTypes = encoding, encoding
			client, ctx := kubernetes.NewForConfigOrDie(config), t.Context()
			namespace, err := client.CoreV1().Namespaces().Get(ctx, "old", metav1.GetOptions{})
			if err != nil || namespace.Labels["kubernetes.io/metadata.name"] != "old" {
				t.Errorf("namespace: %v, %v", namespace, err)
			}
			list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{
				LabelSelector: "kubernetes.io/metadata.name=old",
			})
			if err != nil || len(list.Items) != 1 || list.Items[0].Labels["kubernetes.io/metadata.name"] != "old" {
				t.Errorf("namespaces with the label: %v, %v", list, err)
			}
			driver, err := client.StorageV1().CSIDrivers().Get(ctx, "old", metav1.GetOptions{})
			if err != nil || driver.Spec.PreventPodSchedulingIfMissing == nil {
				t.Errorf("driver: %v, %v", driver, err)
			}
			service, err := client.CoreV1().Services("default").Get(ctx, "old", metav1.GetOptions{})
			if err != nil || len(service.Spec.ClusterIPs) != 1 || len(service.Spec.IPFamilies) != 1 {
				t.Errorf("service: %v, %v", service, err)
			}
			set, err := client.AppsV1().StatefulSets("default").Get(ctx, "old", metav1.GetOptions{})
			if err != nil || set.Spec.UpdateStrategy.RollingUpdate == nil ||
				set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable == nil {
				t.Errorf("stateful set: %v, %v", set, err)
			}
		})
	}
}
