// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers contains the table of all controllers of the controller manager.
package controllers

import (
	"keelson.dev/keelson/pkg/controllers/attachdetach"
	"keelson.dev/keelson/pkg/controllers/bootstraptoken"
	"keelson.dev/keelson/pkg/controllers/certificates"
	"keelson.dev/keelson/pkg/controllers/clusterroleaggregation"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/cronjob"
	"keelson.dev/keelson/pkg/controllers/csidrivers"
	"keelson.dev/keelson/pkg/controllers/daemonset"
	"keelson.dev/keelson/pkg/controllers/deployment"
	"keelson.dev/keelson/pkg/controllers/disruption"
	"keelson.dev/keelson/pkg/controllers/endpoints"
	"keelson.dev/keelson/pkg/controllers/ephemeralvolume"
	"keelson.dev/keelson/pkg/controllers/expander"
	"keelson.dev/keelson/pkg/controllers/garbagecollector"
	"keelson.dev/keelson/pkg/controllers/horizontalpodautoscaler"
	"keelson.dev/keelson/pkg/controllers/ingresstls"
	"keelson.dev/keelson/pkg/controllers/job"
	"keelson.dev/keelson/pkg/controllers/loadbalancer"
	"keelson.dev/keelson/pkg/controllers/namespace"
	"keelson.dev/keelson/pkg/controllers/nodeipam"
	"keelson.dev/keelson/pkg/controllers/nodelifecycle"
	"keelson.dev/keelson/pkg/controllers/podgc"
	"keelson.dev/keelson/pkg/controllers/policystatus"
	"keelson.dev/keelson/pkg/controllers/protection"
	"keelson.dev/keelson/pkg/controllers/replicaset"
	"keelson.dev/keelson/pkg/controllers/resourceclaim"
	"keelson.dev/keelson/pkg/controllers/resourcequota"
	"keelson.dev/keelson/pkg/controllers/restorehold"
	"keelson.dev/keelson/pkg/controllers/rootca"
	"keelson.dev/keelson/pkg/controllers/serviceaccount"
	"keelson.dev/keelson/pkg/controllers/servicecidr"
	"keelson.dev/keelson/pkg/controllers/statefulset"
	"keelson.dev/keelson/pkg/controllers/storageversion"
	"keelson.dev/keelson/pkg/controllers/tainteviction"
	"keelson.dev/keelson/pkg/controllers/ttl"
	"keelson.dev/keelson/pkg/controllers/volumebinder"
	"keelson.dev/keelson/pkg/features"
)

// Entry describes a controller.
type Entry struct {
	// Name is the controller's name in the flag --controllers.
	Name string
	// Account is the name of the controller's service account in kube-system. It is "" for the
	// controller that issues tokens for service accounts; that controller uses the controller
	// manager's own user.
	Account string
	New     func(controller.Deps) (controller.Controller, error)
	// Enabled reports whether the operator's options enable the controller. If it is nil, the
	// controller is always enabled.
	Enabled func(controller.Options) bool
}

// Table returns all controllers. A controller that other controllers depend on is listed before
// them.
func Table() []Entry {
	return []Entry{
		{serviceaccount.DefaultAccountsName, "service-account-controller", serviceaccount.NewDefaultAccounts, nil},
		{rootca.Name, "root-ca-cert-publisher", rootca.New, func(o controller.Options) bool { return len(o.RootCA) > 0 }},
		{rootca.BundleName, "kube-apiserver-serving-clustertrustbundle-publisher", rootca.NewBundle,
			func(o controller.Options) bool {
				return len(o.RootCA) > 0 && o.Features.Enabled(features.ClusterTrustBundle)
			}},
		{serviceaccount.TokensName, "", serviceaccount.NewTokens,
			func(o controller.Options) bool { return len(o.TokenKey) > 0 }},
		{serviceaccount.LegacyTokensName, "legacy-service-account-token-cleaner", serviceaccount.NewLegacyTokens, nil},
		{nodeipam.Name, "node-controller", nodeipam.New, func(o controller.Options) bool { return o.AllocateNodeCIDRs }},
		{nodelifecycle.Name, "node-controller", nodelifecycle.New, nil},
		{tainteviction.NodesName, "node-controller", tainteviction.NewNodes, nil},
		{restorehold.Name, "restore-hold-controller", restorehold.New, nil},
		{deployment.Name, "deployment-controller", deployment.New, nil},
		{replicaset.Name, "replicaset-controller", replicaset.New, nil},
		{replicaset.ReplicationControllerName, "replication-controller", replicaset.NewReplicationController, nil},
		{daemonset.Name, "daemon-set-controller", daemonset.New, nil},
		{statefulset.Name, "statefulset-controller", statefulset.New, nil},
		{job.Name, "job-controller", job.New, nil},
		{cronjob.Name, "cronjob-controller", cronjob.New, nil},
		{job.ExpiryName, "ttl-after-finished-controller", job.NewExpiry, nil},
		{endpoints.SlicesName, "endpointslice-controller", endpoints.NewSlices, nil},
		{namespace.Name, "namespace-controller", namespace.New, nil},
		{garbagecollector.Name, "generic-garbage-collector", garbagecollector.New, nil},
		{podgc.Name, "pod-garbage-collector", podgc.New, nil},
		{clusterroleaggregation.Name, "clusterrole-aggregation-controller", clusterroleaggregation.New, nil},
		{certificates.SigningName, "certificate-controller", certificates.NewSigning, signs},
		{certificates.ApprovingName, "certificate-controller", certificates.NewApproving, nil},
		{certificates.CleaningName, "certificate-controller", certificates.NewCleaning, nil},
		{certificates.PodRequestCleaningName, "podcertificaterequestcleaner", certificates.NewPodRequestCleaning,
			func(o controller.Options) bool { return o.Features.Enabled(features.PodCertificateRequest) }},
		{bootstraptoken.SigningName, "bootstrap-signer", bootstraptoken.NewSigning, nil},
		{bootstraptoken.CleaningName, "token-cleaner", bootstraptoken.NewCleaning, nil},
		{protection.ClaimsName, "pvc-protection-controller", protection.NewClaims, nil},
		{protection.VolumesName, "pv-protection-controller", protection.NewVolumes, nil},
		{protection.PodGroupsName, "podgroup-protection-controller", protection.NewPodGroups, nil},
		{resourceclaim.Name, "resource-claim-controller", resourceclaim.New, nil},
		{tainteviction.DevicesName, "device-taint-eviction-controller", tainteviction.NewDevices, nil},
		{resourcequota.Name, "resourcequota-controller", resourcequota.New, nil},
		{endpoints.EndpointsName, "endpoint-controller", endpoints.NewEndpoints, nil},
		{endpoints.MirroringName, "endpointslicemirroring-controller", endpoints.NewMirroring, nil},
		{disruption.Name, "disruption-controller", disruption.New, nil},
		{protection.AttributesClassesName, "volumeattributesclass-protection-controller",
			protection.NewAttributesClasses, nil},
		{loadbalancer.Name, "service-controller", loadbalancer.New,
			func(o controller.Options) bool { return len(o.LoadBalancerRanges) > 0 }},
		{ingresstls.Name, "ingress-tls-controller", ingresstls.New,
			func(o controller.Options) bool { return o.IngressAccount.Name != "" }},
		{servicecidr.Name, "service-cidrs-controller", servicecidr.New, nil},
		{volumebinder.Name, "persistent-volume-binder", volumebinder.New, nil},
		{attachdetach.Name, "attachdetach-controller", attachdetach.New, nil},
		{expander.Name, "expand-controller", expander.New, nil},
		{csidrivers.Name, "csi-drivers-controller", csidrivers.New, nil},
		{ephemeralvolume.Name, "ephemeral-volume-controller", ephemeralvolume.New, nil},
		{ttl.Name, "ttl-controller", ttl.New, nil},
		{policystatus.Name, "validatingadmissionpolicy-status-controller", policystatus.New, nil},
		{storageversion.GarbageCollectorName, "storage-version-garbage-collector", storageversion.NewGarbageCollector, nil},
		{storageversion.MigratorName, "storage-version-migrator-controller", storageversion.NewMigrator,
			func(o controller.Options) bool { return o.Features.Enabled(features.StorageVersionMigrator) }},
		{horizontalpodautoscaler.Name, "horizontal-pod-autoscaler", horizontalpodautoscaler.New, nil},
	}
}

// signs reports whether a certificate authority to sign with is configured.
func signs(o controller.Options) bool {
	return len(o.SigningCert) > 0 && len(o.SigningKey) > 0 || len(o.Signers) > 0
}
