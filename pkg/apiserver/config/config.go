// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is the configuration of an API server: a struct, the flags that set it (with
// Kubernetes' names and defaults) and its validation.
//
// The package reads no files and starts nothing.
package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/features"
)

// Config is the configuration of an API server.
type Config struct {
	// Flags are the values of all flags by name. The page /flagz shows them.
	Flags map[string]string

	// Storage. Without EtcdServers, the server runs an embedded etcd with its files in DataDir.
	EtcdServers  []string
	EtcdCAFile   string
	EtcdCertFile string
	EtcdKeyFile  string
	EtcdPrefix   string
	DataDir      string
	Etcd         Etcd
	Store        Store
	// EncryptionConfig is the file that configures the encryption of values in etcd. Empty means no
	// encryption.
	EncryptionConfig string
	EncryptionReload bool // reload EncryptionConfig when it changes

	// Serving.
	BindAddress      string
	AdvertiseAddress string // if empty, BindAddress is used, or the host's address if BindAddress is unspecified
	SecurePort       int
	TLSCertFile      string
	TLSKeyFile       string
	SNICerts         []cliflag.NamedCertKey // certificates for some server names, in addition to the default certificate
	ClientCAFile     string
	RequestTimeout   time.Duration
	MinRequestWatch  time.Duration // minimum duration of a watch without timeoutSeconds
	ShutdownDelay    time.Duration // how long readyz fails before the listener closes
	ShutdownTimeout  time.Duration
	MaxReads         int // non-mutating requests in flight; 0 means no limit
	MaxWrites        int // mutating requests in flight; 0 means no limit
	MaxHTTP2Streams  int // 0 means 250 streams
	// If PriorityAndFairness is true, at most MaxReads + MaxWrites requests are served at a time,
	// and priority and fairness divides them between clients. If it is false, MaxReads and MaxWrites
	// are enforced one by one.
	PriorityAndFairness bool
	Profiling           bool
	HTTP                HTTP
	Serving             Serving

	// Authentication.
	AnonymousAuth           bool
	AnonymousAuthSet        bool // whether the flag for AnonymousAuth was given
	TokenAuthFile           string
	BootstrapTokenAuth      bool
	ServiceAccountKeyFiles  []string
	ServiceAccountSignKey   string
	ServiceAccountSigner    string // unix socket of an external signer of tokens, which replaces the key files
	ServiceAccountIssuers   []string
	ServiceAccountJWKSURI   string
	ServiceAccountMaxExpiry time.Duration
	ExtendTokenExpiration   bool
	ServiceAccountLookup    bool
	APIAudiences            []string
	RequestHeader           RequestHeader
	Authentication          Authentication

	// Authorization and admission.
	AuthorizationModes []string
	Authorization      Authorization
	EnableAdmission    []string
	DisableAdmission   []string
	// OnlyAdmission are the names of the plugins that run. If it is set, it replaces the default
	// plugins, EnableAdmission and DisableAdmission.
	OnlyAdmission   []string
	AdmissionConfig string // path of an AdmissionConfiguration
	AllowPrivileged bool
	// NotReadySeconds and UnreachableSeconds are how long a pod stays on a node that is not ready or
	// not reachable, if the pod has no tolerations for these taints.
	NotReadySeconds, UnreachableSeconds int64
	EventTTL                            time.Duration

	// Auditing.
	Audit Audit

	// Services.
	ServiceClusterIPRanges []netip.Prefix
	ServiceNodePorts       PortRange
	Endpoints              Endpoints // endpoints of the service "kubernetes"

	// Kubelets.
	KubeletClientCert   string
	KubeletClientKey    string
	KubeletCAFile       string
	KubeletAddressTypes []string

	// RuntimeConfig turns APIs on and off, relative to the defaults of api.Served.
	RuntimeConfig map[string]bool
	// Features are the feature gates that differ from their defaults.
	Features features.Options

	// Aggregation of extension servers.
	AggregatorRouting bool
	// If PassRedirects is true, redirects of extension servers are passed on to clients. Otherwise
	// they are errors.
	PassRedirects bool
	// If ResourceMetrics is true, the server serves metrics.k8s.io from the statistics of kubelets.
	ResourceMetrics bool
	ProxyClientCert string
	ProxyClientKey  string

	// Transport configures TLS and outbound connections.
	Transport Transport

	// TracingConfig is the file that configures the export of request spans. Empty means no tracing.
	TracingConfig string

	// Debug configures debugging endpoints. Metrics restricts which metrics /metrics shows.
	Debug   Debug
	Metrics Metrics
	// EgressSelector is the path of an EgressSelectorConfiguration. If it is empty, connections are
	// direct.
	EgressSelector string

	// Verbosity is the log verbosity, like klog's -v. Administrators can change it at run time.
	Verbosity *daemon.Verbosity

	// Log is the format of the log.
	Log daemon.LogFlags

	accepted accepted
	flagged  bool // true if Parse made this Config from flags; only Parse sets it
}

// PortRange is an inclusive range of ports.
type PortRange struct{ First, Last int }

// Size returns the number of ports in r.
func (r PortRange) Size() int { return r.Last - r.First + 1 }

// Contains reports whether port lies in r.
func (r PortRange) Contains(port int) bool { return port >= r.First && port <= r.Last }

// String returns r as "first-last".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Default returns the configuration of a server that is started without flags.
func Default() Config {
	return Config{
		EtcdPrefix:            "/registry",
		Etcd:                  defaultEtcd(),
		Verbosity:             daemon.NewVerbosity(0),
		DataDir:               "/var/lib/keelson/apiserver",
		BindAddress:           "0.0.0.0",
		SecurePort:            6443,
		RequestTimeout:        time.Minute,
		MinRequestWatch:       30 * time.Minute,
		ShutdownTimeout:       time.Minute,
		MaxReads:              400,
		MaxWrites:             200,
		Profiling:             true,
		PriorityAndFairness:   true,
		AnonymousAuth:         true,
		ServiceAccountLookup:  true,
		ExtendTokenExpiration: true,
		AuthorizationModes:    []string{ModeAlwaysAllow},
		EventTTL:              time.Hour,
		NotReadySeconds:       300,
		UnreachableSeconds:    300,
		Audit:                 defaultAudit(),
		Authentication:        defaultAuthentication(),
		Authorization:         defaultAuthorization(),
		ServiceNodePorts:      PortRange{30000, 32767},
		Endpoints:             defaultEndpoints(),
		accepted:              defaultAccepted(),
		ServiceClusterIPRanges: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/24"),
		},
		KubeletAddressTypes: []string{"Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"},
	}
}

// The authorization modes.
const (
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeRBAC        = "RBAC"
	ModeNode        = "Node"
	ModeABAC        = "ABAC"
	ModeWebhook     = "Webhook"
)

// Anonymous reports whether requests without credentials are accepted. They are rejected if
// flags set the authorization mode AlwaysAllow, because then all clients could do everything.
func (c *Config) Anonymous() bool {
	everything := c.Authorization.File == "" && slices.Contains(c.AuthorizationModes, ModeAlwaysAllow)
	return c.AnonymousAuth && !everything
}
