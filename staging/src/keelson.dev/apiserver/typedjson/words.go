// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package typedjson

// copied is s as a string. The words that most objects of the API hold are not
// made anew for each.
func copied(s []byte) string {
	switch string(s) {
	case "v1":
		return "v1"
	case "apps/v1":
		return "apps/v1"
	case "batch/v1":
		return "batch/v1"
	case "Pod":
		return "Pod"
	case "ReplicaSet":
		return "ReplicaSet"
	case "default":
		return "default"
	case "cpu":
		return "cpu"
	case "memory":
		return "memory"
	case "ephemeral-storage":
		return "ephemeral-storage"
	case "TCP":
		return "TCP"
	case "UDP":
		return "UDP"
	case "HTTP":
		return "HTTP"
	case "HTTPS":
		return "HTTPS"
	case "ALL":
		return "ALL"
	case "Always":
		return "Always"
	case "IfNotPresent":
		return "IfNotPresent"
	case "Never":
		return "Never"
	case "OnFailure":
		return "OnFailure"
	case "ClusterFirst":
		return "ClusterFirst"
	case "default-scheduler":
		return "default-scheduler"
	case "/dev/termination-log":
		return "/dev/termination-log"
	case "File":
		return "File"
	case "RuntimeDefault":
		return "RuntimeDefault"
	case "metadata.name":
		return "metadata.name"
	case "metadata.namespace":
		return "metadata.namespace"
	case "spec.nodeName":
		return "spec.nodeName"
	case "status.podIP":
		return "status.podIP"
	case "status.hostIP":
		return "status.hostIP"
	case "Update":
		return "Update"
	case "Apply":
		return "Apply"
	case "FieldsV1":
		return "FieldsV1"
	case "status":
		return "status"
	case "true":
		return "true"
	case "false":
		return "false"
	case "True":
		return "True"
	case "False":
		return "False"
	case "Running":
		return "Running"
	case "Ready":
		return "Ready"
	case "Initialized":
		return "Initialized"
	case "ContainersReady":
		return "ContainersReady"
	case "PodScheduled":
		return "PodScheduled"
	case "PodReadyToStartContainers":
		return "PodReadyToStartContainers"
	}
	return string(s)
}
