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
	c.Store.addFlags(fs)
	c.Serving.addFlags(fs)
	c.Endpoints.addFlags(fs)
	c.Debug.addFlags(fs)
	c.Metrics.addFlags(fs)
	c.accepted.addFlags(fs)
	c.Log.Add(fs)
	if err := c.Features.AddFlags(fs); err != nil {
		return c, err
	}
	verbosity := fs.UintP("v", "v", 0, "verbosity of the log; from 4 on, debug messages are "+
		"logged; administrators can change it by a PUT to /debug/flags/v")
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
		"URLs of the etcd servers, for example https://10.0.0.1:2379, separated by commas; if empty, the API "+
			"server runs an embedded etcd with its files in --data-dir")
	fs.StringVar(&c.EtcdCAFile, "etcd-cafile", "",
		"file with the CA certificates that verify the etcd servers; if empty, the CA certificates of the "+
			"machine are used")
	fs.StringVar(&c.EtcdCertFile, "etcd-certfile", "",
		"file with the client certificate for connections to etcd; if empty, none is used")
	fs.StringVar(&c.EtcdKeyFile, "etcd-keyfile", "", "file with the private key of --etcd-certfile")
	fs.StringVar(&c.EtcdPrefix, "etcd-prefix", c.EtcdPrefix, "prefix of the keys of all objects in etcd")
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir,
		"directory of the embedded etcd, and, unless --audit-spill-path is set, of audit events that wait on disk "+
			"until a slow audit backend accepts them")
	fs.StringVar(&c.EncryptionConfig, "encryption-provider-config", "",
		"file with an EncryptionConfiguration, which says which resources are encrypted in etcd and how; if "+
			"empty, values are not encrypted")
	fs.BoolVar(&c.EncryptionReload, "encryption-provider-config-automatic-reload", false,
		"read --encryption-provider-config again when the file changes; otherwise a change needs a restart")
	fs.DurationVar(&c.EventTTL, "event-ttl", c.EventTTL, "time after which an Event object is deleted")
}

func (c *Config) addServing(fs *pflag.FlagSet, apis *switches) {
	fs.Var((*address)(&c.BindAddress), "bind-address", "IP address to listen on; 0.0.0.0 and :: mean all addresses")
	fs.Var((*address)(&c.AdvertiseAddress), "advertise-address",
		"IP address at which other processes and pods reach this API server; if empty, it is --bind-address, "+
			"or an address of the machine if --bind-address means all addresses")
	fs.IntVar(&c.SecurePort, "secure-port", c.SecurePort, "port to serve HTTPS on")
	fs.StringVar(&c.TLSCertFile, "tls-cert-file", "",
		"file with the serving certificate and its chain, which is read again when it changes; if empty, the "+
			"server makes a self-signed certificate (see --cert-dir)")
	fs.StringVar(&c.TLSKeyFile, "tls-private-key-file", "", "file with the private key of --tls-cert-file")
	fs.Var(cliflag.NewNamedCertKeyArray(&c.SNICerts), "tls-sni-cert-key",
		"files of a certificate for clients that connect to certain host names, as CERTIFICATE,KEY or "+
			"CERTIFICATE,KEY:NAME,NAME; without names, the names in the certificate are used; may be "+
			"repeated; the files are read again when they change")
	fs.StringVar(&c.ClientCAFile, "client-ca-file", "",
		"file with the CA certificates that verify the client certificates of users, which is read again "+
			"when it changes; if empty, client certificates are not accepted")
	fs.DurationVar(&c.RequestTimeout, "request-timeout", c.RequestTimeout,
		"maximum duration of a request; watches and streams (exec, attach, port-forward, logs, proxy) may "+
			"take longer")
	fs.Var((*seconds)(&c.MinRequestWatch), "min-request-timeout",
		"minimum duration, in seconds, after which the server ends a watch whose client has set no "+
			"timeoutSeconds; the actual duration is a random value between this and its double")
	fs.DurationVar(&c.ShutdownDelay, "shutdown-delay-duration", 0,
		"how long the server continues to accept requests after it received SIGTERM; in this time /readyz "+
			"already fails, so that load balancers can stop using the server; 0 means no delay")
	fs.IntVar(&c.MaxReads, "max-requests-inflight", c.MaxReads,
		"maximum number of read requests that are served at the same time; 0 means no limit")
	fs.IntVar(&c.MaxWrites, "max-mutating-requests-inflight", c.MaxWrites,
		"maximum number of write requests that are served at the same time; 0 means no limit")
	fs.IntVar(&c.MaxHTTP2Streams, "http2-max-streams-per-connection", c.MaxHTTP2Streams,
		"maximum number of requests at the same time on one HTTP/2 connection; 0 means 250")
	fs.BoolVar(&c.PriorityAndFairness, "enable-priority-and-fairness", c.PriorityAndFairness,
		"divide --max-requests-inflight and --max-mutating-requests-inflight among different kinds of "+
			"requests and users, as FlowSchemas and PriorityLevelConfigurations say")
	fs.Var(apis, "runtime-config",
		"APIs to turn on or off, separated by commas: GROUP/VERSION=true|false, "+
			"GROUP/VERSION/RESOURCE=true|false, or for all versions of one stability api/ga=true|false, "+
			"api/beta=true|false, api/alpha=true|false, or for all versions api/all=true|false; by default, "+
			"stable versions are on")
	fs.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve profiles at /debug/pprof")
	fs.StringVar(&c.TracingConfig, "tracing-config-file", "",
		"file with a TracingConfiguration, which names the collector that gets the server's trace spans; if "+
			"empty, no spans are sent")
}

func (c *Config) addAuthn(fs *pflag.FlagSet) {
	fs.BoolVar(&c.AnonymousAuth, "anonymous-auth", c.AnonymousAuth,
		"accept requests without credentials, as the user system:anonymous in the group "+
			"system:unauthenticated")
	fs.StringVar(&c.TokenAuthFile, "token-auth-file", "",
		"CSV file with bearer tokens that are accepted, one per line: token,user,uid,\"group,group\"; if "+
			"empty, there are none")
	fs.BoolVar(&c.BootstrapTokenAuth, "enable-bootstrap-token-auth", false,
		"accept bootstrap tokens, which are Secrets in kube-system; new nodes use them to join the cluster")
	fs.StringArrayVar(&c.ServiceAccountKeyFiles, "service-account-key-file", nil,
		"file with public or private keys that verify service account tokens; may be repeated; required "+
			"unless --service-account-signing-endpoint is set")
	fs.StringVar(&c.ServiceAccountSignKey, "service-account-signing-key-file", "",
		"file with the private key that signs service account tokens")
	fs.StringVar(&c.ServiceAccountSigner, "service-account-signing-endpoint", "",
		"path of the unix socket of an external process that signs service account tokens and provides the "+
			"keys that verify them; cannot be combined with --service-account-signing-key-file and "+
			"--service-account-key-file")
	fs.StringArrayVar(&c.ServiceAccountIssuers, "service-account-issuer", nil,
		"URL that names the issuer of service account tokens; may be repeated: the server writes the first "+
			"one into new tokens, and accepts tokens with any of them")
	fs.StringVar(&c.ServiceAccountJWKSURI, "service-account-jwks-uri", "",
		"URL of the public keys for service account tokens, as the issuer's discovery document shows it; if "+
			"empty, a URL of this server")
	fs.DurationVar(&c.ServiceAccountMaxExpiry, "service-account-max-token-expiration", 0,
		"maximum validity of service account tokens that clients request; 0 means no limit")
	fs.BoolVar(&c.ExtendTokenExpiration, "service-account-extend-token-expiration", c.ExtendTokenExpiration,
		"let tokens that are mounted into pods stay valid for a year although the kubelet requests about one "+
			"hour, so that programs that do not read the token again continue to work")
	fs.BoolVar(&c.ServiceAccountLookup, "service-account-lookup", c.ServiceAccountLookup,
		"reject service account tokens whose service account, pod, node or secret no longer exists")
	fs.StringSliceVar(&c.APIAudiences, "api-audiences", nil,
		"audiences of this API server: a token is accepted only if it was issued for one of them; if empty, "+
			"the values of --service-account-issuer")
	h := &c.RequestHeader
	fs.StringVar(&h.ClientCAFile, "requestheader-client-ca-file", "",
		"file with the CA certificates that verify the client certificates of authenticating proxies; such a "+
			"proxy sends the name of the user in headers; if empty, no proxy is trusted")
	fs.StringSliceVar(&h.AllowedNames, "requestheader-allowed-names", nil,
		"common names of the client certificates of authenticating proxies that are trusted; if empty, all "+
			"certificates of --requestheader-client-ca-file are trusted")
	fs.StringSliceVar(&h.UsernameHeaders, "requestheader-username-headers", nil,
		"headers in which an authenticating proxy sends the name of the user, for example X-Remote-User")
	fs.StringSliceVar(&h.UIDHeaders, "requestheader-uid-headers", nil,
		"headers in which an authenticating proxy sends the UID of the user, for example X-Remote-Uid")
	fs.StringSliceVar(&h.GroupHeaders, "requestheader-group-headers", nil,
		"headers in which an authenticating proxy sends the groups of the user, for example X-Remote-Group")
	fs.StringSliceVar(&h.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil,
		"prefixes of the headers in which an authenticating proxy sends extra attributes of the user, for "+
			"example X-Remote-Extra-")
}

func (c *Config) addPolicy(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.AuthorizationModes, "authorization-mode", c.AuthorizationModes,
		"authorizers that decide about requests, in this order, separated by commas: AlwaysAllow, "+
			"AlwaysDeny, ABAC, Webhook, RBAC, Node")
	fs.StringSliceVar(&c.EnableAdmission, "enable-admission-plugins", nil,
		"names of admission plugins to run in addition to the default plugins, separated by commas")
	fs.StringSliceVar(&c.OnlyAdmission, "admission-control", nil,
		"names of the admission plugins to run instead of the default plugins; cannot be combined with "+
			"--enable-admission-plugins or --disable-admission-plugins")
	// MarkDeprecated cannot fail, because the flag exists.
	_ = fs.MarkDeprecated("admission-control", "Use --enable-admission-plugins or "+
		"--disable-admission-plugins instead. Will be removed in a future version.")
	fs.Lookup("admission-control").Hidden = false
	fs.StringVar(&c.AdmissionConfig, "admission-control-config-file", "",
		"file with an AdmissionConfiguration, which contains settings of admission plugins; if empty, they "+
			"have their default settings")
	fs.StringSliceVar(&c.DisableAdmission, "disable-admission-plugins", nil,
		"names of default admission plugins that do not run, separated by commas")
	fs.Int64Var(&c.NotReadySeconds, "default-not-ready-toleration-seconds", c.NotReadySeconds,
		"how many seconds a pod stays on a node that is not ready before it is evicted, unless the pod has a "+
			"toleration for this")
	fs.Int64Var(&c.UnreachableSeconds, "default-unreachable-toleration-seconds", c.UnreachableSeconds,
		"how many seconds a pod stays on a node that is unreachable before it is evicted, unless the pod has "+
			"a toleration for this")
	fs.BoolVar(&c.AllowPrivileged, "allow-privileged", false, "allow pods to have privileged containers")
	fs.Var((*prefixes)(&c.ServiceClusterIPRanges), "service-cluster-ip-range",
		"range of the cluster IPs of Services (CIDR), or an IPv4 and an IPv6 range separated by a comma")
	fs.Var(&c.ServiceNodePorts, "service-node-port-range",
		"range of the node ports of Services, as FIRST-LAST or FIRST+COUNT")
	fs.StringVar(&c.KubeletClientCert, "kubelet-client-certificate", "",
		"file with the client certificate for connections to kubelets; if empty, none is used")
	fs.StringVar(&c.KubeletClientKey, "kubelet-client-key", "",
		"file with the private key of --kubelet-client-certificate")
	fs.StringVar(&c.KubeletCAFile, "kubelet-certificate-authority", "",
		"file with the CA certificates that verify kubelets' serving certificates; if empty, these "+
			"certificates are not verified")
	fs.StringSliceVar(&c.KubeletAddressTypes, "kubelet-preferred-address-types", c.KubeletAddressTypes,
		"types of node addresses that the server uses for connections to kubelets, in order of preference, "+
			"separated by commas")
	fs.BoolVar(&c.ResourceMetrics, "resource-metrics", false,
		"serve the API metrics.k8s.io, which kubectl top and autoscalers use, with resource usage from the "+
			"kubelets, unless an APIService names another server for this API")
	fs.BoolVar(&c.AggregatorRouting, "enable-aggregator-routing", false,
		"connect to the endpoints of a Service of an extension server instead of its cluster IP")
	fs.Var(&inverse{&c.PassRedirects}, "aggregator-reject-forwarding-redirect",
		"answer with an error if an extension server answers with a redirect, instead of passing the "+
			"redirect on to the client")
	fs.Lookup("aggregator-reject-forwarding-redirect").NoOptDefVal = "true"
	fs.StringVar(&c.EgressSelector, "egress-selector-config-file", "",
		"file with an EgressSelectorConfiguration, which says how the server connects to other servers; only "+
			"the protocol Direct is supported; if empty, it connects directly")
	fs.StringVar(&c.ProxyClientCert, "proxy-client-cert-file", "",
		"file with the client certificate by which extension servers recognize this server")
	fs.StringVar(&c.ProxyClientKey, "proxy-client-key-file", "",
		"file with the private key of --proxy-client-cert-file")
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
