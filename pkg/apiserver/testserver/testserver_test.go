// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package testserver_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func TestStart(t *testing.T) {
	for name, opts := range map[string]testserver.Options{"memory": {}, "etcd": {Etcd: embedded.Start}} {
		t.Run(name, func(t *testing.T) {
			s := testserver.Start(t, opts)
			list, err := s.Client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 4 {
				t.Errorf("got %d namespaces, want the 4 of the system", len(list.Items))
			}
		})
	}
}
