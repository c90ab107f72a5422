// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	cloudconfig "k8s.io/cloud-provider/config/v1alpha1"
	commonconfig "k8s.io/controller-manager/config/v1alpha1"
	configv1alpha1 "k8s.io/kube-controller-manager/config/v1alpha1"

	"keelson.dev/keelson/pkg/daemon"
)

// configName is the name under which Kubernetes' controller manager shows its configuration at
// /configz.
const configName = "kubecontrollermanager.config.k8s.io"

// configuration returns the settings in the configuration format of Kubernetes' controller manager.
// It omits settings that have no effect in this controller manager.
func (o *options) configuration(rc *rest.Config) *configv1alpha1.KubeControllerManagerConfiguration {
	c := &configv1alpha1.KubeControllerManagerConfiguration{Generic: o.generic(rc),
		KubeCloudShared: cloudconfig.KubeCloudSharedConfiguration{
			UseServiceAccountCredentials: o.ownAccounts, ClusterCIDR: o.clusterCIDR,
			AllocateNodeCIDRs: o.controller.AllocateNodeCIDRs,
		}}
	c.SetGroupVersionKind(configv1alpha1.SchemeGroupVersion.WithKind("KubeControllerManagerConfiguration"))
	o.setWorkers(c)
	o.setNodes(c)
	o.setSigning(c)
	p, s, as := &o.controller.Periods, &o.controller.Slices, &o.controller.Autoscaling
	c.AttachDetachController = configv1alpha1.AttachDetachControllerConfiguration{
		DisableAttachDetachReconcilerSync: o.noAttachedSync, ReconcilerSyncLoopPeriod: duration(p.Attachments),
		DisableForceDetachOnTimeout: o.controller.KeepAttached,
	}
	c.EndpointSliceController.MaxEndpointsPerSlice = int32(s.MaxEndpoints)
	c.EndpointSliceController.EndpointUpdatesBatchPeriod = duration(s.Batch)
	c.EndpointSliceMirroringController.MirroringMaxEndpointsPerSubset = int32(s.MaxMirrored)
	c.EndpointSliceMirroringController.MirroringEndpointUpdatesBatchPeriod = duration(s.MirrorBatch)
	c.GarbageCollectorController.EnableGarbageCollector = &o.collects
	h := &c.HPAController
	h.HorizontalPodAutoscalerSyncPeriod,
		h.HorizontalPodAutoscalerDownscaleStabilizationWindow = duration(as.Period), duration(as.DownWindow)
	h.HorizontalPodAutoscalerTolerance = as.Tolerance
	h.HorizontalPodAutoscalerCPUInitializationPeriod,
		h.HorizontalPodAutoscalerInitialReadinessDelay = duration(as.CPUInitialization), duration(as.ReadinessDelay)
	c.LegacySATokenCleaner.CleanUpPeriod = duration(p.LegacyTokens)
	c.NamespaceController.NamespaceSyncPeriod = duration(p.Namespaces)
	c.PersistentVolumeBinderController.PVClaimBinderSyncPeriod = duration(p.Claims)
	c.PersistentVolumeBinderController.VolumeConfiguration.EnableDynamicProvisioning = &o.provisions
	c.PodGCController.TerminatedPodGCThreshold = int32(o.controller.EndedPods)
	c.ResourceQuotaController.ResourceQuotaSyncPeriod = duration(p.Quotas)
	c.SAController.ServiceAccountKeyFile, c.SAController.RootCAFile = o.saKey, o.rootCA
	return c
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// generic returns the settings that do not belong to a single controller.
func (o *options) generic(rc *rest.Config) commonconfig.GenericControllerManagerConfiguration {
	profiling := !o.serving.NoProfiling
	out := commonconfig.GenericControllerManagerConfiguration{
		Port: int32(o.serving.SecurePort), Address: o.serving.BindAddress.String(), MinResyncPeriod: duration(o.resync),
		ClientConnection: daemon.ClientConfiguration(o.Kubeconfig, rc), ControllerStartInterval: duration(o.pause),
		LeaderElection: o.election.Configuration(), Controllers: o.controllers,
	}
	out.Debugging.EnableProfiling, out.Debugging.EnableContentionProfiling = &profiling, &o.contention
	return out
}

// setWorkers sets the number of workers of each controller in c.
func (o *options) setWorkers(c *configv1alpha1.KubeControllerManagerConfiguration) {
	mirroring := &c.EndpointSliceMirroringController
	for name, field := range map[string]*int32{
		"cronjob-controller":                          &c.CronJobController.ConcurrentCronJobSyncs,
		"daemonset-controller":                        &c.DaemonSetController.ConcurrentDaemonSetSyncs,
		"deployment-controller":                       &c.DeploymentController.ConcurrentDeploymentSyncs,
		"device-taint-eviction-controller":            &c.DeviceTaintEvictionController.ConcurrentSyncs,
		"endpoints-controller":                        &c.EndpointController.ConcurrentEndpointSyncs,
		"endpointslice-controller":                    &c.EndpointSliceController.ConcurrentServiceEndpointSyncs,
		"endpointslice-mirroring-controller":          &mirroring.MirroringConcurrentServiceEndpointSyncs,
		"ephemeral-volume-controller":                 &c.EphemeralVolumeController.ConcurrentEphemeralVolumeSyncs,
		"garbage-collector-controller":                &c.GarbageCollectorController.ConcurrentGCSyncs,
		"horizontal-pod-autoscaler-controller":        &c.HPAController.ConcurrentHorizontalPodAutoscalerSyncs,
		"job-controller":                              &c.JobController.ConcurrentJobSyncs,
		"namespace-controller":                        &c.NamespaceController.ConcurrentNamespaceSyncs,
		"replicaset-controller":                       &c.ReplicaSetController.ConcurrentRSSyncs,
		"replicationcontroller-controller":            &c.ReplicationController.ConcurrentRCSyncs,
		"resourceclaim-controller":                    &c.ResourceClaimController.ConcurrentSyncs,
		"resourcequota-controller":                    &c.ResourceQuotaController.ConcurrentResourceQuotaSyncs,
		"serviceaccount-token-controller":             &c.SAController.ConcurrentSATokenSyncs,
		"statefulset-controller":                      &c.StatefulSetController.ConcurrentStatefulSetSyncs,
		"ttl-after-finished-controller":               &c.TTLAfterFinishedController.ConcurrentTTLSyncs,
		"validatingadmissionpolicy-status-controller": &c.ValidatingAdmissionPolicyStatusController.ConcurrentPolicySyncs,
	} {
		*field = int32(*o.syncs[name])
	}
}

// setNodes sets the settings for nodes in c: pod address ranges, heartbeats and evictions.
func (o *options) setNodes(c *configv1alpha1.KubeControllerManagerConfiguration) {
	ipam, life, ev := &c.NodeIPAMController, &c.NodeLifecycleController, &o.controller.Evictions
	ipam.ServiceCIDR, ipam.SecondaryServiceCIDR, _ = strings.Cut(o.serviceCIDR, ",")
	ipam.NodeCIDRMaskSize, ipam.NodeCIDRMaskSizeIPv4, ipam.NodeCIDRMaskSizeIPv6 = int32(o.mask), int32(o.mask4),
		int32(o.mask6)
	life.NodeEvictionRate, life.SecondaryNodeEvictionRate = float32(ev.Rate), float32(ev.SecondaryRate)
	life.NodeStartupGracePeriod, life.NodeMonitorGracePeriod = duration(o.controller.NodeStartupGrace),
		duration(o.controller.NodeGrace)
	life.LargeClusterSizeThreshold, life.UnhealthyZoneThreshold = int32(ev.LargeZone), float32(ev.Threshold)
}

// setSigning sets the settings of the certificate authorities in c.
func (o *options) setSigning(c *configv1alpha1.KubeControllerManagerConfiguration) {
	s := &c.CSRSigningController
	s.ClusterSigningCertFile, s.ClusterSigningKeyFile, s.ClusterSigningDuration = o.signCert, o.signKey,
		duration(o.controller.SigningDuration)
	for name, to := range map[string]*configv1alpha1.CSRSigningConfiguration{
		"kubelet-serving": &s.KubeletServingSignerConfiguration, "kubelet-client": &s.KubeletClientSignerConfiguration,
		"kube-apiserver-client": &s.KubeAPIServerClientSignerConfiguration,
		"legacy-unknown":        &s.LegacyUnknownSignerConfiguration,
	} {
		*to = configv1alpha1.CSRSigningConfiguration{CertFile: o.signers[name].cert, KeyFile: o.signers[name].key}
	}
}
