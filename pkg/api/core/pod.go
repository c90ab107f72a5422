// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
)

// podRow returns the row of the kind table for the resource pods.
func podRow(d Deps) *resource.Row {
	p, c := d.Policy, d.Pods
	return resource.Of[corev1.PodList](resource.Kind[*corev1.Pod]{
		Group: "", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true,
		ShortNames: []string{"po"}, Categories: []string{"all"},
		Gated: append(podspec.Gated[*corev1.Pod](), gatedStatus()...),

		Default:        defaultPod,
		MetaOnUpdate:   resource.CheckNameAndFinalizers,
		PrepareCreate:  preparePodCreate,
		Validate:       podspec.Validate(p, validatePod),
		PrepareUpdate:  preparePodUpdate,
		ValidateUpdate: podspec.ValidateUpdate(p, validatePodUpdate),
		Warnings:       warnPod,
		Fields:         podFields,
		IndexFields:    []string{"spec.nodeName"}, // each kubelet watches the pods of its node
		FieldPaths: []string{"spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
			"spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIPs", "status.nominatedNodeName"},
		SelectableFields: []string{"spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
			"spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs",
			"status.nominatedNodeName"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		GracefulDelete:           gracefulDeletePod,
		ReturnDeleted:            true,
		Hooks:                    resource.Hooks[*corev1.Pod]{AfterCreate: d.PodCreated},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Ready", Type: "string", Description: "The aggregate readiness state of this pod for accepting traffic."},
			{Name: "Status", Type: "string", Description: "The aggregate status of the containers in this pod."},
			{Name: "Restarts", Type: "string", Description: "The number of times the containers in this pod " +
				"have been restarted and when the last container in this pod has restarted."},
			column.Age(),
			{Name: "IP", Type: "string", Description: corev1.PodStatus{}.SwaggerDoc()["podIP"], Priority: column.Wide},
			{Name: "Node", Type: "string", Description: corev1.PodSpec{}.SwaggerDoc()["nodeName"], Priority: column.Wide},
			{Name: "Nominated Node", Type: "string",
				Description: corev1.PodStatus{}.SwaggerDoc()["nominatedNodeName"], Priority: column.Wide},
			{Name: "Readiness Gates", Type: "string",
				Description: corev1.PodSpec{}.SwaggerDoc()["readinessGates"], Priority: column.Wide},
		},
		RowConditions: podRowConditions,
		Cells:         podCells,
		CellPaths: []string{
			"metadata.name", "metadata.creationTimestamp", "metadata.deletionTimestamp",
			"spec.containers.name", "spec.initContainers.name", "spec.initContainers.restartPolicy",
			"spec.nodeName", "spec.readinessGates",
			"status.phase", "status.reason", "status.podIPs", "status.nominatedNodeName",
			"status.conditions.type", "status.conditions.status", "status.conditions.reason",
			"status.containerStatuses.ready", "status.containerStatuses.restartCount",
			"status.containerStatuses.state", "status.containerStatuses.lastState",
			"status.initContainerStatuses.name", "status.initContainerStatuses.ready", "status.initContainerStatuses.started",
			"status.initContainerStatuses.restartCount", "status.initContainerStatuses.state",
			"status.initContainerStatuses.lastState",
		},

		Subresources: []resource.Sub[*corev1.Pod]{
			{Subresource: resource.Subresource{Name: "attach", Verbs: []string{"create", "get"},
				Kind: schema.GroupVersionKind{Version: "v1", Kind: "PodAttachOptions"}, Connect: c.Attach,
				Traffic: resource.Stream}},
			{Subresource: resource.Subresource{Name: "binding", Verbs: []string{"create"},
				Kind: schema.GroupVersionKind{Version: "v1", Kind: "Binding"}, Create: c.Binding}},
			{Subresource: strategy.View("ephemeralcontainers").WithMetaChecks(
				resource.CheckNameAndFinalizers).WithoutTable(), PrepareUpdate: preparePodEphemeralContainers,
				ValidateUpdate: podspec.ValidateUpdate(p, validatePodEphemeralContainers)},
			{Subresource: resource.Subresource{Name: "eviction", Verbs: []string{"create"},
				Kind: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, Create: c.Eviction}},
			{Subresource: resource.Subresource{Name: "exec", Verbs: []string{"create", "get"},
				Kind: schema.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}, Connect: c.Exec, Traffic: resource.Stream}},
			{Subresource: resource.Subresource{Name: "log", Verbs: []string{"get"}, Connect: c.Log, Traffic: resource.Text}},
			{Subresource: resource.Subresource{Name: "portforward", Verbs: []string{"create", "get"},
				Kind:    schema.GroupVersionKind{Version: "v1", Kind: "PodPortForwardOptions"},
				Connect: c.PortForward, Traffic: resource.Stream}},
			{Subresource: resource.Subresource{Name: "proxy",
				Verbs: []string{"create", "delete", "get", "patch", "update"},
				Kind:  schema.GroupVersionKind{Version: "v1", Kind: "PodProxyOptions"}, Connect: c.Proxy,
				Traffic: resource.Proxied}},
			{Subresource: strategy.View("resize").WithMetaChecks(
				resource.CheckNameAndFinalizers).WithoutTable(), PrepareUpdate: preparePodResize,
				ValidateUpdate: podspec.ValidateUpdate(p, validatePodResize)},
			{Subresource: strategy.View("status", "spec", "metadata.deletionTimestamp",
				"metadata.ownerReferences"), PrepareUpdate: preparePodStatus,
				ValidateUpdate: podspec.ValidateUpdate(p, validatePodStatus), Warnings: warnPodStatus},
		},
	})
}

// bindingRow returns the row of the kind table for the resource bindings.
func bindingRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*corev1.Binding]{
		Group: "", Version: "v1", Resource: "bindings", Kind: "Binding", Namespaced: true,
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}

func defaultPod(pod *corev1.Pod) { podspec.DefaultPod(pod) }

func preparePodCreate(ctx context.Context, pod *corev1.Pod) {
	pod.Generation = 1
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	podspec.DropInitAnnotations(&pod.ObjectMeta)
	podspec.DefaultPodResources(pod)
	pod.Status.QOSClass = podspec.QOSClass(&pod.Spec)
	if len(pod.Spec.SchedulingGates) > 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message:            "Scheduling is blocked due to non-empty scheduling gates",
			LastTransitionTime: pod.CreationTimestamp,
		}}
	}
	podspec.MergeLabelKeys(&pod.Spec, pod.Labels)
	for _, w := range podspec.ProfilesFromAnnotations(pod) {
		warning.AddWarning(ctx, "", w)
	}
}

func preparePodUpdate(_ context.Context, pod, old *corev1.Pod) {
	pod.Status = old.Status
	keepPodResources(pod, old)
	podspec.DropInitAnnotations(&pod.ObjectMeta)
	countPodSpec(pod, old)
}

// keepPodResources restores pod-level resources that are missing in an update, because older
// clients do not have this field.
func keepPodResources(pod, old *corev1.Pod) {
	if pod.Spec.Resources == nil {
		pod.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
}

func countPodSpec(pod, old *corev1.Pod) {
	pod.Generation = old.Generation
	if !equal.Values(pod.Spec, old.Spec) {
		pod.Generation++
	}
}

// eachMount calls visit for the status of each volume mount.
func eachMount(status *corev1.PodStatus, visit func(*corev1.VolumeMountStatus)) {
	for _, statuses := range [][]corev1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			for j := range statuses[i].VolumeMounts {
				visit(&statuses[i].VolumeMounts[j])
			}
		}
	}
}

// preparePodEphemeralContainers keeps all fields of the old pod except the ephemeral containers,
// which are those of the update.
func preparePodEphemeralContainers(_ context.Context, pod, old *corev1.Pod) {
	added := pod.Spec.EphemeralContainers
	pod.Spec, pod.Status = old.Spec, old.Status
	metav1.ResetObjectMetaForStatus(pod, old)
	pod.Spec.EphemeralContainers = added
	podspec.DropInitAnnotations(&pod.ObjectMeta)
	countPodSpec(pod, old)
}

// gracefulDeletePod sets the grace period of a delete. It is zero if the pod is not on a node or
// has finished. Otherwise it is the period that the client has set in the request or, if there is
// none, the pod's own grace period.
func gracefulDeletePod(_ context.Context, pod *corev1.Pod, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	var seconds int64
	switch {
	case options.GracePeriodSeconds != nil:
		seconds = *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	if pod.Spec.NodeName == "" || ended {
		seconds = 0
	}
	if seconds < 0 {
		seconds = 1
	}
	options.GracePeriodSeconds = &seconds
	return true
}

// warnPod returns warnings about a new pod. It returns none for an update, because users rarely
// update pods.
func warnPod(_ context.Context, pod, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	return append(podspec.WarnOfName(pod.Name, "the Pod's hostname"), podspec.Warn(nil, &pod.ObjectMeta, &pod.Spec)...)
}

func warnPodStatus(_ context.Context, pod, _ *corev1.Pod) []string {
	var warnings []string
	for i, ip := range pod.Status.PodIPs {
		warnings = append(warnings,
			validation.GetWarningsForIP(field.NewPath("status", "podIPs").Index(i).Child("ip"), ip.IP)...)
	}
	return warnings
}

// podFields returns the fields of a pod by which clients can select pods.

func podFields(pod *corev1.Pod) fields.Set {
	hostNetwork := pod.Spec.HostNetwork
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return fields.Set{
		"spec.nodeName":            pod.Spec.NodeName,
		"spec.restartPolicy":       string(pod.Spec.RestartPolicy),
		"spec.schedulerName":       pod.Spec.SchedulerName,
		"spec.serviceAccountName":  pod.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(hostNetwork),
		"status.phase":             string(pod.Status.Phase),
		"status.podIP":             ip,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}
