// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package column has the table columns and cell texts that several kinds share,
// so that kubectl prints what it prints for Kubernetes.
package column

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// None is what a cell says when there is nothing to show.
const None = "<none>"

// Name is the column of the object's name.
func Name() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Name", Type: "string", Format: "name",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
	}
}

// Age is the column of the time since the object was created.
func Age() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Age", Type: "string",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	}
}

// Wide columns are shown by "kubectl get -o wide" only.
const Wide int32 = 1

// Containers lists the names and the images of containers.
func Containers(containers []corev1.Container) (names, images string) {
	ns := make([]string, len(containers))
	is := make([]string, len(containers))
	for i := range containers {
		ns[i], is[i] = containers[i].Name, containers[i].Image
	}
	return strings.Join(ns, ","), strings.Join(is, ",")
}

// OrNone is s, or None when s is empty.
func OrNone(s string) string {
	if s == "" {
		return None
	}
	return s
}

// Few joins at most n of items and says how many more there are.
func Few(items []string, n int) string {
	if len(items) == 0 {
		return None
	}
	if len(items) <= n {
		return strings.Join(items, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(items[:n], ","), len(items)-n)
}

// Deref is what p points to, or otherwise.
func Deref[T any](p *T, otherwise string) string {
	if p == nil {
		return otherwise
	}
	return fmt.Sprint(*p)
}

// Unset is what a cell says of a field that was left out.
const Unset = "<unset>"

// FewOrUnset is Few, and Unset when there are none.
func FewOrUnset(items []string, n int) string {
	if len(items) == 0 {
		return Unset
	}
	return Few(items, n)
}
