// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command implements the process of the controller manager: its flags, clients, leader
// election, HTTP endpoints, and the start of all controllers.
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

// Default values as in Kubernetes.
const (
	defaultPort  = 10257
	nodeGrace    = 50 * time.Second
	startupGrace = 60 * time.Second
	signedLife   = 365 * 24 * time.Hour
	endedPods    = 12500
	maxSlice     = 1000 // the maximum number of endpoints in a slice that the API allows
	workers      = 5    // the number of workers of a controller that has no flag for it
)

type options struct {
	daemon.Flags
	serving     daemon.ServingFlags
	election    daemon.ElectionFlags
	tracing     string // the value of the flag --tracing-config-file
	flags       *pflag.FlagSet
	controllers []string
	ownAccounts bool
	collects    bool

	// Settings of the connection to the API server.
	master, contentType string
	qps                 float32
	burst               int

	clusterCIDR, serviceCIDR, rootCA string
	loadBalancers                    []string
	ingressAccount                   string
	mask, mask4, mask6               int
	// contention enables profiling of lock contention. provisions enables dynamic provisioning of
	// volumes. pause is the time between the starts of two controllers. resync is the minimum
	// resync period of the informers; 0 disables resyncs.
	contention, provisions bool
	pause, resync          time.Duration
	// noAttachedSync disables the periodic sync of the volumes attached to all nodes.
	noAttachedSync bool
	// signers are the certificate authority files that are set for a single signer, by the signer's
	// name in flags.
	signers map[string]*keyFiles
	// saKey, signCert and signKey are the files with the keys and the certificate that controllers
	// sign with.
	saKey, signCert, signKey string
	// syncs is the number of workers, by controller name, for the controllers that have a flag for
	// it.
	syncs      map[string]*int
	controller controller.Options
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{
		serving:  daemon.ServingFlags{BindAddress: net.IPv4zero, SecurePort: defaultPort},
		election: daemon.DefaultElection("kube-controller-manager"), controllers: []string{"*"},
		controller: controller.Options{
			NodeGrace: nodeGrace, NodeStartupGrace: startupGrace,
			Autoscaling: controller.DefaultAutoscaling(), Periods: controller.DefaultPeriods(),
			Slices: controller.DefaultSlices(),
		},
	}
	fs := pflag.NewFlagSet("controller-manager", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	o.Flags.Add(fs)
	o.serving.Add(fs)
	o.election.Add(fs)
	daemon.AddTracingFile(fs, &o.tracing)
	if err := o.controller.Features.AddEmulation(fs); err != nil {
		return nil, err
	}
	o.addProcessFlags(fs)
	o.addNetworkFlags(fs)
	o.addSigningFlags(fs)
	o.addNodeFlags(fs)
	o.addAutoscalingFlags(fs)
	o.addPeriodFlags(fs)
	addUnused(fs)
	o.flags = fs
	o.syncs = addSyncs(fs)
	if err := daemon.Parse(fs, args); err != nil {
		return nil, err
	}
	if err := o.controller.Features.Complete(); err != nil {
		return nil, err
	}
	return o, o.complete()
}

// connect applies the flags for requests to the API server to the client configuration rc.
func (o *options) connect(rc *rest.Config) {
	if o.master != "" {
		rc.Host = o.master
	}
	if at, err := url.Parse(rc.Host); err == nil && at.Hostname() != "" {
		o.controller.ServerNames = []string{at.Hostname()}
	}
	rc.QPS, rc.Burst, rc.ContentType = o.qps, o.burst, o.contentType
}

// resyncPeriod returns a random period between the minimum resync period and twice that, so that
// several processes do not resync at the same time.
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

// complete validates the values of the flags and reads the files that they name.
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
	if o.rootCA != "" {
		o.controller.ReadRootCA = followRootCA(o.rootCA, o.controller.RootCA)
	}
	if o.signCert != "" && o.signKey != "" {
		o.controller.ReadSigning = (&keyFiles{o.signCert, o.signKey}).read
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

// runs reports whether the flag --controllers includes the controller with the given name.
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
