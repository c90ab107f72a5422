// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func configMapCells(cm *corev1.ConfigMap, env resource.CellEnv) []any {
	return []any{cm.Name, int64(len(cm.Data) + len(cm.BinaryData)), env.Age(cm.CreationTimestamp)}
}

func secretCells(s *corev1.Secret, env resource.CellEnv) []any {
	return []any{s.Name, string(s.Type), int64(len(s.Data)), env.Age(s.CreationTimestamp)}
}

func namespaceCells(ns *corev1.Namespace, env resource.CellEnv) []any {
	return []any{ns.Name, string(ns.Status.Phase), env.Age(ns.CreationTimestamp)}
}

func podTemplateCells(t *corev1.PodTemplate, _ resource.CellEnv) []any {
	names, images := column.Containers(t.Template.Spec.Containers)
	return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
}

func replicationControllerCells(rc *corev1.ReplicationController, env resource.CellEnv) []any {
	var containers []corev1.Container
	if rc.Spec.Template != nil {
		containers = rc.Spec.Template.Spec.Containers
	}
	names, images := column.Containers(containers)
	desired := int64(0)
	if rc.Spec.Replicas != nil {
		desired = int64(*rc.Spec.Replicas)
	}
	return []any{
		rc.Name, desired, int64(rc.Status.Replicas), int64(rc.Status.ReadyReplicas), env.Age(rc.CreationTimestamp),
		names, images, labels.FormatLabels(rc.Spec.Selector),
	}
}

func componentStatusCells(c *corev1.ComponentStatus, _ resource.CellEnv) []any {
	for _, condition := range c.Conditions {
		if condition.Type != corev1.ComponentHealthy {
			continue
		}
		status := "Unhealthy"
		if condition.Status == corev1.ConditionTrue {
			status = "Healthy"
		}
		return []any{c.Name, status, condition.Message, condition.Error}
	}
	return []any{c.Name, "Unknown", "", ""}
}

const shownEndpoints = 3

func endpointsCells(e *corev1.Endpoints, env resource.CellEnv) []any {
	var list []string
	for i := range e.Subsets {
		subset := &e.Subsets[i]
		for _, address := range subset.Addresses {
			if len(subset.Ports) == 0 {
				list = append(list, address.IP)
			}
		}
		for _, port := range subset.Ports {
			for _, address := range subset.Addresses {
				list = append(list, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	text := column.Few(list, shownEndpoints)
	if len(list) == 0 && len(e.Subsets) > 0 {
		text = ""
	}
	return []any{e.Name, text, env.Age(e.CreationTimestamp)}
}

func resourceQuotaCells(q *corev1.ResourceQuota, env resource.CellEnv) []any {
	names := make([]string, 0, len(q.Status.Hard))
	for name := range q.Status.Hard {
		names = append(names, string(name))
	}
	slices.Sort(names)
	var requests, limits []string
	for _, name := range names {
		used, hard := q.Status.Used[corev1.ResourceName(name)], q.Status.Hard[corev1.ResourceName(name)]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(name, "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), env.Age(q.CreationTimestamp)}
}

func eventCells(e *corev1.Event, env resource.CellEnv) []any {
	first := env.Age(e.FirstTimestamp)
	if e.FirstTimestamp.IsZero() {
		first = env.Age(metav1.Time(e.EventTime))
	}
	last := env.Age(e.LastTimestamp)
	if e.LastTimestamp.IsZero() {
		last = first
	}
	count := max(e.Count, 1)
	if e.Series != nil {
		last, count = env.Age(metav1.Time(e.Series.LastObservedTime)), e.Series.Count
	}
	object := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		object += "/" + e.InvolvedObject.Name
	}
	return []any{
		last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, eventSource(e), strings.TrimSpace(e.Message),
		first, int64(count), e.Name,
	}
}

func eventSource(e *corev1.Event) string {
	component, instance := e.Source.Component, e.Source.Host
	if component == "" {
		component = e.ReportingController
	}
	if instance == "" {
		instance = e.ReportingInstance
	}
	if instance == "" {
		return component
	}
	return component + ", " + instance
}

// EventCells makes the cells of an event, for the group that shows it too.
func EventCells(e *corev1.Event, env resource.CellEnv) []any { return eventCells(e, env) }

func serviceAccountCells(o *corev1.ServiceAccount, env resource.CellEnv) []any {
	return []any{o.Name, env.Age(o.CreationTimestamp)}
}
