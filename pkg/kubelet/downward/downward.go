// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package downward returns the fields and resources of a pod that the downward API exposes, in the
// form of environment variables and files. Its functions are pure.
package downward

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"keelson.dev/api/quantity"
)

// Metadata returns the value of a fieldPath that starts with metadata.
func Metadata(pod *v1.Pod, fieldPath string) (string, error) {
	if path, key, ok := SplitSubscript(fieldPath); ok {
		return subscripted(pod, fieldPath, path, key)
	}
	switch fieldPath {
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", fieldPath)
}

// SplitSubscript splits a fieldPath such as metadata.labels['key'] into the path metadata.labels
// and the key. If the fieldPath has no subscript, ok is false.
func SplitSubscript(fieldPath string) (path, key string, ok bool) {
	inner, ok := strings.CutSuffix(fieldPath, "']")
	if !ok {
		return fieldPath, "", false
	}
	path, key, ok = strings.Cut(inner, "['")
	if !ok || path == "" {
		return fieldPath, "", false
	}
	return path, key, true
}

func subscripted(pod *v1.Pod, fieldPath, path, key string) (string, error) {
	from, name := pod.Labels, key
	switch path {
	case "metadata.labels":
	case "metadata.annotations":
		from, name = pod.Annotations, strings.ToLower(key)
	default:
		return "", fmt.Errorf("fieldPath %q does not support subscript", fieldPath)
	}
	if errs := validation.IsQualifiedName(name); len(errs) != 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", fieldPath, strings.Join(errs, ";"))
	}
	return from[key], nil
}

// formatMap returns the map as lines of the form key="value", sorted by key.
func formatMap(m map[string]string) string {
	var b strings.Builder
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(k + "=" + strconv.Quote(m[k]))
	}
	return b.String()
}

// defaulted lists the resources for which a container that sets no limit gets the node's
// allocatable amount as its limit. Huge pages are not listed, because a container that uses them
// always sets a limit.
var defaulted = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}

// WithLimits returns the container's resources. Missing limits of CPU, memory and ephemeral storage
// are taken from allocatable.
func WithLimits(c *v1.Container, allocatable v1.ResourceList) v1.ResourceRequirements {
	r := c.Resources
	r.Limits = maps.Clone(r.Limits)
	if r.Limits == nil {
		r.Limits = v1.ResourceList{}
	}
	for _, name := range defaulted {
		own := r.Limits[name]
		if !own.IsZero() {
			continue
		}
		if q, ok := allocatable[name]; ok {
			r.Limits[name] = q
		}
	}
	return r
}

// Container returns the main or init container of the pod with this name.
func Container(pod *v1.Pod, name string) (*v1.Container, error) {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], nil
			}
		}
	}
	return nil, fmt.Errorf("container %s not found", name)
}

// Resource returns the amount in r that fs selects, divided by the divisor of fs and rounded up.
func Resource(fs *v1.ResourceFieldSelector, r v1.ResourceRequirements) (string, error) {
	list, name, ok := r.Limits, "", false
	if name, ok = strings.CutPrefix(fs.Resource, "limits."); !ok {
		list = r.Requests
		name, ok = strings.CutPrefix(fs.Resource, "requests.")
	}
	known := false
	switch v1.ResourceName(name) {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		known = true
	default:
		known = strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	}
	if !ok || !known {
		return "", fmt.Errorf("unsupported container resource : %v", fs.Resource)
	}
	divisor := fs.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	q := list[v1.ResourceName(name)]
	convert := quantity.Value
	if v1.ResourceName(name) == v1.ResourceCPU {
		convert = quantity.Milli
	}
	amount, unit := convert(q), convert(divisor)
	rounded := amount / unit
	if amount%unit != 0 {
		rounded++
	}
	return strconv.FormatInt(rounded, 10), nil
}
