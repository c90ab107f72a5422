// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package column has the table columns and texts of cells that several kinds share. kubectl prints
// the same columns and texts for Kubernetes.
package column

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// None is the text of a cell of the printed table that has no value to show.
const None = "<none>"

// Name returns the definition of the column with the object's name.
func Name() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Name", Type: "string", Format: "name",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
	}
}

// Age returns the definition of the column with the time since the object was created.
func Age() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Age", Type: "string",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	}
}

// Wide is the priority of columns that only "kubectl get -o wide" shows.
const Wide int32 = 1

// Containers returns the names of containers, separated by commas, and their images, separated by
// commas.
func Containers(containers []corev1.Container) (names, images string) {
	ns := make([]string, len(containers))
	is := make([]string, len(containers))
	for i := range containers {
		ns[i], is[i] = containers[i].Name, containers[i].Image
	}
	return strings.Join(ns, ","), strings.Join(is, ",")
}

// OrNone returns s, or None if s is empty.
func OrNone(s string) string {
	if s == "" {
		return None
	}
	return s
}

// Few joins the first n items with commas. If there are more items, it appends their number. If
// there are none, it returns None.
func Few(items []string, n int) string {
	if len(items) == 0 {
		return None
	}
	if len(items) <= n {
		return strings.Join(items, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(items[:n], ","), len(items)-n)
}

// Deref returns the text of *p, or otherwise if p is nil.
func Deref[T any](p *T, otherwise string) string {
	if p == nil {
		return otherwise
	}
	return fmt.Sprint(*p)
}

// Unset is the text of a cell of the printed table whose field is not set.
const Unset = "<unset>"

// FewOrUnset returns Unset if there are no items. Otherwise it returns the result of Few.
func FewOrUnset(items []string, n int) string {
	if len(items) == 0 {
		return Unset
	}
	return Few(items, n)
}
