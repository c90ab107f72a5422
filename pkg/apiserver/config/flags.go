// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	netutils "k8s.io/utils/net"

	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/daemon/zpages"
)

// Parse reads flags into a Config and validates it. Usage and errors of the
// flags themselves are written to stderr.
func Parse(args []string, stderr io.Writer) (Config, error) {
	c := Default()
	fs := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.SortFlags = false
	c.addStorage(fs)
	var apis switches
	c.addServing(fs, &apis)
	c.addAuthn(fs)
	c.addPolicy(fs)
	c.Audit.addFlags(fs)
	c.Authentication.addFlags(fs)
	c.Authorization.addFlags(fs)
	c.Transport.add(fs)
	c.HTTP.addFlags(fs)
	c.Etcd.addFlags(fs)
	c.Serving.addFlags(fs)
	c.Endpoints.addFlags(fs)
	c.Debug.addFlags(fs)
	c.Metrics.addFlags(fs)
	c.accepted.addFlags(fs)
	c.Log.Add(fs)
	if err := c.Features.AddFlags(fs); err != nil {
		return c, err
	}
	verbosity := fs.UintP("v", "v", 0, "verbosity of the log, from 0; administrators can change it by PUT /debug/flags/v")
	if err := daemon.Parse(fs, args); err != nil {
		return c, err
	}
	if err := c.Features.Note(); err != nil {
		return c, err
	}
	if err := c.Log.Validate(); err != nil {
		return c, err
	}
	c.Verbosity.Set(int(min(*verbosity, math.MaxInt32)))
	c.Flags = zpages.Flags(fs)
	c.AnonymousAuthSet = fs.Changed("anonymous-auth")
	c.Authentication.note(fs)
	c.Authorization.note(fs)
	c.flagged = true
	if len(c.AuthorizationModes) == 0 && c.Authorization.File == "" {
		c.AuthorizationModes = []string{ModeAlwaysAllow}
	}
	asked, wrong := apis.states()
	c.RuntimeConfig = asked
	if err := c.Validate(); err != nil {
		return c, err
	}
	return c, wrong
}

func (c *Config) addStorage(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.EtcdServers, "etcd-servers", c.EtcdServers,
		"etcd endpoints (scheme://host:port); if empty, the server runs an embedded etcd with its files in --data-dir")
	fs.StringVar(&c.EtcdCAFile, "etcd-cafile", "", "CA of the etcd servers")
	fs.StringVar(&c.EtcdCertFile, "etcd-certfile", "", "client certificate for etcd")
	fs.StringVar(&c.EtcdKeyFile, "etcd-keyfile", "", "key of --etcd-certfile")
	fs.StringVar(&c.EtcdPrefix, "etcd-prefix", c.EtcdPrefix, "prefix of all keys in etcd")
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory of the embedded etcd and of waiting audit events")
	fs.StringVar(&c.EncryptionConfig, "encryption-provider-config", "",
		"EncryptionConfiguration for values in etcd; empty: values are not encrypted")
	fs.BoolVar(&c.EncryptionReload, "encryption-provider-config-automatic-reload", false,
		"reload --encryption-provider-config when it changes")
	fs.DurationVar(&c.EventTTL, "event-ttl", c.EventTTL, "how long events are kept")
}

func (c *Config) addServing(fs *pflag.FlagSet, apis *switches) {
	fs.Var((*address)(&c.BindAddress), "bind-address", "IP address to listen on")
	fs.Var((*address)(&c.AdvertiseAddress), "advertise-address",
		"IP address at which members of the cluster reach this server")
	fs.IntVar(&c.SecurePort, "secure-port", c.SecurePort, "port to serve HTTPS on")
	fs.StringVar(&c.TLSCertFile, "tls-cert-file", "", "file with the serving certificate and its chain; "+
		"reloaded when it changes; if empty, a self-signed certificate in --cert-dir is used")
	fs.StringVar(&c.TLSKeyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	fs.Var(cliflag.NewNamedCertKeyArray(&c.SNICerts), "tls-sni-cert-key",
		"certificate,key or certificate,key:names of a certificate for clients that connect to one of the "+
			"names, by default the names in the certificate; may be repeated; reloaded when it changes")
	fs.StringVar(&c.ClientCAFile, "client-ca-file", "", "CA of client certificates that authenticate users; "+
		"reloaded when it changes; empty: client certificates are not accepted")
	fs.DurationVar(&c.RequestTimeout, "request-timeout", c.RequestTimeout,
		"timeout of requests, except watches and streams")
	fs.Var((*seconds)(&c.MinRequestWatch), "min-request-timeout",
		"minimum duration, in seconds, of a watch without timeoutSeconds")
	fs.DurationVar(&c.ShutdownDelay, "shutdown-delay-duration", 0,
		"how long /readyz fails before the server stops accepting requests at shutdown")
	fs.IntVar(&c.MaxReads, "max-requests-inflight", c.MaxReads, "maximum number of concurrent reads; 0: no limit")
	fs.IntVar(&c.MaxWrites, "max-mutating-requests-inflight", c.MaxWrites,
		"maximum number of concurrent writes; 0: no limit")
	fs.IntVar(&c.MaxHTTP2Streams, "http2-max-streams-per-connection", c.MaxHTTP2Streams,
		"maximum number of concurrent streams of an HTTP/2 connection; 0: 250")
	fs.BoolVar(&c.PriorityAndFairness, "enable-priority-and-fairness", c.PriorityAndFairness,
		"share the limits on concurrent requests between flows according to FlowSchemas and PriorityLevelConfigurations")
	fs.Var(apis, "runtime-config", "APIs to turn on or off: GROUP/VERSION=true|false or "+
		"GROUP/VERSION/RESOURCE=true|false, or api/ga, api/beta, api/alpha or api/all for all versions of a "+
		"stage; separated by commas; default: stable versions are on")
	fs.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve /debug/pprof")
	fs.StringVar(&c.TracingConfig, "tracing-config-file", "",
		"TracingConfiguration for the export of request spans; empty: no tracing")
}

func (c *Config) addAuthn(fs *pflag.FlagSet) {
	fs.BoolVar(&c.AnonymousAuth, "anonymous-auth", c.AnonymousAuth,
		"accept requests without credentials as user system:anonymous")
	fs.StringVar(&c.TokenAuthFile, "token-auth-file", "", "CSV file of static bearer tokens: token,user,uid,\"groups\"")
	fs.BoolVar(&c.BootstrapTokenAuth, "enable-bootstrap-token-auth", false,
		"accept bootstrap tokens (secrets in kube-system) from joining nodes")
	fs.StringArrayVar(&c.ServiceAccountKeyFiles, "service-account-key-file", nil,
		"public or private keys that verify service account tokens; may be repeated; required without "+
			"--service-account-signing-endpoint")
	fs.StringVar(&c.ServiceAccountSignKey, "service-account-signing-key-file", "",
		"private key that signs service account tokens")
	fs.StringVar(&c.ServiceAccountSigner, "service-account-signing-endpoint", "",
		"unix socket of an external process that signs service account tokens and provides the keys that "+
			"verify them; replaces the key files")
	fs.StringArrayVar(&c.ServiceAccountIssuers, "service-account-issuer", nil,
		"issuer of service account tokens; may be repeated: the first one issues tokens, all are accepted")
	fs.StringVar(&c.ServiceAccountJWKSURI, "service-account-jwks-uri", "",
		"URL of the keys in the issuer's discovery document; empty: a URL of this server")
	fs.DurationVar(&c.ServiceAccountMaxExpiry, "service-account-max-token-expiration", 0,
		"maximum lifetime of an issued service account token; 0: no limit")
	fs.BoolVar(&c.ExtendTokenExpiration, "service-account-extend-token-expiration", c.ExtendTokenExpiration,
		"let tokens that are mounted into pods stay valid for a year, although they say one hour")
	fs.BoolVar(&c.ServiceAccountLookup, "service-account-lookup", c.ServiceAccountLookup,
		"reject tokens whose service account, pod, node or secret no longer exists")
	fs.StringSliceVar(&c.APIAudiences, "api-audiences", nil,
		"audiences of this API, for which tokens must be issued; empty: the values of --service-account-issuer")
	h := &c.RequestHeader
	fs.StringVar(&h.ClientCAFile, "requestheader-client-ca-file", "",
		"CA of the client certificates of proxies that may name the user in headers")
	fs.StringSliceVar(&h.AllowedNames, "requestheader-allowed-names", nil,
		"common names of such client certificates; empty: all names")
	fs.StringSliceVar(&h.UsernameHeaders, "requestheader-username-headers", nil, "headers with the name of the user")
	fs.StringSliceVar(&h.UIDHeaders, "requestheader-uid-headers", nil, "headers with the UID of the user")
	fs.StringSliceVar(&h.GroupHeaders, "requestheader-group-headers", nil, "headers with the groups of the user")
	fs.StringSliceVar(&h.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil,
		"prefixes of headers with extra attributes of the user")
}

func (c *Config) addPolicy(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.AuthorizationModes, "authorization-mode", c.AuthorizationModes,
		"authorizers in order: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node")
	fs.StringSliceVar(&c.EnableAdmission, "enable-admission-plugins", nil,
		"admission plugins to run in addition to the default ones")
	fs.StringSliceVar(&c.OnlyAdmission, "admission-control", nil, "admission plugins to run instead of the "+
		"default ones; cannot be combined with --enable-admission-plugins or --disable-admission-plugins")
	// MarkDeprecated cannot fail, because the flag exists.
	_ = fs.MarkDeprecated("admission-control", "Use --enable-admission-plugins or "+
		"--disable-admission-plugins instead. Will be removed in a future version.")
	fs.Lookup("admission-control").Hidden = false
	fs.StringVar(&c.AdmissionConfig, "admission-control-config-file", "",
		"AdmissionConfiguration with settings of admission plugins")
	fs.StringSliceVar(&c.DisableAdmission, "disable-admission-plugins", nil, "default admission plugins not to run")
	fs.Int64Var(&c.NotReadySeconds, "default-not-ready-toleration-seconds", c.NotReadySeconds,
		"how many seconds pods stay on a node that is not ready, unless they have a toleration for it")
	fs.Int64Var(&c.UnreachableSeconds, "default-unreachable-toleration-seconds", c.UnreachableSeconds,
		"how many seconds pods stay on a node that is unreachable, unless they have a toleration for it")
	fs.BoolVar(&c.AllowPrivileged, "allow-privileged", false, "allow privileged containers")
	fs.Var((*prefixes)(&c.ServiceClusterIPRanges), "service-cluster-ip-range",
		"range of service addresses (CIDR), or two ranges of different IP families separated by a comma")
	fs.Var(&c.ServiceNodePorts, "service-node-port-range", "range of node ports of services: first-last or first+count")
	fs.StringVar(&c.KubeletClientCert, "kubelet-client-certificate", "", "client certificate for connections to kubelets")
	fs.StringVar(&c.KubeletClientKey, "kubelet-client-key", "", "key of --kubelet-client-certificate")
	fs.StringVar(&c.KubeletCAFile, "kubelet-certificate-authority", "",
		"CA of the kubelets' serving certificates; empty: the certificates are not verified")
	fs.StringSliceVar(&c.KubeletAddressTypes, "kubelet-preferred-address-types", c.KubeletAddressTypes,
		"types of node addresses for connections to kubelets, most preferred first")
	fs.BoolVar(&c.ResourceMetrics, "resource-metrics", false,
		"serve metrics.k8s.io from the kubelets' statistics, unless an APIService names another server")
	fs.BoolVar(&c.AggregatorRouting, "enable-aggregator-routing", false,
		"connect to the endpoints of extension servers instead of their cluster IPs")
	fs.Var(&inverse{&c.PassRedirects}, "aggregator-reject-forwarding-redirect",
		"do not pass redirects of extension servers on to clients")
	fs.Lookup("aggregator-reject-forwarding-redirect").NoOptDefVal = "true"
	fs.StringVar(&c.EgressSelector, "egress-selector-config-file", "",
		"EgressSelectorConfiguration; only the protocol Direct is supported")
	fs.StringVar(&c.ProxyClientCert, "proxy-client-cert-file", "",
		"client certificate by which extension servers recognize this server")
	fs.StringVar(&c.ProxyClientKey, "proxy-client-key-file", "", "key of --proxy-client-cert-file")
}

// seconds is a flag value: a duration as a whole number of seconds.
type seconds time.Duration

func (s *seconds) Set(v string) error {
	n, err := strconv.ParseInt(v, 0, strconv.IntSize)
	if err != nil {
		return err
	}
	*s = seconds(time.Duration(n) * time.Second)
	return nil
}
func (s *seconds) String() string { return strconv.Itoa(int(time.Duration(*s) / time.Second)) }
func (*seconds) Type() string     { return "int" }

// inverse is a boolean flag whose value is the negation of *off.
type inverse struct{ off *bool }

func (i *inverse) Set(v string) error {
	on, err := strconv.ParseBool(v)
	*i.off = !on
	return err
}
func (i *inverse) String() string { return strconv.FormatBool(i.off == nil || !*i.off) }
func (*inverse) Type() string     { return "bool" }

// address is a flag value: the text of an IP address.
type address string

func (a *address) Set(v string) error {
	if v != "" && net.ParseIP(v) == nil {
		return fmt.Errorf("failed to parse IP: %q", v)
	}
	*a = address(v)
	return nil
}
func (a *address) String() string { return string(*a) }
func (*address) Type() string     { return "ip" }

type prefixes []netip.Prefix

func (p *prefixes) Set(v string) error {
	if v == "" {
		return nil // keep the default
	}
	var out []netip.Prefix
	for s := range strings.SplitSeq(v, ",") {
		out = append(out, parsePrefix(strings.TrimSpace(s)))
	}
	*p = out
	return nil
}

// parsePrefix parses an IP range in CIDR notation. Octets may have leading zeros, as in old
// configurations. If s is malformed, parsePrefix returns the zero Prefix, for which validation
// later returns an error with the position of the range.
func parsePrefix(s string) netip.Prefix {
	_, n, err := netutils.ParseCIDRSloppy(s)
	if err != nil {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(n.String())
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

func (p *prefixes) String() string {
	var out []string
	for _, n := range *p {
		out = append(out, n.String())
	}
	return strings.Join(out, ",")
}
func (*prefixes) Type() string { return "string" }

// Set parses "first-last", "first+count" or a single port.
func (r *PortRange) Set(v string) error {
	first, last, count := v, v, false
	if a, b, ok := strings.Cut(v, "-"); ok {
		first, last = a, b
	} else if a, b, ok := strings.Cut(v, "+"); ok {
		first, last, count = a, b, true
	}
	f, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		return err
	}
	l, err := strconv.Atoi(strings.TrimSpace(last))
	if err != nil {
		return err
	}
	if count {
		l += f
	}
	switch {
	case l > 65535:
		return fmt.Errorf("the port range cannot be greater than 65535: %s", v)
	case l < f:
		return fmt.Errorf("end port cannot be less than start port: %s", v)
	}
	*r = PortRange{f, l}
	return nil
}

// Type returns the name of the flag's type for the usage text.
func (PortRange) Type() string { return "portRange" }
