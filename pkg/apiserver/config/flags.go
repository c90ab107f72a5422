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
	verbosity := fs.UintP("v", "v", 0, "verbosity of the log; administrators may change it by PUT /debug/flags/v")
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
	fs.StringSliceVar(&c.EtcdServers, "etcd-servers", c.EtcdServers, "etcd endpoints (scheme://host:port); empty: an embedded etcd in --data-dir")
	fs.StringVar(&c.EtcdCAFile, "etcd-cafile", "", "certificate authority of the etcd servers")
	fs.StringVar(&c.EtcdCertFile, "etcd-certfile", "", "client certificate for etcd")
	fs.StringVar(&c.EtcdKeyFile, "etcd-keyfile", "", "client key for etcd")
	fs.StringVar(&c.EtcdPrefix, "etcd-prefix", c.EtcdPrefix, "prefix of all keys in etcd")
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "where the embedded etcd keeps its files")
	fs.StringVar(&c.EncryptionConfig, "encryption-provider-config", "", "how values are encrypted in etcd: an EncryptionConfiguration")
	fs.BoolVar(&c.EncryptionReload, "encryption-provider-config-automatic-reload", false, "follow changes of --encryption-provider-config")
	fs.DurationVar(&c.EventTTL, "event-ttl", c.EventTTL, "how long events are kept")
}

func (c *Config) addServing(fs *pflag.FlagSet, apis *switches) {
	fs.Var((*address)(&c.BindAddress), "bind-address", "IP address to listen on")
	fs.Var((*address)(&c.AdvertiseAddress), "advertise-address", "IP address at which members of the cluster reach this server")
	fs.IntVar(&c.SecurePort, "secure-port", c.SecurePort, "port to serve HTTPS on")
	fs.StringVar(&c.TLSCertFile, "tls-cert-file", "", "serving certificate with its chain; reloaded when it changes")
	fs.StringVar(&c.TLSKeyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	fs.Var(cliflag.NewNamedCertKeyArray(&c.SNICerts), "tls-sni-cert-key", "certificate,key or certificate,key:names of another certificate for clients that ask for one of the names, or one of those in it; may be repeated; reloaded when it changes")
	fs.StringVar(&c.ClientCAFile, "client-ca-file", "", "authorities whose client certificates are users; reloaded when it changes")
	fs.DurationVar(&c.RequestTimeout, "request-timeout", c.RequestTimeout, "longest time an ordinary request may take")
	fs.Var((*seconds)(&c.MinRequestWatch), "min-request-timeout", "shortest time, in seconds, that a watch without timeout is kept open")
	fs.DurationVar(&c.ShutdownDelay, "shutdown-delay-duration", 0, "how long to serve with failing readyz before shutting down")
	fs.IntVar(&c.MaxReads, "max-requests-inflight", c.MaxReads, "most reads in flight; 0: no limit")
	fs.IntVar(&c.MaxWrites, "max-mutating-requests-inflight", c.MaxWrites, "most writes in flight; 0: no limit")
	fs.IntVar(&c.MaxHTTP2Streams, "http2-max-streams-per-connection", c.MaxHTTP2Streams, "most streams of one HTTP/2 connection; 0: 250")
	fs.BoolVar(&c.PriorityAndFairness, "enable-priority-and-fairness", c.PriorityAndFairness, "share the limits of requests in flight between flows, by FlowSchemas and PriorityLevelConfigurations")
	fs.Var(apis, "runtime-config", "APIs to serve or not to, where it is not as by default: GROUP/VERSION=true|false or GROUP/VERSION/RESOURCE=true|false, or all of a kind: api/ga, api/beta, api/alpha, api/all; separated by commas")
	fs.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve /debug/pprof")
	fs.StringVar(&c.TracingConfig, "tracing-config-file", "", "TracingConfiguration: where spans of requests go")
}

func (c *Config) addAuthn(fs *pflag.FlagSet) {
	fs.BoolVar(&c.AnonymousAuth, "anonymous-auth", c.AnonymousAuth, "requests without credentials are user system:anonymous")
	fs.StringVar(&c.TokenAuthFile, "token-auth-file", "", "CSV of static bearer tokens: token,user,uid,\"groups\"")
	fs.BoolVar(&c.BootstrapTokenAuth, "enable-bootstrap-token-auth", false, "accept bootstrap tokens (secrets in kube-system)")
	fs.StringArrayVar(&c.ServiceAccountKeyFiles, "service-account-key-file", nil, "keys that verify service account tokens; may be repeated; required but with --service-account-signing-endpoint")
	fs.StringVar(&c.ServiceAccountSignKey, "service-account-signing-key-file", "", "key that signs service account tokens")
	fs.StringVar(&c.ServiceAccountSigner, "service-account-signing-endpoint", "", "socket of a process that signs service account tokens and has their keys, instead of key files")
	fs.StringArrayVar(&c.ServiceAccountIssuers, "service-account-issuer", nil, "issuer of tokens; the first issues, all are accepted")
	fs.StringVar(&c.ServiceAccountJWKSURI, "service-account-jwks-uri", "", "where the discovery document says the keys are")
	fs.DurationVar(&c.ServiceAccountMaxExpiry, "service-account-max-token-expiration", 0, "longest life of an issued token; 0: no limit")
	fs.BoolVar(&c.ExtendTokenExpiration, "service-account-extend-token-expiration", c.ExtendTokenExpiration, "injected tokens stay valid for a year beside their nominal hour")
	fs.BoolVar(&c.ServiceAccountLookup, "service-account-lookup", c.ServiceAccountLookup, "check that what a token is bound to exists")
	fs.StringSliceVar(&c.APIAudiences, "api-audiences", nil, "audiences of this API; empty: the issuers")
	h := &c.RequestHeader
	fs.StringVar(&h.ClientCAFile, "requestheader-client-ca-file", "", "authorities whose client certificates may name a user in headers")
	fs.StringSliceVar(&h.AllowedNames, "requestheader-allowed-names", nil, "common names that may; empty: all")
	fs.StringSliceVar(&h.UsernameHeaders, "requestheader-username-headers", nil, "headers of the user's name")
	fs.StringSliceVar(&h.UIDHeaders, "requestheader-uid-headers", nil, "headers of the user's uid")
	fs.StringSliceVar(&h.GroupHeaders, "requestheader-group-headers", nil, "headers of the user's groups")
	fs.StringSliceVar(&h.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil, "prefixes of headers of the user's extras")
}

func (c *Config) addPolicy(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.AuthorizationModes, "authorization-mode", c.AuthorizationModes, "authorizers in order: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node")
	fs.StringSliceVar(&c.EnableAdmission, "enable-admission-plugins", nil, "admission plugins beside the default ones")
	fs.StringSliceVar(&c.OnlyAdmission, "admission-control", nil, "admission plugins that run, and no other; not with the flags that add to the default ones")
	_ = fs.MarkDeprecated("admission-control", "Use --enable-admission-plugins or --disable-admission-plugins instead. Will be removed in a future version.") // which there is
	fs.Lookup("admission-control").Hidden = false
	fs.StringVar(&c.AdmissionConfig, "admission-control-config-file", "", "AdmissionConfiguration: what plugins are told")
	fs.StringSliceVar(&c.DisableAdmission, "disable-admission-plugins", nil, "default admission plugins to leave out")
	fs.Int64Var(&c.NotReadySeconds, "default-not-ready-toleration-seconds", c.NotReadySeconds, "how long pods stay on a node that is not ready, unless they say otherwise")
	fs.Int64Var(&c.UnreachableSeconds, "default-unreachable-toleration-seconds", c.UnreachableSeconds, "how long pods stay on a node that does not answer, unless they say otherwise")
	fs.BoolVar(&c.AllowPrivileged, "allow-privileged", false, "allow privileged containers")
	fs.Var((*prefixes)(&c.ServiceClusterIPRanges), "service-cluster-ip-range", "range of service addresses, or two of different families")
	fs.Var(&c.ServiceNodePorts, "service-node-port-range", "range of node ports of services")
	fs.StringVar(&c.KubeletClientCert, "kubelet-client-certificate", "", "client certificate for kubelets")
	fs.StringVar(&c.KubeletClientKey, "kubelet-client-key", "", "key of --kubelet-client-certificate")
	fs.StringVar(&c.KubeletCAFile, "kubelet-certificate-authority", "", "authority of the kubelets' serving certificates; empty: they are not verified")
	fs.StringSliceVar(&c.KubeletAddressTypes, "kubelet-preferred-address-types", c.KubeletAddressTypes, "which of a node's addresses to use, best first")
	fs.BoolVar(&c.ResourceMetrics, "resource-metrics", false, "answer metrics.k8s.io from what kubelets say, unless an APIService names another server for it")
	fs.BoolVar(&c.AggregatorRouting, "enable-aggregator-routing", false, "send aggregated requests to endpoints rather than to cluster IPs")
	fs.Var(&inverse{&c.PassRedirects}, "aggregator-reject-forwarding-redirect", "do not pass redirects of aggregated servers on to clients")
	fs.Lookup("aggregator-reject-forwarding-redirect").NoOptDefVal = "true"
	fs.StringVar(&c.EgressSelector, "egress-selector-config-file", "", "EgressSelectorConfiguration: how connections are made; other protocols than Direct are refused")
	fs.StringVar(&c.ProxyClientCert, "proxy-client-cert-file", "", "client certificate that proves this server to aggregated ones")
	fs.StringVar(&c.ProxyClientKey, "proxy-client-key-file", "", "key of --proxy-client-cert-file")
}

// seconds is a duration given as a whole number of seconds.
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

// inverse is a flag that is on unless it is switched off.
type inverse struct{ off *bool }

func (i *inverse) Set(v string) error {
	on, err := strconv.ParseBool(v)
	*i.off = !on
	return err
}
func (i *inverse) String() string { return strconv.FormatBool(i.off == nil || !*i.off) }
func (*inverse) Type() string     { return "bool" }

// address is the text of an IP address.
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
		return nil // as by default
	}
	var out []netip.Prefix
	for s := range strings.SplitSeq(v, ",") {
		out = append(out, parsePrefix(strings.TrimSpace(s)))
	}
	*p = out
	return nil
}

// parsePrefix is not valid where s is no range: it is told which one it is, and when, by validation. Numbers
// may begin with zeros, as of old.
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

// Type names the flag's value in usage.
func (*PortRange) Type() string { return "portRange" }
