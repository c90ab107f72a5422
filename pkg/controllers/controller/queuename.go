// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "cmp"

// queueName returns the name of a controller's queue in metrics such as workqueue_depth. If
// Kubernetes has a queue for the same work, it is Kubernetes' name of the queue, so that dashboards
// made for Kubernetes work. Otherwise it is the name of the controller.
func queueName(controller string) string {
	kubernetes := map[string]string{
		"bootstrap-signer-controller":                    "bootstrap_signer_queue",
		"certificatesigningrequest-approving-controller": "certificate",
		"certificatesigningrequest-signing-controller":   "certificate",
		"clusterrole-aggregation-controller":             "ClusterRoleAggregator",
		"cronjob-controller":                             "cronjob",
		"daemonset-controller":                           "daemonset",
		"deployment-controller":                          "deployment",
		"disruption-controller":                          "disruption",
		"disruption-controller/stale":                    "stale_pod_disruption",
		"endpoints-controller":                           "endpoint",
		"endpointslice-controller":                       "endpoint_slice",
		"endpointslice-mirroring-controller":             "endpoint_slice_mirroring",
		"ephemeral-volume-controller":                    "ephemeral_volume",
		"garbage-collector-controller":                   "garbage_collector_attempt_to_delete",
		"horizontal-pod-autoscaler-controller":           "horizontalpodautoscaler",
		"job-controller":                                 "job",
		"job-controller-orphans":                         "job_orphan_pod",
		"namespace-controller":                           "namespace",
		"node-ipam-controller":                           "cidrallocator_node",
		"node-lifecycle-controller":                      "node_lifecycle_controller",
		"persistentvolume-binder-controller/claims":      "claims",
		"persistentvolume-binder-controller/volumes":     "volumes",
		"persistentvolume-expander-controller":           "volume_expand",
		"persistentvolume-protection-controller":         "pvprotection",
		"persistentvolumeclaim-protection-controller":    "pvcprotection",
		"podgroup-protection-controller":                 "podgroupprotection",
		"replicaset-controller":                          "replicaset",
		"replicationcontroller-controller":               "replicationmanager",
		"resourceclaim-controller":                       "resource_claim",
		"resourcequota-controller":                       "resourcequota_primary",
		"root-ca-certificate-publisher-controller":       "root_ca_cert_publisher",
		"service-cidr-controller":                        "ipaddresses",
		"service-lb-controller":                          "service",
		"serviceaccount-controller":                      "serviceaccount",
		"serviceaccount-token-controller":                "serviceaccount_tokens_service",
		"statefulset-controller":                         "statefulset",
		"storageversion-garbage-collector-controller":    "storage_version_garbage_collector_storageversions",
		"taint-eviction-controller":                      "noexec_taint_pod",
		"token-cleaner-controller":                       "token_cleaner",
		"ttl-after-finished-controller":                  "ttl_jobs_to_delete",
		"ttl-controller":                                 "ttlcontroller",
		"validatingadmissionpolicy-status-controller":    "validatingadmissionpolicy-status",
		"volumeattributesclass-protection-controller":    "vacprotection",
	}
	return cmp.Or(kubernetes[controller], controller)
}
