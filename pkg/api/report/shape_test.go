// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

// TestShapes compares with what Kubernetes 1.36 shows.
func TestShapes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value any
		want  string
	}{
		"plain struct":  {corev1.Taint{Key: "k", Effect: "NoSchedule"}, `{"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}`},
		"list":          {[]corev1.LocalObjectReference{{Name: "a"}}, `[{"Name":"a"}]`},
		"of meta":       {metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, `{"matchLabels":{"a":"b"}}`},
		"text":          {"a", `"a"`},
		"embedded meta": {corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.PodSpec{}}, `{"name":"n","Spec":{"Volumes":null`},
		"host's namespaces": {corev1.PodSpec{HostNetwork: true, SecurityContext: &corev1.PodSecurityContext{}},
			`"SecurityContext":{"HostNetwork":true,"HostPID":false,"HostIPC":false,"ShareProcessNamespace":null,"HostUsers":null,"SELinuxOptions":null`},
	} {
		t.Run(name, func(t *testing.T) {
			var r report.Report
			r.Invalid(field.NewPath("x"), test.value, "")
			got, err := json.Marshal(r.Errors[0].BadValue)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(got), test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestShapesAreWhole: every field of a pod is shown, and every shape is of a type.
func TestShapesAreWhole(t *testing.T) {
	t.Parallel()
	shown, err := json.Marshal(report.Untagged(corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{}}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeFor[corev1.PodSpec]().NumField() {
		name := reflect.TypeFor[corev1.PodSpec]().Field(i).Name
		if name != "DeprecatedServiceAccount" && !strings.Contains(string(shown), `"`+name+`":`) {
			t.Errorf("%s is not shown", name)
		}
	}
}
