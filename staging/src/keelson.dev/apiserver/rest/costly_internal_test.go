// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/store"
)

// prompted is a watch that supports shared sending.
type prompted struct{ store.Prompter }

// TestCostlySelector checks that watches with very long selectors are not shared.
func TestCostlySelector(t *testing.T) {
	long := strings.Repeat("metadata.name!=a,", costlySelector/10)
	for name, tc := range map[string]struct {
		options metav1.ListOptions
		shared  bool
	}{
		"no selector":         {metav1.ListOptions{}, true},
		"short selectors":     {metav1.ListOptions{LabelSelector: "a=b", FieldSelector: "spec.nodeName=a"}, true},
		"long field selector": {metav1.ListOptions{FieldSelector: long}, false},
		"long label selector": {metav1.ListOptions{LabelSelector: long}, false},
		"both, long together": {metav1.ListOptions{LabelSelector: long[:costlySelector/2+1], FieldSelector: long[:costlySelector/2]}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, shared := dedicateIfCostly(prompted{}, &tc.options).(store.Prompter)
			if shared != tc.shared {
				t.Errorf("shared: %v, want %v", shared, tc.shared)
			}
		})
	}
}
