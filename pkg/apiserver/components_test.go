// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func TestComponentStatuses(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	api := s.Client.CoreV1().ComponentStatuses() // the type is deprecated, but served
	list, err := api.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 3 || list.Items[0].Name != "controller-manager" || list.Items[1].Name != "etcd-0" ||
		list.Items[2].Name != "scheduler" {
		t.Errorf("components %v", list.Items)
	}
	etcd, err := api.Get(t.Context(), "etcd-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := etcd.Conditions; len(c) != 1 || c[0].Type != corev1.ComponentHealthy ||
		c[0].Status != corev1.ConditionTrue || c[0].Message != "ok" {
		t.Errorf("etcd: %v", c)
	}
	if list, err = api.List(t.Context(), metav1.ListOptions{LabelSelector: "a=b"}); err != nil || len(list.Items) != 0 {
		t.Errorf("selected %v %v", list.Items, err)
	}
	if _, err = api.Get(t.Context(), "other", metav1.GetOptions{}); err == nil ||
		err.Error() != `componentstatus "other" not found` {
		t.Errorf("got %v", err)
	}
}
