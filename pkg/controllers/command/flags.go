// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"github.com/spf13/pflag"
)

func (o *options) addProcessFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.controllers, "controllers", o.controllers,
		"controllers to run, separated by commas: '*' means all that run by default, NAME adds one, -NAME "+
			"removes one. Controllers: "+
			strings.Join(names(), ", "))
	fs.BoolVar(&o.ownAccounts, "use-service-account-credentials", false,
		"let each controller use a service account of its own (in kube-system) with only the rights that it "+
			"needs; otherwise all controllers use the credentials in --kubeconfig")
	fs.BoolVar(&o.collects, "enable-garbage-collector", true,
		"run the garbage collector, which deletes objects whose owners are gone; must have the same value as "+
			"the API server's --enable-garbage-collector")
	fs.BoolVar(&o.provisions, "enable-dynamic-provisioning", true,
		"if no volume matches a claim, ask the provisioner of the claim's storage class to create one")
	fs.DurationVar(&o.pause, "controller-start-interval", 0,
		"pause between the starts of two controllers; 0 means no pause")
	fs.DurationVar(&o.resync, "min-resync-period", 0,
		"minimum interval at which each controller syncs all objects again, even if they have not changed; "+
			"the actual interval is random, at most twice as long; 0 means that controllers sync only after "+
			"changes")
	fs.BoolVar(&o.contention, "contention-profiling", false, "record in profiles where goroutines wait for locks")
	fs.StringVar(&o.master, "master", "", "URL of the API server; if set, it replaces the URL in --kubeconfig")
	fs.Float32Var(&o.qps, "kube-api-qps", -1,
		"maximum number of requests per second that each controller sends to the API server; a negative "+
			"value means no limit")
	fs.IntVar(&o.burst, "kube-api-burst", 0,
		"number of requests that a controller may send at once in spite of --kube-api-qps; must be positive "+
			"if --kube-api-qps is positive")
	fs.StringVar(&o.contentType, "kube-api-content-type", "application/vnd.kubernetes.protobuf",
		"encoding of requests to the API server, as a content type")
}

func (o *options) addNetworkFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.controller.AllocateNodeCIDRs, "allocate-node-cidrs", false,
		"assign each node a range of pod addresses from --cluster-cidr")
	fs.StringVar(&o.clusterCIDR, "cluster-cidr", "",
		"range of all pod addresses of the cluster (CIDR), or an IPv4 and an IPv6 range separated by a "+
			"comma; required with --allocate-node-cidrs")
	fs.StringVar(&o.serviceCIDR, "service-cluster-ip-range", "",
		"range of the cluster IPs of Services (CIDR), or an IPv4 and an IPv6 range separated by a comma; "+
			"nodes get no pod addresses from these ranges")
	fs.IntVar(&o.mask, "node-cidr-mask-size", 0,
		"prefix length of each node's range of pod addresses, for any IP family; if positive, it replaces "+
			"--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6")
	fs.IntVar(&o.mask4, "node-cidr-mask-size-ipv4", 24,
		"prefix length of each node's range of IPv4 pod addresses: 24 gives each node 256 addresses")
	fs.IntVar(&o.mask6, "node-cidr-mask-size-ipv6", 64, "prefix length of each node's range of IPv6 pod addresses")
	fs.StringVar(&o.ingressAccount, "ingress-service-account", "",
		"NAMESPACE/NAME of the ingress proxy's service account, which gets the right to read the TLS Secrets of "+
			"Ingresses whose IngressClass names this proxy as its controller; if empty, no right is granted")
	fs.StringSliceVar(&o.loadBalancers, "load-balancer-addresses", nil,
		"addresses for Services of the type LoadBalancer, as FIRST-LAST or CIDR, separated by commas; the "+
			"nodes announce them on their local network; if empty, another controller must assign addresses")
	sl := &o.controller.Slices
	fs.IntVar(&sl.MaxEndpoints, "max-endpoints-per-slice", sl.MaxEndpoints,
		"maximum number of endpoints in an EndpointSlice")
	fs.DurationVar(&sl.Batch, "endpointslice-updates-batch-period", 0,
		"how long to collect changes of pods before EndpointSlices are written; longer means fewer writes "+
			"but later updates; 0 means no delay")
	fs.IntVar(&sl.MaxMirrored, "mirroring-max-endpoints-per-subset", sl.MaxMirrored,
		"maximum number of addresses of each subset of an Endpoints object that are copied to EndpointSlices")
	fs.DurationVar(&sl.MirrorBatch, "mirroring-endpointslice-updates-batch-period", 0,
		"how long to collect changes of an Endpoints object before they are copied to EndpointSlices; 0 "+
			"means no delay")
}

func (o *options) addSigningFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.rootCA, "root-ca-file", "",
		"file with the CA certificates with which pods verify the API server; they are published as the "+
			"ConfigMap kube-root-ca.crt in each namespace; if empty, these ConfigMaps are not created")
	fs.StringVar(&o.saKey, "service-account-private-key-file", "",
		"file with the private key that signs the service account tokens in Secrets; if empty, no such "+
			"tokens are created")
	fs.StringVar(&o.signCert, "cluster-signing-cert-file", "",
		"file with the CA certificate that signs the certificates of CertificateSigningRequests; if empty, "+
			"only signers that have a --cluster-signing-*-cert-file of their own sign")
	fs.StringVar(&o.signKey, "cluster-signing-key-file", "",
		"file with the private key of --cluster-signing-cert-file")
	o.addSigners(fs)
	fs.DurationVar(&o.controller.SigningDuration, "cluster-signing-duration", signedLife,
		"maximum validity of the certificates that are signed; a CertificateSigningRequest can ask for less")
	fs.BoolVar(&o.controller.ApproveServing, "approve-kubelet-serving", false,
		"approve a kubelet's request for a serving certificate if the request contains only names and "+
			"addresses of the kubelet's own node; otherwise such requests wait for manual approval")
	fs.BoolVar(&o.controller.ApproveProxies, "approve-proxy-clients", false,
		"approve a node's request for the client certificate of its own proxy: the user "+
			"system:kube-proxy:NODE in the group keelson:proxies; if false, such requests wait for manual approval")
	fs.BoolVar(&o.controller.ProtectNodes, "protect-node-identities", false,
		"approve a kubelet's request for a client certificate only if the node is new, or renews its own "+
			"certificate; all other requests wait for manual approval")
}

func (o *options) addNodeFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.controller.NodeGrace, "node-monitor-grace-period", nodeGrace,
		"time without a heartbeat from the kubelet after which the condition Ready of a node becomes Unknown")
	fs.DurationVar(&o.controller.NodeStartupGrace, "node-startup-grace-period", startupGrace,
		"time without a heartbeat from the kubelet after which the condition Ready of a node that has just "+
			"been added becomes Unknown")
	ev := &o.controller.Evictions
	fs.Float64Var(&ev.Rate, "node-eviction-rate", 0.1,
		"number of nodes per second whose pods are evicted because the nodes are not ready, in a healthy "+
			"zone; 0.1 means one node in 10 s")
	fs.Float64Var(&ev.SecondaryRate, "secondary-node-eviction-rate", 0.01,
		"number of nodes per second whose pods are evicted because the nodes are not ready, in a zone that "+
			"is unhealthy (--unhealthy-zone-threshold) and large (--large-cluster-size-threshold); in a "+
			"small unhealthy zone, no pods are evicted")
	fs.IntVar(&ev.LargeZone, "large-cluster-size-threshold", 50,
		"number of nodes; a zone with more nodes is large, see --secondary-node-eviction-rate")
	fs.Float64Var(&ev.Threshold, "unhealthy-zone-threshold", 0.55,
		"fraction of the nodes of a zone; if at least this fraction, and at least 3 nodes, are not ready, "+
			"the zone is unhealthy")
	fs.IntVar(&o.controller.EndedPods, "terminated-pod-gc-threshold", endedPods,
		"number of ended pods that are kept in the cluster; if there are more, the oldest are deleted; 0 or "+
			"less means that all are kept")
}

func (o *options) addAutoscalingFlags(fs *pflag.FlagSet) {
	as := &o.controller.Autoscaling
	fs.DurationVar(&as.Period, "horizontal-pod-autoscaler-sync-period", as.Period,
		"how often the number of pods for each HorizontalPodAutoscaler is computed")
	fs.DurationVar(&as.DownWindow, "horizontal-pod-autoscaler-downscale-stabilization", as.DownWindow,
		"the autoscaler does not reduce the number of pods below the highest number that it has recommended "+
			"in this time")
	fs.Float64Var(&as.Tolerance, "horizontal-pod-autoscaler-tolerance", as.Tolerance,
		"the autoscaler does not change the number of pods if usage differs from its target by at most this "+
			"fraction; 0.1 means 10 %")
	fs.DurationVar(&as.CPUInitialization, "horizontal-pod-autoscaler-cpu-initialization-period", as.CPUInitialization,
		"time after a pod's start in which the autoscaler may ignore the pod's CPU usage, because starting "+
			"needs more CPU time than running")
	fs.DurationVar(&as.ReadinessDelay, "horizontal-pod-autoscaler-initial-readiness-delay", as.ReadinessDelay,
		"if a pod is not ready, and its readiness last changed within this time after its start, the "+
			"autoscaler regards it as never ready and ignores its CPU usage")
}

func (o *options) addPeriodFlags(fs *pflag.FlagSet) {
	p := &o.controller.Periods
	fs.DurationVar(&p.Quotas, "resource-quota-sync-period", p.Quotas,
		"how often the usage of each ResourceQuota is counted again, even without changes")
	fs.DurationVar(&p.LegacyTokens, "legacy-service-account-token-clean-up-period", p.LegacyTokens,
		"a service account token in a Secret is marked as invalid if it was not used for this time, and deleted "+
			"if it then was invalid for this time")
	fs.DurationVar(&p.Claims, "pvclaimbinder-sync-period", p.Claims,
		"how often claims that wait for a volume are synced, even without changes")
	fs.DurationVar(&p.Namespaces, "namespace-sync-period", p.Namespaces,
		"how often namespaces that are being deleted are synced, even without changes")
	fs.DurationVar(&p.Attachments, "attach-detach-reconcile-sync-period", p.Attachments,
		"how often the attached volumes of all nodes are compared with the volumes that their pods need; "+
			"must be more than 1 s")
	fs.BoolVar(&o.noAttachedSync, "disable-attach-detach-reconcile-sync", false,
		"do not run the periodic comparison of --attach-detach-reconcile-sync-period")
	fs.BoolVar(&o.controller.KeepAttached, "disable-force-detach-on-timeout", false,
		"never detach a volume from an unhealthy node that may still use it, until the node gets the taint "+
			"node.kubernetes.io/out-of-service; otherwise it is detached after 6 minutes")
}
