// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"github.com/spf13/pflag"
)

func (o *options) addProcessFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.controllers, "controllers", o.controllers,
		"controllers to run: '*' for all that are on by default, NAME to add one, -NAME to remove one. Controllers: "+
			strings.Join(names(), ", "))
	fs.BoolVar(&o.ownAccounts, "use-service-account-credentials", false,
		"run each controller with its own service account")
	fs.BoolVar(&o.collects, "enable-garbage-collector", true,
		"run the garbage collector. It must match the API server's --enable-garbage-collector")
	fs.BoolVar(&o.provisions, "enable-dynamic-provisioning", true,
		"assign claims without a matching volume to the provisioner of their class")
	fs.DurationVar(&o.pause, "controller-start-interval", 0, "pause between the starts of two controllers")
	fs.DurationVar(&o.resync, "min-resync-period", 0,
		"minimum interval at which controllers sync all objects again. 0 disables this")
	fs.BoolVar(&o.contention, "contention-profiling", false, "record profiles of lock contention")
	fs.StringVar(&o.master, "master", "", "URL of the API server, which replaces the one in --kubeconfig")
	fs.Float32Var(&o.qps, "kube-api-qps", -1,
		"maximum API calls per second of each controller. Not limited if negative")
	fs.IntVar(&o.burst, "kube-api-burst", 0,
		"number of API calls by which --kube-api-qps may be exceeded for a short time")
	fs.StringVar(&o.contentType, "kube-api-content-type", "application/vnd.kubernetes.protobuf",
		"content type of API calls")
}

func (o *options) addNetworkFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.controller.AllocateNodeCIDRs, "allocate-node-cidrs", false,
		"assign pod ranges from --cluster-cidr to nodes")
	fs.StringVar(&o.clusterCIDR, "cluster-cidr", "",
		"pod address ranges of the cluster, one per address family, separated by a comma")
	fs.StringVar(&o.serviceCIDR, "service-cluster-ip-range", "",
		"address ranges of services, which are not assigned to pods")
	fs.IntVar(&o.mask, "node-cidr-mask-size", 0,
		"prefix length of each node's pod range of any family. If positive, it overrides the flags for one family")
	fs.IntVar(&o.mask4, "node-cidr-mask-size-ipv4", 24, "prefix length of each node's IPv4 pod range")
	fs.IntVar(&o.mask6, "node-cidr-mask-size-ipv6", 64, "prefix length of each node's IPv6 pod range")
	fs.StringVar(&o.ingressAccount, "ingress-service-account", "",
		"namespace/name of the ingress proxy's service account. It gets read access to the TLS secrets of "+
			"Ingresses that use the proxy's classes. If empty, no access is granted")
	fs.StringSliceVar(&o.loadBalancers, "load-balancer-addresses", nil,
		"addresses for services of type LoadBalancer, which nodes announce on their local network: ranges as "+
			"FIRST-LAST or prefixes, separated by commas. If empty, another controller must assign addresses")
	sl := &o.controller.Slices
	fs.IntVar(&sl.MaxEndpoints, "max-endpoints-per-slice", sl.MaxEndpoints,
		"maximum number of endpoints in an EndpointSlice")
	fs.DurationVar(&sl.Batch, "endpointslice-updates-batch-period", 0,
		"time for which changes of pods are collected before EndpointSlices are written")
	fs.IntVar(&sl.MaxMirrored, "mirroring-max-endpoints-per-subset", sl.MaxMirrored,
		"maximum number of addresses that are mirrored from a subset of Endpoints")
	fs.DurationVar(&sl.MirrorBatch, "mirroring-endpointslice-updates-batch-period", 0,
		"time for which changes of Endpoints are collected before EndpointSlices are written")
}

func (o *options) addSigningFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.rootCA, "root-ca-file", "", "file with the CA certificate with which pods verify the API server")
	fs.StringVar(&o.saKey, "service-account-private-key-file", "",
		"file with the private key that signs service account tokens")
	fs.StringVar(&o.signCert, "cluster-signing-cert-file", "",
		"file with the CA certificate that signs certificate requests")
	fs.StringVar(&o.signKey, "cluster-signing-key-file", "", "file with the key of --cluster-signing-cert-file")
	o.addSigners(fs)
	fs.DurationVar(&o.controller.SigningDuration, "cluster-signing-duration", signedLife,
		"maximum validity of signed certificates")
	fs.BoolVar(&o.controller.ApproveServing, "approve-kubelet-serving", false,
		"approve kubelets' requests for serving certificates if all names and addresses are those of their own nodes")
	fs.BoolVar(&o.controller.ProtectNodes, "protect-node-identities", false,
		"automatically approve kubelets' requests for client certificates only for new nodes and for a node's "+
			"own renewal. Other requests wait for manual approval")
}

func (o *options) addNodeFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.controller.NodeGrace, "node-monitor-grace-period", nodeGrace,
		"time without a heartbeat after which a node is marked as unknown")
	fs.DurationVar(&o.controller.NodeStartupGrace, "node-startup-grace-period", startupGrace,
		"time without a heartbeat after which a new node is marked as unknown")
	ev := &o.controller.Evictions
	fs.Float64Var(&ev.Rate, "node-eviction-rate", 0.1,
		"nodes per second from which pods are evicted, in a healthy zone")
	fs.Float64Var(&ev.SecondaryRate, "secondary-node-eviction-rate", 0.01,
		"nodes per second from which pods are evicted, in a large unhealthy zone. In a small unhealthy zone "+
			"no pods are evicted")
	fs.IntVar(&ev.LargeZone, "large-cluster-size-threshold", 50,
		"a zone is large if it has more than this number of nodes")
	fs.Float64Var(&ev.Threshold, "unhealthy-zone-threshold", 0.55,
		"fraction of nodes that must not be ready (and at least 3 nodes) for a zone to be unhealthy")
	fs.IntVar(&o.controller.EndedPods, "terminated-pod-gc-threshold", endedPods,
		"number of ended pods to keep. If it is not positive, all are kept")
}

func (o *options) addAutoscalingFlags(fs *pflag.FlagSet) {
	as := &o.controller.Autoscaling
	fs.DurationVar(&as.Period, "horizontal-pod-autoscaler-sync-period", as.Period,
		"interval between evaluations of each autoscaler")
	fs.DurationVar(&as.DownWindow, "horizontal-pod-autoscaler-downscale-stabilization", as.DownWindow,
		"time for which a higher recommended number of pods prevents scaling down")
	fs.Float64Var(&as.Tolerance, "horizontal-pod-autoscaler-tolerance", as.Tolerance,
		"relative deviation of usage from its target that causes no scaling")
	fs.DurationVar(&as.CPUInitialization, "horizontal-pod-autoscaler-cpu-initialization-period", as.CPUInitialization,
		"time after a pod's start in which its CPU usage may be ignored")
	fs.DurationVar(&as.ReadinessDelay, "horizontal-pod-autoscaler-initial-readiness-delay", as.ReadinessDelay,
		"period after a pod's start; an unready pod whose readiness last changed in it counts as never ready")
}

func (o *options) addPeriodFlags(fs *pflag.FlagSet) {
	p := &o.controller.Periods
	fs.DurationVar(&p.Quotas, "resource-quota-sync-period", p.Quotas,
		"interval between full counts of the usage of all quotas")
	fs.DurationVar(&p.LegacyTokens, "legacy-service-account-token-clean-up-period", p.LegacyTokens,
		"time without use after which a generated service account token is marked as invalid, and time after "+
			"that until it is deleted")
	fs.DurationVar(&p.Claims, "pvclaimbinder-sync-period", p.Claims,
		"interval between syncs of claims that wait for a volume")
	fs.DurationVar(&p.Namespaces, "namespace-sync-period", p.Namespaces,
		"interval between syncs of namespaces that are being deleted")
	fs.DurationVar(&p.Attachments, "attach-detach-reconcile-sync-period", p.Attachments,
		"interval between syncs of the attached volumes of all nodes. It must be longer than 1s")
	fs.BoolVar(&o.noAttachedSync, "disable-attach-detach-reconcile-sync", false,
		"disable the periodic sync of attached volumes")
	fs.BoolVar(&o.controller.KeepAttached, "disable-force-detach-on-timeout", false,
		"keep volumes that an unhealthy node may still use attached, however long it is unhealthy, until the "+
			"node is tainted as out of service")
}
