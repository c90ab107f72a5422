// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

// libraries has name prefixes of the metrics that Kubernetes' libraries register. The processes
// export these metrics too. component-base has those about client-go and about the registry itself.
// In the API server, there are also metrics of the libraries for webhooks, policies, CEL, flow
// control, reloading of configuration, client certificates, aggregation, encryption and generated
// validation. The controller manager uses Kubernetes' library for EndpointSlices.
var libraries = []string{
	"workqueue_", "rest_client_", "leader_election_", "registered_metrics_total", "disabled_metrics_total",
	"hidden_metrics_total",
	"apiserver_admission_webhook_", "apiserver_admission_match_condition_", "apiserver_validating_admission_policy_",
	"apiserver_cel_", "apiserver_flowcontrol_", "apiserver_authentication_config_", "apiserver_authorization_config_",
	"apiserver_client_certificate_", "apiserver_webhooks_x509_", "aggregator_unavailable_",
	"apiserver_validation_declarative_", "apiserver_storage_transformation_", "apiserver_storage_data_key_",
	"apiserver_storage_envelope_", "endpoint_slice_controller_",
}

// unseen has name prefixes of library metrics that an API server exports only after the operator
// configures files for authentication or authorization, or after an APIService fails.
var unseen = []string{
	"leader_election_", "apiserver_authentication_config_", "apiserver_authorization_config_",
	"aggregator_unavailable_apiservice_total",
}

// Reasons why metrics are missing.
const (
	noDiscard     = "an event of the runtime only marks its pod as changed, so no event is discarded"
	offByDefault  = "the metric belongs to a feature that is off by default"
	alwaysLabeled = "all volumes with a PersistentVolume are mounted with a label, so there are no conflicts to count"
	noSuchPart    = "the process has no controllers that this metric could list"
	noPermit      = "no plugin can make a pod wait in Permit"
	noHints       = "plugins name the events that help; there are no functions that could be timed"
	noBatching    = "pods of one class share their results, instead of the hints of opportunistic batching"
	noAsyncCalls  = "bindings and statuses are sent in batches, not by a dispatcher of single calls"
	noPodGroups   = "the pods of gangs and PodGroups count as single pods"
	preemptions   = "victims are evicted in batches with the statuses of pods, not by a goroutine for each pod"
	binderCache   = "the plugin VolumeBinding keeps no cache of decisions"
	noStage       = "errors of volume binding count as attempts with the result error"
	otherPaths    = "updates and patches are compared without the code paths that the metric has as label values"
	notBehind     = "handlers end with their request's context, so none continues after a timeout"
	noIPTables    = "the proxy uses nftables"
	renamed       = "Kubernetes 1.37 has it as dynamic_resource_allocation_resourceclaim_creates_total"
	unregistered  = "Kubernetes defines it but does not register it"
	notYet        = "not exported yet"
)

// missing has the reason why Keelson does not have a metric of Kubernetes. The key is the metric's
// name, or the process and the name. The table "Metrics of Kubernetes that do not exist" in
// docs/howto/monitor.md has the same reasons.
var missing = map[string]string{
	"apiserver running_managed_controllers": noSuchPart,
	"scheduler running_managed_controllers": noSuchPart,
	"kubelet running_managed_controllers":   noSuchPart,
	"proxy running_managed_controllers":     noSuchPart,

	"rest_client_dns_resolution_duration_seconds": unregistered,
	"rest_client_exec_plugin_policy_call_total":   unregistered,

	"scheduler_permit_wait_duration_seconds":                   noPermit,
	"scheduler_queueing_hint_execution_duration_seconds":       noHints,
	"scheduler_pre_queueing_hint_evaluations_total":            noHints,
	"scheduler_resourceclaim_creates_total":                    renamed,
	"scheduler_batch_attempts_total":                           noBatching,
	"scheduler_batch_cache_flushed_total":                      noBatching,
	"scheduler_get_node_hint_duration_seconds":                 noBatching,
	"scheduler_store_schedule_results_duration_seconds":        noBatching,
	"scheduler_async_api_call_execution_duration_seconds":      noAsyncCalls,
	"scheduler_async_api_call_execution_total":                 noAsyncCalls,
	"scheduler_pending_async_api_calls":                        noAsyncCalls,
	"scheduler_podgroup_schedule_attempts_total":               noPodGroups,
	"scheduler_podgroup_scheduling_algorithm_duration_seconds": noPodGroups,
	"scheduler_podgroup_scheduling_attempt_duration_seconds":   noPodGroups,
	"scheduler_preemption_goroutines_duration_seconds":         preemptions,
	"scheduler_preemption_goroutines_execution_total":          preemptions,
	"scheduler_volume_binder_cache_requests_total":             binderCache,
	"scheduler_volume_scheduling_stage_error_total":            noStage,

	"apiserver_request_post_timeout_total":        notBehind,
	"apiserver_request_timestamp_comparison_time": otherPaths,
	"apiserver_storage_consistency_checks_total":  notYet,

	"kubelet_imagemanager_image_mustpull_checks_total":              notYet,
	"kubelet_imagemanager_inmemory_pulledrecords_usage_percent":     notYet,
	"kubelet_imagemanager_inmemory_pullintents_usage_percent":       notYet,
	"kubelet_imagemanager_ondisk_pulledrecords":                     notYet,
	"kubelet_imagemanager_ondisk_pullintents":                       notYet,
	"kubelet_pleg_discard_events":                                   noDiscard,
	"kubelet_volume_metric_collection_duration_seconds":             notYet,
	"kubelet_volume_stats_health_status_abnormal":                   offByDefault,
	"volume_manager_selinux_container_warnings_total":               alwaysLabeled,
	"volume_manager_selinux_pod_context_mismatch_warnings_total":    alwaysLabeled,
	"volume_manager_selinux_volume_context_mismatch_warnings_total": alwaysLabeled,

	"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":          noIPTables,
	"kubeproxy_iptables_localhost_nodeports_accepted_packets_total":      noIPTables,
	"kubeproxy_sync_proxy_rules_iptables_last":                           noIPTables,
	"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total": noIPTables,
	"kubeproxy_sync_proxy_rules_iptables_restore_failures_total":         noIPTables,
	"kubeproxy_sync_proxy_rules_iptables_total":                          noIPTables,
}
