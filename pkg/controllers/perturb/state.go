// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	aTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	aRV   = regexp.MustCompile(`,?"resourceVersion":"\d+"`)
	aUID  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// state returns the objects of the given kinds as sorted lines of JSON, without parts that differ
// between any two runs.
func (c *Cell) state(ctx context.Context, kinds []schema.GroupVersionResource,
	ignore func(*unstructured.Unstructured)) ([]string, error) {
	var lines []string
	var made []string // pairs of a generated name and its replacement, which has no random part
	for _, kind := range kinds {
		list, err := c.Dynamic.Resource(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if g := o.GetGenerateName(); g != "" {
				made = append(made, o.GetName(), g+"*")
			}
			line, err := plain(o, ignore)
			if err != nil {
				return nil, err
			}
			lines = append(lines, line)
		}
	}
	names := strings.NewReplacer(made...)
	for i, l := range lines {
		l = names.Replace(l)
		l = aRV.ReplaceAllString(l, "")
		l = aTime.ReplaceAllString(l, "TIME")
		lines[i] = aUID.ReplaceAllString(l, "UID")
	}
	slices.Sort(lines)
	return lines, nil
}

// plain returns an object as JSON, without the fields that differ between any two runs. ignore
// removes further fields.
func plain(o *unstructured.Unstructured, ignore func(*unstructured.Unstructured)) (string, error) {
	generation, seen := o.GetGeneration(), int64(0)
	if n, found, err := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); err == nil && found {
		seen = n
		if err := unstructured.SetNestedField(o.Object, seen == generation, "status", "observedGeneration"); err != nil {
			return "", fmt.Errorf("observed generation: %w", err)
		}
	}
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
		"selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	if ignore != nil {
		ignore(o)
	}
	if conditions, found, err := unstructured.NestedSlice(o.Object, "status", "conditions"); err == nil && found {
		slices.SortStableFunc(conditions, func(a, b any) int { return strings.Compare(typeOf(a), typeOf(b)) })
		if err := unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions"); err != nil {
			return "", fmt.Errorf("conditions: %w", err)
		}
	}
	b, err := json.Marshal(o.Object)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(b), nil
}

func typeOf(condition any) string {
	m, ok := condition.(map[string]any)
	if !ok {
		return ""
	}
	t, _ := m["type"].(string)
	return t
}
