// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the proxy's flags and its KubeProxyConfiguration. Defaults and validation
// are those of kube-proxy. As in kube-proxy, most flags that correspond to fields of the
// configuration file are ignored if there is a file, but --hostname-override takes precedence over
// the file. Flags without such a field, such as --network-policy, are never ignored.
package config

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/daemon/zpages"
)

// The values of detectLocalMode: how the proxy recognizes packets from pods.
const (
	ByClusterCIDR     = kubeproxy.LocalMode("ClusterCIDR")
	ByNodeCIDR        = kubeproxy.LocalMode("NodeCIDR")
	ByBridge          = kubeproxy.LocalMode("BridgeInterface")
	ByInterfacePrefix = kubeproxy.LocalMode("InterfaceNamePrefix")
)

// Keywords of nodePortAddresses.
const (
	Primary   = "primary"   // the node's first address of each IP family
	Localhost = "localhost" // the loopback addresses
	All       = "all"       // all addresses
)

const (
	apiVersion  = "kubeproxy.config.k8s.io/v1alpha1"
	kind        = "KubeProxyConfiguration"
	healthPort  = 10256
	metricsPort = 10249
)

// Config is the whole configuration of the process: flags and file.
type Config struct {
	daemon.Flags
	kubeproxy.KubeProxyConfiguration
	// Cleanup makes the process remove the nftables tables that an earlier proxy has created, and
	// exit.
	Cleanup bool
	// Hostname is the name of the node.
	Hostname string
	// SecureMetrics makes the server of metrics, /configz and profiles use TLS with the settings in
	// Metrics, and accept only clients that the API server authorizes.
	SecureMetrics bool
	Metrics       daemon.ServingFlags
	// NetworkPolicy enables the enforcement of NetworkPolicies on the node's pods.
	NetworkPolicy bool
	// TracingFile is the path of a TracingConfiguration; "" means that no spans are exported.
	TracingFile string
	// Values are the values of all flags by name. /flagz shows them.
	Values map[string]string
}

// Parse parses the command line, and reads the configuration file that it names.
func Parse(args []string, output io.Writer) (*Config, error) {
	c := &Config{}
	Default(&c.KubeProxyConfiguration)
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	fs.SetOutput(output)
	c.Flags.Add(fs)
	var file, override string
	fs.StringVar(&file, "config", "",
		"file with a KubeProxyConfiguration; if set, the flags whose help says so are ignored, because the file "+
			"has fields for them")
	fs.StringVar(&override, "hostname-override", "",
		"name of the node on which the proxy runs; takes precedence over hostnameOverride in the file of --config; "+
			"if both are empty, the machine's host name")
	fs.BoolVar(&c.NetworkPolicy, "network-policy", false,
		"enforce NetworkPolicies on the node's pods; do not set this if a CNI plugin enforces them; the "+
			"proxy needs the rights to list and watch networkpolicies, pods and namespaces")
	fs.BoolVar(&c.Cleanup, "cleanup", false, "remove the proxy's nftables tables and exit")
	addFlags(fs, &c.KubeProxyConfiguration)
	c.addMetrics(fs)
	daemon.AddTracingFile(fs, &c.TracingFile)
	if err := daemon.Parse(fs, args); err != nil {
		return nil, err
	}
	c.Values = zpages.Flags(fs)
	if file != "" {
		if err := c.read(file); err != nil {
			return nil, err
		}
	} else if fs.Changed("proxy-mode") {
		defaultNodePorts(&c.KubeProxyConfiguration)
	}
	if c.Kubeconfig != "" && (file == "" || c.ClientConnection.Kubeconfig == "") {
		c.ClientConnection.Kubeconfig = c.Kubeconfig
	}
	if err := c.name(override); err != nil {
		return nil, err
	}
	return c, Validate(&c.KubeProxyConfiguration).ToAggregate()
}

// addFlags defines the flags that correspond to fields of the configuration file.
func addFlags(fs *pflag.FlagSet, k *kubeproxy.KubeProxyConfiguration) {
	const ignored = "; ignored if --config is set"
	fs.StringVar(&k.ClusterCIDR, "cluster-cidr", k.ClusterCIDR, "range of all pod addresses of the cluster (CIDR), or "+
		"an IPv4 and an IPv6 range separated by a comma; see --detect-local-mode"+ignored)
	fs.StringVar(&k.BindAddress, "bind-address", k.BindAddress,
		"IP address that counts as the node's first address, before the addresses in its Node object; 0.0.0.0 and :: mean "+
			"that only the addresses in the Node object count"+ignored)
	fs.StringVar(&k.HealthzBindAddress, "healthz-bind-address", k.HealthzBindAddress,
		"IP address and port on which the proxy serves /healthz and /livez; if empty, it does not serve them"+ignored)
	fs.StringVar(&k.MetricsBindAddress, "metrics-bind-address", k.MetricsBindAddress,
		"IP address and port on which the proxy serves /metrics; if empty, it does not serve it"+ignored)
	fs.BoolVar(&k.BindAddressHardFail, "bind-address-hard-fail", k.BindAddressHardFail,
		"exit if the proxy cannot listen on one of its addresses, instead of trying again"+ignored)
	fs.BoolVar(&k.EnableProfiling, "profiling", k.EnableProfiling,
		"serve profiles at /debug/pprof on --metrics-bind-address"+ignored)
	fs.StringVar((*string)(&k.Mode), "proxy-mode", string(k.Mode), "how the proxy sends connections to endpoints: "+
		"the only mode is nftables; it is used for the values iptables and ipvs too"+ignored)
	fs.BoolVar(&k.NFTables.MasqueradeAll, "masquerade-all", k.NFTables.MasqueradeAll,
		"replace the source address of all connections to cluster IPs of Services by the node's address"+ignored)
	fs.StringVar((*string)(&k.DetectLocalMode), "detect-local-mode", string(k.DetectLocalMode),
		"how the proxy recognizes connections that come from pods: ClusterCIDR (by --cluster-cidr), NodeCIDR (by the "+
			"node's range of pod addresses), BridgeInterface (by --pod-bridge-interface) or InterfaceNamePrefix (by "+
			"--pod-interface-name-prefix); the source address of other connections to cluster IPs is replaced"+ignored)
	fs.StringVar(&k.DetectLocal.BridgeInterface, "pod-bridge-interface", "",
		"name of the bridge to which pods are connected, for --detect-local-mode=BridgeInterface"+ignored)
	fs.StringVar(&k.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "",
		"prefix of the names of pods' interfaces on the node, for --detect-local-mode=InterfaceNamePrefix"+ignored)
	fs.StringSliceVar(&k.NodePortAddresses, "nodeport-addresses", nil,
		"node addresses at which Services of the type NodePort are reachable, separated by commas: ranges (CIDR), or the "+
			"keywords primary (the node's first address of each IP family), all, and localhost (the loopback addresses; "+
			"accepted, but the proxy does not serve node ports on them); if empty, all, or primary if "+
			"--proxy-mode=nftables is set explicitly"+ignored)
}

// addMetrics defines the flags about metrics, which have no field in the configuration file.
func (c *Config) addMetrics(fs *pflag.FlagSet) {
	m := &c.Metrics
	fs.BoolVar(&c.SecureMetrics, "secure-metrics", false,
		"serve metrics by HTTPS, and only to users who may get /metrics according to the API server; "+
			"otherwise they are served by HTTP to every client that can connect")
	fs.StringVar(&m.CertFile, "metrics-tls-cert-file", "",
		"file with the serving certificate for --secure-metrics; if empty, the proxy makes a self-signed "+
			"certificate when it starts")
	fs.StringVar(&m.KeyFile, "metrics-tls-private-key-file", "",
		"file with the private key of --metrics-tls-cert-file")
	fs.StringVar(&m.ClientCAFile, "metrics-client-ca-file", "",
		"file with the CA certificates that verify client certificates, for --secure-metrics; if empty, "+
			"client certificates are not accepted")
	fs.StringVar(&m.MinTLSVersion, "metrics-tls-min-version", "",
		"lowest TLS version that clients may use, for --secure-metrics: VersionTLS12 or VersionTLS13; if "+
			"empty, VersionTLS12")
	fs.StringSliceVar(&m.CipherSuites, "metrics-tls-cipher-suites", nil,
		"cipher suites that clients may use with TLS 1.2, for --secure-metrics, separated by commas; if "+
			"empty, Go's default")
}

func (c *Config) read(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	var k kubeproxy.KubeProxyConfiguration
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		return fmt.Errorf("configuration %s: %w", file, err)
	}
	if k.APIVersion != apiVersion || k.Kind != kind {
		return fmt.Errorf("configuration %s: apiVersion and kind are %q and %q, want %q and %q", file, k.APIVersion, k.Kind,
			apiVersion, kind)
	}
	Default(&k)
	c.KubeProxyConfiguration = k
	return nil
}

func (c *Config) name(override string) error {
	name := override
	if name == "" {
		name = c.HostnameOverride
	}
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return fmt.Errorf("node name: %w", err)
		}
	}
	if c.Hostname = strings.ToLower(strings.TrimSpace(name)); c.Hostname == "" {
		return errors.New("node name: empty hostname")
	}
	return nil
}

// Default sets the defaults of fields that have no value.
func Default(k *kubeproxy.KubeProxyConfiguration) {
	k.APIVersion, k.Kind = apiVersion, kind
	set(&k.BindAddress, "0.0.0.0")
	health, metrics := "0.0.0.0", "127.0.0.1"
	if a, err := netip.ParseAddr(k.BindAddress); err == nil && a.Is6() {
		health, metrics = "::", "::1"
	}
	set(&k.HealthzBindAddress, health)
	set(&k.MetricsBindAddress, metrics)
	k.HealthzBindAddress = withPort(k.HealthzBindAddress, healthPort)
	k.MetricsBindAddress = withPort(k.MetricsBindAddress, metricsPort)
	defaultNodePorts(k)
	set(&k.Mode, "nftables")
	set(&k.DetectLocalMode, ByClusterCIDR)
	for _, d := range []*time.Duration{&k.IPTables.SyncPeriod.Duration, &k.IPVS.SyncPeriod.Duration,
		&k.NFTables.SyncPeriod.Duration} {
		set(d, 30*time.Second)
	}
	set(&k.ConfigSyncPeriod.Duration, 15*time.Minute)
	for _, bit := range []**int32{&k.IPTables.MasqueradeBit, &k.NFTables.MasqueradeBit} {
		if *bit == nil {
			*bit = new(int32)
			**bit = 14
		}
	}
	ct := &k.Conntrack
	if ct.MaxPerCore == nil {
		ct.MaxPerCore = ptr.To[int32](32 << 10)
	}
	if ct.Min == nil {
		ct.Min = ptr.To[int32](128 << 10)
	}
	if ct.TCPEstablishedTimeout == nil {
		ct.TCPEstablishedTimeout = &metav1.Duration{Duration: 24 * time.Hour}
	}
	if ct.TCPCloseWaitTimeout == nil {
		ct.TCPCloseWaitTimeout = &metav1.Duration{Duration: time.Hour}
	}
	set(&k.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
}

// defaultNodePorts sets the default of nodePortAddresses for an explicit mode. As in kube-proxy,
// node ports are served on all addresses, except in the mode nftables, where only the primary
// addresses have them. Without an explicit mode, all addresses have them, because kube-proxy's
// default mode is iptables.
func defaultNodePorts(k *kubeproxy.KubeProxyConfiguration) {
	if k.Mode == "nftables" && len(k.NodePortAddresses) == 0 {
		k.NodePortAddresses = []string{Primary}
	}
}

func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// withPort returns an address with the given port, unless the address already has a port.
func withPort(address string, port int) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(port))
}

// Validate returns the errors in a configuration.
func Validate(k *kubeproxy.KubeProxyConfiguration) field.ErrorList {
	root := field.NewPath("KubeProxyConfiguration")
	var errs field.ErrorList
	bad := func(p *field.Path, v any, why string) { errs = append(errs, field.Invalid(p, v, why)) }
	switch k.Mode {
	case "iptables", "ipvs", "nftables":
	default:
		bad(root.Child("ProxyMode"), k.Mode, "must be iptables,ipvs,nftables or blank")
	}
	if net.ParseIP(k.BindAddress) == nil {
		bad(root.Child("BindAddress"), k.BindAddress, "not a valid textual representation of an IP address")
	}
	for name, v := range map[string]string{"HealthzBindAddress": k.HealthzBindAddress,
		"MetricsBindAddress": k.MetricsBindAddress} {
		if err := validateHostPort(v); err != nil {
			bad(root.Child(name), v, err.Error())
		}
	}
	if b := *k.NFTables.MasqueradeBit; b < 0 || b > 31 {
		bad(root.Child("KubeProxyNFTablesConfiguration", "MasqueradeBit"), b, "must be within the range [0, 31]")
	}
	if d := k.NFTables.SyncPeriod.Duration; d <= 0 {
		bad(root.Child("SyncPeriod"), d, "must be greater than 0")
	}
	errs = append(errs, validateNodePorts(k.NodePortAddresses, root.Child("NodePortAddresses"))...)
	return append(errs, validateLocal(k, root)...)
}

func validateNodePorts(list []string, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range list {
		switch s {
		case Primary, Localhost, All:
			if slices.Contains(list[:i], s) {
				errs = append(errs, field.Duplicate(p.Index(i), s))
			}
			continue
		}
		if _, err := netip.ParsePrefix(s); err != nil {
			errs = append(errs, field.Invalid(p.Index(i), s,
				"must be a valid CIDR or one of the keywords 'primary', 'localhost', 'all'"))
		}
	}
	return errs
}

func validateLocal(k *kubeproxy.KubeProxyConfiguration, root *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch k.DetectLocalMode {
	case ByClusterCIDR, ByNodeCIDR:
	case ByBridge:
		if k.DetectLocal.BridgeInterface == "" {
			errs = append(errs, field.Invalid(root.Child("DetectLocalConfiguration", "InterfaceName"), "", "must not be empty"))
		}
	case ByInterfacePrefix:
		if k.DetectLocal.InterfaceNamePrefix == "" {
			errs = append(errs, field.Invalid(root.Child("DetectLocalConfiguration", "InterfacePrefix"), "",
				"must not be empty"))
		}
	default:
		errs = append(errs, field.NotSupported(root.Child("DetectLocalMode"), k.DetectLocalMode,
			[]kubeproxy.LocalMode{ByClusterCIDR, ByNodeCIDR, ByBridge, ByInterfacePrefix}))
	}
	for _, s := range ClusterCIDRs(k) {
		if _, err := netip.ParsePrefix(s); err != nil {
			errs = append(errs, field.Invalid(root.Child("ClusterCIDR"), s,
				"must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"))
		}
	}
	return errs
}

// ClusterCIDRs returns the ranges in the field clusterCIDR, which separates them by commas.
func ClusterCIDRs(k *kubeproxy.KubeProxyConfiguration) []string {
	if k.ClusterCIDR == "" {
		return nil
	}
	return strings.Split(k.ClusterCIDR, ",")
}

func validateHostPort(s string) error {
	if s == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("must be IP:port")
	}
	if net.ParseIP(host) == nil {
		return errors.New("must be a valid IP")
	}
	if p, err := strconv.Atoi(port); err != nil || p < 1 || p > 65535 {
		return errors.New("must be a valid port")
	}
	return nil
}
