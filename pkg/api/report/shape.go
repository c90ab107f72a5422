// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"reflect"
	"strings"
)

// shapeOf lists the fields of a type in the order in which Kubernetes has them,
// where that is another than the one on the wire.
func shapeOf(t reflect.Type) []string {
	if ofGroup(t) {
		if shape := reshaped(t.Name()); shape != "" {
			return strings.Fields(shape)
		}
	}
	names := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		names = append(names, t.Field(i).Name)
	}
	return names
}

func reshaped(name string) string {
	switch name {
	case "PodSpec":
		return `Volumes InitContainers Containers EphemeralContainers RestartPolicy TerminationGracePeriodSeconds ActiveDeadlineSeconds
			DNSPolicy NodeSelector ServiceAccountName AutomountServiceAccountToken NodeName SecurityContext ImagePullSecrets Hostname
			Subdomain SetHostnameAsFQDN Affinity SchedulerName Tolerations HostAliases PriorityClassName Priority PreemptionPolicy
			DNSConfig ReadinessGates RuntimeClassName Overhead EnableServiceLinks TopologySpreadConstraints OS SchedulingGates
			ResourceClaims Resources HostnameOverride SchedulingGroup`
	case "VolumeSource":
		return `HostPath EmptyDir GCEPersistentDisk AWSElasticBlockStore GitRepo Secret NFS ISCSI Glusterfs PersistentVolumeClaim RBD
			Quobyte FlexVolume Cinder CephFS Flocker DownwardAPI FC AzureFile ConfigMap VsphereVolume AzureDisk PhotonPersistentDisk
			Projected PortworxVolume ScaleIO StorageOS CSI Ephemeral Image`
	case "PersistentVolumeSource":
		return `GCEPersistentDisk AWSElasticBlockStore HostPath Glusterfs NFS RBD Quobyte ISCSI FlexVolume Cinder CephFS FC Flocker
			AzureFile VsphereVolume AzureDisk PhotonPersistentDisk PortworxVolume ScaleIO Local StorageOS CSI`
	case "ServiceSpec":
		return `Type Ports Selector ClusterIP ClusterIPs IPFamilies IPFamilyPolicy ExternalName ExternalIPs LoadBalancerIP
			SessionAffinity SessionAffinityConfig LoadBalancerSourceRanges ExternalTrafficPolicy HealthCheckNodePort
			PublishNotReadyAddresses AllocateLoadBalancerNodePorts LoadBalancerClass InternalTrafficPolicy TrafficDistribution`
	case "NodeSpec":
		return `PodCIDRs ProviderID Unschedulable Taints ConfigSource DoNotUseExternalID`
	case "DeploymentSpec":
		return `Replicas Selector Template Strategy MinReadySeconds RevisionHistoryLimit Paused RollbackTo ProgressDeadlineSeconds`
	case "DaemonSetSpec":
		return `Selector Template UpdateStrategy MinReadySeconds TemplateGeneration RevisionHistoryLimit`
	case "JobSpec":
		return `Parallelism Completions PodFailurePolicy SuccessPolicy ActiveDeadlineSeconds BackoffLimit BackoffLimitPerIndex
			MaxFailedIndexes Selector ManualSelector Template TTLSecondsAfterFinished CompletionMode Suspend PodReplacementPolicy ManagedBy`
	case "CSIDriverSpec":
		return `AttachRequired FSGroupPolicy PodInfoOnMount VolumeLifecycleModes StorageCapacity TokenRequests RequiresRepublish
			SELinuxMount NodeAllocatableUpdatePeriodSeconds ServiceAccountTokenInSecrets PreventPodSchedulingIfMissing`
	case "ContainerResourceMetricSource":
		return `Name Container Target`
	case "ContainerResourceMetricStatus":
		return `Name Container Current`
	case "ValidatingAdmissionPolicySpec":
		return `ParamKind MatchConstraints Validations MatchConditions FailurePolicy AuditAnnotations Variables`
	}
	return ""
}

// alwaysSet names the fields that are pointers on the wire only.
func alwaysSet(t reflect.Type, field string) bool {
	switch field {
	case "Replicas":
		return t.Name() == "DeploymentSpec" || t.Name() == "ReplicaSetSpec" || t.Name() == "StatefulSetSpec"
	case "MaxUnavailable":
		return t.Name() == "RollingUpdateDeployment" || t.Name() == "RollingUpdateDaemonSet"
	case "MaxSurge":
		return t.Name() == "RollingUpdateDeployment" || t.Name() == "RollingUpdateDaemonSet"
	case "Partition", "NominalConcurrencyShares":
		return true
	case "ExpirationSeconds":
		return t.Name() == "ServiceAccountTokenProjection"
	}
	return false
}

// unwired writes a field that the wire does not have: none of them is ever set,
// but for the count of a daemon set's templates, which an annotation carries.
func (w *fieldWriter) unwired(of reflect.Value) error {
	if of.Type().Name() == "DaemonSetSpec" {
		w.out.WriteByte('0')
		return nil
	}
	w.out.WriteString("null")
	return nil
}

// writePodSecurity writes a pod's security context, which has the fields for the
// host's namespaces that are the specification's own on the wire.
func writePodSecurity(out *bytes.Buffer, security, spec reflect.Value) error {
	out.WriteByte('{')
	w := fieldWriter{out: out, first: true}
	for _, name := range []string{"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers"} {
		if err := w.field(name, spec.FieldByName(name), security); err != nil {
			return err
		}
	}
	for _, name := range strings.Fields(`SELinuxOptions WindowsOptions RunAsUser RunAsGroup RunAsNonRoot SupplementalGroups
		SupplementalGroupsPolicy FSGroup FSGroupChangePolicy Sysctls SeccompProfile AppArmorProfile SELinuxChangePolicy`) {
		if err := w.field(name, security.FieldByName(name), security); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}
