// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "strings"

// queueName returns the name of a controller's queue in metrics such as workqueue_depth. It is
// Kubernetes' name of the queue, so that Kubernetes' dashboards find it, if Kubernetes has a queue
// for the same work. Otherwise it is the name of the controller.
func queueName(controller string) string {
	switch controller {
	case "bootstrap-signer-controller":
		return "bootstrap_signer_queue"
	case "certificatesigningrequest-approving-controller", "certificatesigningrequest-signing-controller":
		return "certificate"
	case "clusterrole-aggregation-controller":
		return "ClusterRoleAggregator"
	case "disruption-controller/stale":
		return "stale_pod_disruption"
	case "endpoints-controller":
		return "endpoint"
	case "endpointslice-controller":
		return "endpoint_slice"
	case "endpointslice-mirroring-controller":
		return "endpoint_slice_mirroring"
	case "ephemeral-volume-controller":
		return "ephemeral_volume"
	case "garbage-collector-controller":
		return "garbage_collector_attempt_to_delete"
	case "horizontal-pod-autoscaler-controller":
		return "horizontalpodautoscaler"
	case "job-controller-orphans":
		return "job_orphan_pod"
	case "node-ipam-controller":
		return "cidrallocator_node"
	case "node-lifecycle-controller":
		return "node_lifecycle_controller"
	case "persistentvolume-binder-controller/claims":
		return "claims"
	case "persistentvolume-binder-controller/volumes":
		return "volumes"
	case "persistentvolume-expander-controller":
		return "volume_expand"
	case "persistentvolume-protection-controller":
		return "pvprotection"
	case "persistentvolumeclaim-protection-controller":
		return "pvcprotection"
	case "replicationcontroller-controller":
		return "replicationmanager"
	case "resourceclaim-controller":
		return "resource_claim"
	case "resourcequota-controller":
		return "resourcequota_primary"
	case "root-ca-certificate-publisher-controller":
		return "root_ca_cert_publisher"
	case "service-cidr-controller":
		return "ipaddresses"
	case "service-lb-controller":
		return "service"
	case "serviceaccount-token-controller":
		return "serviceaccount_tokens_service"
	case "storageversion-garbage-collector-controller":
		return "storage_version_garbage_collector_storageversions"
	case "taint-eviction-controller":
		return "noexec_taint_pod"
	case "token-cleaner-controller":
		return "token_cleaner"
	case "ttl-after-finished-controller":
		return "ttl_jobs_to_delete"
	case "ttl-controller":
		return "ttlcontroller"
	case "validatingadmissionpolicy-status-controller":
		return "validatingadmissionpolicy-status"
	case "volumeattributesclass-protection-controller":
		return "vacprotection"
	case "cronjob-controller", "daemonset-controller", "deployment-controller", "disruption-controller",
		"job-controller", "namespace-controller", "replicaset-controller", "serviceaccount-controller",
		"statefulset-controller":
		return strings.TrimSuffix(controller, "-controller")
	}
	return controller
}
