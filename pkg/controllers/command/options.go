// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command is the controller manager's process: flags, clients, leader election and
// endpoints for the controllers in the table.
package command

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/controllers"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/garbagecollector"
	"keelson.dev/keelson/pkg/daemon"
)

// Kubernetes' defaults.
const (
	defaultPort  = 10257
	nodeGrace    = 50 * time.Second
	startupGrace = 60 * time.Second
	signedLife   = 365 * 24 * time.Hour
	endedPods    = 12500
	maxSlice     = 1000 // the API's limit of endpoints per slice
	workers      = 5    // for controllers without a flag for it
)

type options struct {
	daemon.Flags
	serving     daemon.ServingFlags
	election    daemon.ElectionFlags
	flags       *pflag.FlagSet
	controllers []string
	ownAccounts bool
	collects    bool

	// Connection to the API server.
	master, contentType string
	qps                 float32
	burst               int

	clusterCIDR, serviceCIDR, rootCA string
	loadBalancers                    []string
	ingressAccount                   string
	mask, mask4, mask6               int
	// contention enables profiling of contention. provisions enables dynamic provisioning.
	contention, provisions bool
	// noAttachedSync disables the periodic sync of the nodes' volumes.
	noAttachedSync bool
	pause, resync  time.Duration
	// signers are the files with the certificate authorities of single signers.
	signers map[string]*keyFiles
	// Files with the keys of controllers that sign.
	saKey, signCert, signKey string
	// syncs is the number of workers of each controller that has a flag for it.
	syncs      map[string]*int
	controller controller.Options
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{
		serving:  daemon.ServingFlags{BindAddress: net.IPv4zero, SecurePort: defaultPort},
		election: daemon.DefaultElection("kube-controller-manager"), controllers: []string{"*"},
		controller: controller.Options{
			NodeGrace: nodeGrace, NodeStartupGrace: startupGrace,
			Autoscaling: controller.DefaultAutoscaling(), Periods: controller.DefaultPeriods(), Slices: controller.DefaultSlices(),
		},
	}
	fs := pflag.NewFlagSet("controller-manager", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	o.Flags.Add(fs)
	o.serving.Add(fs)
	o.election.Add(fs)
	fs.StringSliceVar(&o.controllers, "controllers", o.controllers, "controllers to run: '*' for all, NAME for one, -NAME for all but that one. There are: "+strings.Join(names(), ", "))
	fs.BoolVar(&o.ownAccounts, "use-service-account-credentials", false, "let each controller act as a service account of its own")
	fs.BoolVar(&o.controller.AllocateNodeCIDRs, "allocate-node-cidrs", false, "give nodes ranges of --cluster-cidr")
	fs.StringVar(&o.clusterCIDR, "cluster-cidr", "", "addresses of pods, one range for each family, separated by a comma")
	fs.StringVar(&o.serviceCIDR, "service-cluster-ip-range", "", "addresses of services, which pods do not get")
	fs.StringVar(&o.ingressAccount, "ingress-service-account", "", "namespace/name of the service account that may read the certificates of Ingresses, those of the class of Keelson's ingress proxy; empty: none")
	fs.StringSliceVar(&o.loadBalancers, "load-balancer-addresses", nil, "addresses for services of type LoadBalancer, which nodes announce on their link: ranges as FIRST-LAST or as a prefix, separated by commas; without any, another controller's task")
	fs.IntVar(&o.mask, "node-cidr-mask-size", 0, "size of a node's range, of either family")
	fs.IntVar(&o.mask4, "node-cidr-mask-size-ipv4", 24, "size of a node's IPv4 range")
	fs.IntVar(&o.mask6, "node-cidr-mask-size-ipv6", 64, "size of a node's IPv6 range")
	fs.StringVar(&o.rootCA, "root-ca-file", "", "certificate by which pods know the API server")
	fs.StringVar(&o.saKey, "service-account-private-key-file", "", "key that signs the tokens of service accounts")
	fs.StringVar(&o.signCert, "cluster-signing-cert-file", "", "authority that signs certificates")
	fs.StringVar(&o.signKey, "cluster-signing-key-file", "", "key of --cluster-signing-cert-file")
	o.addSigners(fs)
	fs.DurationVar(&o.controller.SigningDuration, "cluster-signing-duration", signedLife, "longest life of certificates that are signed")
	fs.BoolVar(&o.controller.ApproveServing, "approve-kubelet-serving", false, "approve kubelets' requests for serving certificates for their own nodes' names and addresses")
	fs.BoolVar(&o.controller.ProtectNodes, "protect-node-identities", false, "approve kubelets' requests for client certificates automatically only for new nodes and for a node's own renewal; all other requests wait for manual approval")
	fs.DurationVar(&o.controller.NodeGrace, "node-monitor-grace-period", nodeGrace, "how long a node may be silent")
	fs.DurationVar(&o.controller.NodeStartupGrace, "node-startup-grace-period", startupGrace, "how long a new node may be silent")
	ev := &o.controller.Evictions
	fs.Float64Var(&ev.Rate, "node-eviction-rate", 0.1, "from how many nodes in a second pods are evicted, in a zone that is healthy")
	fs.Float64Var(&ev.SecondaryRate, "secondary-node-eviction-rate", 0.01, "from how many in a zone that is not healthy, and large")
	fs.IntVar(&ev.LargeZone, "large-cluster-size-threshold", 50, "with how many nodes a zone is not yet large")
	fs.Float64Var(&ev.Threshold, "unhealthy-zone-threshold", 0.55, "what part of the nodes of a zone has to be not ready (and at least 3 nodes) for it not to be healthy")
	fs.IntVar(&o.controller.EndedPods, "terminated-pod-gc-threshold", endedPods, "how many ended pods are kept; all if it is not positive")
	as := &o.controller.Autoscaling
	fs.DurationVar(&as.Period, "horizontal-pod-autoscaler-sync-period", as.Period, "how often an autoscaler is looked at")
	fs.DurationVar(&as.DownWindow, "horizontal-pod-autoscaler-downscale-stabilization", as.DownWindow, "for how long the highest number of pods proposed holds")
	fs.Float64Var(&as.Tolerance, "horizontal-pod-autoscaler-tolerance", as.Tolerance, "by what part usage may be off before pods are added or removed")
	fs.DurationVar(&as.CPUInitialization, "horizontal-pod-autoscaler-cpu-initialization-period", as.CPUInitialization, "for how long after its start what a pod uses may tell nothing")
	fs.DurationVar(&as.ReadinessDelay, "horizontal-pod-autoscaler-initial-readiness-delay", as.ReadinessDelay, "until how long after its start a pod that is not ready has not been yet")
	fs.DurationVar(&o.controller.Periods.Quotas, "resource-quota-sync-period", o.controller.Periods.Quotas, "how often everything that quotas limit is counted in any case")
	fs.DurationVar(&o.controller.Periods.LegacyTokens, "legacy-service-account-token-clean-up-period", o.controller.Periods.LegacyTokens, "how long a token that nobody asked for may be unused before it is marked as invalid, and how long after that it is deleted")
	fs.DurationVar(&o.controller.Periods.Claims, "pvclaimbinder-sync-period", o.controller.Periods.Claims, "how often claims that wait for volumes are looked at in any case")
	fs.DurationVar(&o.controller.Periods.Namespaces, "namespace-sync-period", o.controller.Periods.Namespaces, "how often namespaces that are being deleted are looked at in any case")
	fs.DurationVar(&o.controller.Periods.Attachments, "attach-detach-reconcile-sync-period", o.controller.Periods.Attachments, "how often the volumes of all nodes are looked at in any case; more than a second")
	fs.BoolVar(&o.noAttachedSync, "disable-attach-detach-reconcile-sync", false, "look at the volumes of nodes only when something changes")
	fs.BoolVar(&o.controller.KeepAttached, "disable-force-detach-on-timeout", false, "detach nothing that a node may have in use, however long the node has been unwell, until it is tainted as out of service")
	sl := &o.controller.Slices
	fs.IntVar(&sl.MaxEndpoints, "max-endpoints-per-slice", sl.MaxEndpoints, "how many endpoints a slice has at most")
	fs.DurationVar(&sl.Batch, "endpointslice-updates-batch-period", 0, "how long changes of pods are gathered before slices are written")
	fs.IntVar(&sl.MaxMirrored, "mirroring-max-endpoints-per-subset", sl.MaxMirrored, "how many addresses of a subset of Endpoints are mirrored at most")
	fs.DurationVar(&sl.MirrorBatch, "mirroring-endpointslice-updates-batch-period", 0, "how long changes of Endpoints are gathered before slices are written")
	fs.BoolVar(&o.provisions, "enable-dynamic-provisioning", true, "hand claims over to provisioners")
	fs.BoolVar(&o.contention, "contention-profiling", false, "profile where goroutines wait")
	fs.DurationVar(&o.pause, "controller-start-interval", 0, "pause between the starts of two controllers")
	fs.DurationVar(&o.resync, "min-resync-period", 0, "how often at least controllers look at everything again; 0: they follow changes alone")
	fs.BoolVar(&o.collects, "enable-garbage-collector", true, "run the garbage collector; it has to be as the API server has it")
	fs.StringVar(&o.master, "master", "", "URL of the API server, instead of that of --kubeconfig")
	fs.Float32Var(&o.qps, "kube-api-qps", -1, "calls in a second that each controller may make; not limited if it is negative")
	fs.IntVar(&o.burst, "kube-api-burst", 0, "by how many calls --kube-api-qps may be exceeded")
	fs.StringVar(&o.contentType, "kube-api-content-type", "application/vnd.kubernetes.protobuf", "what calls are encoded in")
	addUnused(fs)
	o.flags = fs
	o.syncs = addSyncs(fs)
	if err := daemon.Parse(fs, args); err != nil {
		return nil, err
	}
	return o, o.complete()
}

// connect applies the flags for API calls to a client's configuration.
func (o *options) connect(rc *rest.Config) {
	if o.master != "" {
		rc.Host = o.master
	}
	if at, err := url.Parse(rc.Host); err == nil && at.Hostname() != "" {
		o.controller.ServerNames = []string{at.Hostname()}
	}
	rc.QPS, rc.Burst, rc.ContentType = o.qps, o.burst, o.contentType
}

// resyncPeriod returns a random period between the minimum and twice the minimum, so that processes
// do not resync at the same time.
func (o *options) resyncPeriod() time.Duration {
	return wait.Jitter(o.resync, 1)
}

func names() []string {
	var out []string
	for _, e := range controllers.Table() {
		out = append(out, e.Name)
	}
	return out
}

// complete validates the flags and reads the files that they name.
func (o *options) complete() error {
	var err error
	if o.controllers, err = canonical(o.controllers, names()); err != nil {
		return err
	}
	for name, n := range o.syncs {
		if *n < 1 {
			return fmt.Errorf("--%s must be at least 1", upstream[name].flag)
		}
	}
	if o.controller.ClusterCIDRs, err = prefixes(o.clusterCIDR); err != nil {
		return fmt.Errorf("--cluster-cidr: %w", err)
	}
	if o.controller.ServiceCIDRs, err = prefixes(o.serviceCIDR); err != nil {
		return fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	if n := o.controller.Slices.MaxEndpoints; n < 1 || n > maxSlice {
		return fmt.Errorf("--max-endpoints-per-slice must be from 1 to %d", maxSlice)
	}
	if n := o.controller.Slices.MaxMirrored; n < 1 || n > maxSlice {
		return fmt.Errorf("--mirroring-max-endpoints-per-subset must be from 1 to %d", maxSlice)
	}
	if p := &o.controller.Periods.Attachments; o.noAttachedSync {
		*p = 0
	} else if *p <= time.Second {
		return errors.New("--attach-detach-reconcile-sync-period must be longer than 1 s")
	}
	o.controller.NoProvisioning = !o.provisions
	if err := o.readSigners(); err != nil {
		return err
	}
	for _, text := range o.loadBalancers {
		r, err := controller.ParseAddressRange(text)
		if err != nil {
			return fmt.Errorf("--load-balancer-addresses: %w", err)
		}
		o.controller.LoadBalancerRanges = append(o.controller.LoadBalancerRanges, r)
	}
	if o.ingressAccount != "" {
		namespace, name, ok := strings.Cut(o.ingressAccount, "/")
		if !ok || namespace == "" || name == "" {
			return fmt.Errorf("--ingress-service-account: %q is not namespace/name", o.ingressAccount)
		}
		o.controller.IngressAccount = types.NamespacedName{Namespace: namespace, Name: name}
	}
	if o.controller.AllocateNodeCIDRs && len(o.controller.ClusterCIDRs) == 0 {
		return fmt.Errorf("--allocate-node-cidrs needs --cluster-cidr")
	}
	for _, p := range o.controller.ClusterCIDRs {
		mask := o.mask4
		if p.Addr().Is6() {
			mask = o.mask6
		}
		if o.mask > 0 {
			mask = o.mask
		}
		o.controller.NodeMasks = append(o.controller.NodeMasks, mask)
	}
	for _, f := range []struct {
		flag, path string
		to         *[]byte
	}{
		{"root-ca-file", o.rootCA, &o.controller.RootCA},
		{"service-account-private-key-file", o.saKey, &o.controller.TokenKey},
		{"cluster-signing-cert-file", o.signCert, &o.controller.SigningCert},
		{"cluster-signing-key-file", o.signKey, &o.controller.SigningKey},
	} {
		if f.path == "" {
			continue
		}
		if *f.to, err = os.ReadFile(f.path); err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
	}
	return nil
}

func prefixes(text string) ([]netip.Prefix, error) {
	if text == "" {
		return nil, nil
	}
	var out []netip.Prefix
	for _, s := range strings.Split(text, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// runs reports whether --controllers includes a controller.
func (o *options) runs(name string) bool {
	if name == garbagecollector.Name && !o.collects {
		return false
	}
	all := false
	for _, c := range o.controllers {
		switch c {
		case name:
			return true
		case "-" + name:
			return false
		case "*":
			all = true
		}
	}
	return all && !upstream[name].off
}
