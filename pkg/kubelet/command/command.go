// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command runs the kubelet's process. It reads the flags and the configuration file,
// creates the clients, and runs a kubelet.Kubelet.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/daemon/zpages"
	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/kubelet"
	"keelson.dev/keelson/pkg/kubelet/certificates"
	"keelson.dev/keelson/pkg/kubelet/localdisk"
	"keelson.dev/keelson/pkg/outbound"
)

const (
	defaultRoot = "/var/lib/kubelet"
	// networkOwn and networkExternal are the accepted values of --network-plugin.
	networkOwn, networkExternal = "keelson", "external"
)

type options struct {
	daemon.Flags
	// Flags for the node and its files:
	config, hostname, nodeIP, rootDir, certDir, bootstrap, manifests, url string
	labels                                                                map[string]string
	taints, enforce                                                       []string
	// Flags for the runtime, images, volumes and the network:
	endpoint, runtimeCgroups, network string
	podNetwork                        []string
	plugins                           kubelet.Plugins
	diskVolumes                       bool
	// values holds the values of all flags. The kubelet serves them at /flagz.
	values map[string]string
}

func parse(args []string, stderr io.Writer) (*options, *kubeletconfig.KubeletConfiguration, error) {
	o := &options{rootDir: defaultRoot, network: networkOwn}
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	o.Flags.Add(fs)
	fs.StringVar(&o.config, "config", o.config,
		"file with a KubeletConfiguration (YAML or JSON); if empty, all fields have their defaults")
	fs.StringVar(&o.hostname, "hostname-override", o.hostname,
		"name of the node; if empty, the machine's host name")
	fs.StringVar(&o.nodeIP, "node-ip", o.nodeIP,
		"IP address of the node, or two of different families, separated by a comma, the primary address "+
			"first; required")
	fs.StringVar(&o.rootDir, "root-dir", o.rootDir, "directory for pods, volumes and other state of the kubelet")
	fs.StringVar(&o.certDir, "cert-dir", o.certDir,
		"directory for the kubelet's certificates; if empty, the directory pki in --root-dir")
	fs.StringVar(&o.bootstrap, "bootstrap-kubeconfig", o.bootstrap,
		"kubeconfig file with a join token, with which the kubelet requests a client certificate if the file "+
			"of --kubeconfig does not exist or has no valid credentials")
	fs.StringVar(&o.endpoint, "container-runtime-endpoint", o.endpoint,
		"socket of the container runtime; replaces containerRuntimeEndpoint in the file of --config")
	fs.StringVar(&o.manifests, "pod-manifest-path", o.manifests,
		"file or directory with manifests of static pods; replaces staticPodPath in the file of --config")
	fs.StringVar(&o.url, "manifest-url", o.url,
		"URL from which the kubelet reads manifests of static pods; replaces staticPodURL in the file of "+
			"--config")
	fs.StringVar(&o.plugins.Config, "image-credential-provider-config", "",
		"file with a CredentialProviderConfig, or directory of such files, which names the programs that the "+
			"kubelet runs to get credentials for image registries; if empty, it runs none")
	fs.StringVar(&o.plugins.BinDir, "image-credential-provider-bin-dir", "",
		"directory with the programs that --image-credential-provider-config names")
	fs.StringVar(&o.runtimeCgroups, "runtime-cgroups", "",
		"cgroup of the container runtime, whose resource usage the kubelet reports; if empty, the cgroup of "+
			"the process that listens on the runtime's socket")
	fs.StringVar(&o.network, "network-plugin", o.network,
		"which program sets up the pod network: keelson (the kubelet, with the CNI plugin of Keelson), or external (a CNI "+
			"plugin that you install)")
	fs.StringSliceVar(&o.podNetwork, "pod-network-cidrs", nil,
		"ranges of all pod addresses of the cluster (CIDR), separated by commas; the kubelet makes routes to "+
			"other nodes' pods only inside these ranges; if empty, inside any range that a Node object "+
			"contains")
	fs.BoolVar(&o.diskVolumes, "disk-volumes", false,
		"run the storage driver "+localdisk.Name+" in the kubelet, which makes volumes on the node's own disk")
	fs.StringToStringVar(&o.labels, "node-labels", nil,
		"labels that the Node gets when the kubelet registers it, as KEY=VALUE, separated by commas")
	fs.StringSliceVar(&o.enforce, "enforce-node-allocatable", nil,
		"cgroups whose resources the kubelet limits, separated by commas: pods, system-reserved, "+
			"kube-reserved, their variants that end in -compressible (only CPU), or none; replaces "+
			"enforceNodeAllocatable in the file of --config")
	fs.StringSliceVar(&o.taints, "register-with-taints", nil,
		"taints that the Node gets when the kubelet registers it, as KEY=VALUE:EFFECT, separated by commas")
	if err := daemon.Parse(fs, args); err != nil {
		return nil, nil, err
	}
	o.values = zpages.Flags(fs)
	if o.network != networkOwn && o.network != networkExternal {
		return nil, nil, fmt.Errorf("--network-plugin=%s: want %s or %s", o.network, networkOwn, networkExternal)
	}
	if (o.plugins.Config == "") != (o.plugins.BinDir == "") {
		return nil, nil, errors.New(
			"--image-credential-provider-config and --image-credential-provider-bin-dir must be set together")
	}
	c, err := load(o.config)
	if err != nil {
		return nil, nil, err
	}
	if o.endpoint != "" {
		c.ContainerRuntimeEndpoint = o.endpoint
	}
	if o.url != "" {
		c.StaticPodURL = o.url
	}
	if o.manifests != "" {
		c.StaticPodPath = o.manifests
	}
	if fs.Changed("enforce-node-allocatable") {
		c.EnforceNodeAllocatable = o.enforce
	}
	for _, text := range o.taints {
		t, err := parseTaint(text)
		if err != nil {
			return nil, nil, fmt.Errorf("--register-with-taints: %w", err)
		}
		c.RegisterWithTaints = append(c.RegisterWithTaints, t)
	}
	return o, c, nil
}

func parseTaint(text string) (v1.Taint, error) {
	key, effect, ok := strings.Cut(text, ":")
	if !ok || key == "" {
		return v1.Taint{}, fmt.Errorf("%q is not KEY=VALUE:EFFECT", text)
	}
	t := v1.Taint{Effect: v1.TaintEffect(effect)}
	t.Key, t.Value, _ = strings.Cut(key, "=")
	switch t.Effect {
	case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
		return t, nil
	}
	return v1.Taint{}, fmt.Errorf("%q: %q is not an effect of a taint", text, effect)
}

// addresses parses the flag --node-ip: one IP address, or one of each family, separated by a comma.
func addresses(text string) ([]string, error) {
	if text == "" {
		return nil, errors.New("--node-ip is required")
	}
	ips, invalid, err := nodeutil.ParseNodeIPArgument(text, "")
	if len(invalid) > 0 {
		err = fmt.Errorf("could not parse %q", invalid)
	}
	var out []string
	for _, ip := range ips {
		err = cmp.Or(err, checkAddress(ip))
		out = append(out, ip.String())
	}
	if err != nil {
		return nil, fmt.Errorf("bad --node-ip %q: %w", text, err)
	}
	return out, nil
}

// checkAddress returns an error if other nodes could not reach the kubelet at this address. The
// kinds of addresses are those that Kubernetes does not accept.
func checkAddress(ip net.IP) error {
	switch {
	case ip.IsLoopback():
		return errors.New("nodeIP can't be loopback address")
	case ip.IsMulticast():
		return errors.New("nodeIP can't be a multicast address")
	case ip.IsLinkLocalUnicast():
		return errors.New("nodeIP can't be a link-local unicast address")
	case ip.IsUnspecified():
		return errors.New("nodeIP can't be an all zeros address")
	}
	return nil
}

// Run runs the kubelet's process with the given command-line arguments. It returns when ctx ends or
// the kubelet fails.
func Run(ctx context.Context, args []string, stderr io.Writer) error {
	o, c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	ips, err := addresses(o.nodeIP)
	if err != nil {
		return err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if o.hostname != "" {
		hostname = o.hostname
	}
	if o.certDir == "" {
		o.certDir = filepath.Join(o.rootDir, "pki")
	}
	if err := os.MkdirAll(o.rootDir, 0o750); err != nil {
		return fmt.Errorf("--root-dir: %w", err)
	}
	log := daemon.NewLog(stderr, o.Verbosity)
	if err := prepareProcess(c, log); err != nil {
		return err
	}
	registry := daemon.NewMetrics()
	if err := features.Register(registry, &features.Options{Turned: c.FeatureGates}); err != nil {
		return err
	}
	name := strings.ToLower(strings.TrimSpace(hostname))
	spans, err := daemon.NewTracing(ctx, c.Tracing, "kubelet", hostname)
	if err != nil {
		return err
	}
	defer spans.End(ctx, log)
	id := &identity{options: o, tracing: spans, qps: c.KubeAPIQPS, burst: c.KubeAPIBurst,
		config: certificates.Config{NodeName: name, Dir: o.certDir, Clock: clock.Real(), Log: log, Metrics: registry}}
	client, err := id.client(ctx)
	if err != nil {
		return err
	}
	serving, err := id.certificates(client, c, ips)
	if err != nil {
		return err
	}
	pods, err := outbound.ParseRanges(o.podNetwork)
	if err != nil {
		return fmt.Errorf("--pod-network-cidrs: %w", err)
	}
	k, err := kubelet.New(kubelet.Config{
		GetCertificate: serving,
		Client:         client, Kubelet: c, NodeName: name, Hostname: name, NodeIPs: ips, Labels: o.labels,
		RootDir: o.rootDir, CertDir: o.certDir, Plugins: o.plugins, RuntimeCgroups: o.runtimeCgroups,
		ExternalNetwork: o.network == networkExternal, PodNetwork: pods, DiskVolumes: o.diskVolumes, Version: daemon.Version,
		Flags: o.values, Tracing: spans, Clock: clock.Real(), Log: log, Metrics: registry,
	})
	if err != nil {
		return err
	}
	var keeping sync.WaitGroup
	defer keeping.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, m := range id.managers {
		keeping.Go(func() { m.Run(ctx) })
	}
	return k.Run(ctx)
}
