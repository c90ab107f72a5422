// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is what an API server can be told: one plain struct, its
// flags (by Kubernetes' names, with Kubernetes' defaults) and its validation.
//
// It reads no files and starts nothing.
package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	"keelson.dev/keelson/pkg/apiserver/features"
	"keelson.dev/keelson/pkg/daemon"
)

// Config is everything an API server is told from outside.
type Config struct {
	// Flags are the values of all flags by name, as /flagz tells them.
	Flags map[string]string

	// Storage. No EtcdServers: an embedded etcd keeps its files in DataDir.
	EtcdServers  []string
	EtcdCAFile   string
	EtcdCertFile string
	EtcdKeyFile  string
	EtcdPrefix   string
	DataDir      string
	Etcd         Etcd
	// EncryptionConfig says how values are encrypted in etcd; empty: they are not.
	EncryptionConfig string
	EncryptionReload bool // follow EncryptionConfig

	// Serving.
	BindAddress      string
	AdvertiseAddress string // empty: BindAddress, or the host's address when that is unspecified
	SecurePort       int
	TLSCertFile      string
	TLSKeyFile       string
	SNICerts         []cliflag.NamedCertKey // for single names
	ClientCAFile     string
	RequestTimeout   time.Duration
	MinRequestWatch  time.Duration // shortest life of a watch without timeoutSeconds
	ShutdownDelay    time.Duration // how long readyz fails before the listener closes
	ShutdownTimeout  time.Duration
	MaxReads         int // non-mutating requests in flight; 0: no limit
	MaxWrites        int // mutating requests in flight; 0: no limit
	MaxHTTP2Streams  int // 0: 250
	// PriorityAndFairness shares MaxReads and MaxWrites together between flows of
	// requests, instead of limiting each.
	PriorityAndFairness bool
	Profiling           bool
	HTTP                HTTP
	Serving             Serving

	// Who is asking.
	AnonymousAuth           bool
	AnonymousAuthSet        bool // the flag was given
	TokenAuthFile           string
	BootstrapTokenAuth      bool
	ServiceAccountKeyFiles  []string
	ServiceAccountSignKey   string
	ServiceAccountSigner    string // socket of a signer, in the place of keys
	ServiceAccountIssuers   []string
	ServiceAccountJWKSURI   string
	ServiceAccountMaxExpiry time.Duration
	ExtendTokenExpiration   bool
	ServiceAccountLookup    bool
	APIAudiences            []string
	RequestHeader           RequestHeader
	Authentication          Authentication

	// What they may do.
	AuthorizationModes []string
	Authorization      Authorization
	EnableAdmission    []string
	DisableAdmission   []string
	// OnlyAdmission are the plugins that run, instead of the default ones and those two.
	OnlyAdmission   []string
	AdmissionConfig string // a file
	AllowPrivileged bool
	// NotReadySeconds and UnreachableSeconds are how long pods stay on a node that is
	// not ready or does not answer, unless they say otherwise.
	NotReadySeconds, UnreachableSeconds int64
	EventTTL                            time.Duration

	// What is taken down of requests.
	Audit Audit

	// Services.
	ServiceClusterIPRanges []netip.Prefix
	ServiceNodePorts       PortRange
	Endpoints              Endpoints // of the kubernetes service

	// Kubelets.
	KubeletClientCert   string
	KubeletClientKey    string
	KubeletCAFile       string
	KubeletAddressTypes []string

	// RuntimeConfig has APIs served that are not by default, and others not (api.Served).
	RuntimeConfig map[string]bool
	// Features says which features are not as they are by default.
	Features features.Options

	// Aggregation.
	AggregatorRouting bool
	// PassRedirects passes redirects of extension servers on to clients.
	PassRedirects bool
	// ResourceMetrics has the server answer metrics.k8s.io itself, from what kubelets say.
	ResourceMetrics bool
	ProxyClientCert string
	ProxyClientKey  string

	// Transport is how connections are made.
	Transport Transport

	// TracingConfig is the file that says where spans of requests go; empty: nowhere.
	TracingConfig string

	// Debug says what is told who looks into the server, Metrics what is told of it.
	Debug   Debug
	Metrics Metrics
	// EgressSelector is a file that says how connections are made; empty: directly.
	EgressSelector string

	// Verbosity of the log, as klog's -v; administrators may change it.
	Verbosity *daemon.Verbosity

	// Log says in which format the log is.
	Log daemon.LogFlags

	accepted accepted
	flagged  bool // made of flags
}

// PortRange is an inclusive range of ports.
type PortRange struct{ First, Last int }

// Size is the number of ports in r.
func (r PortRange) Size() int { return r.Last - r.First + 1 }

// Contains reports whether port lies in r.
func (r PortRange) Contains(port int) bool { return port >= r.First && port <= r.Last }

// String is "first-last".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Default is the configuration of a server without flags.
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

// Anonymous reports whether requests without credentials may be anybody's: never where
// everything is allowed, for then it would be to all the world.
func (c *Config) Anonymous() bool {
	everything := c.Authorization.File == "" && slices.Contains(c.AuthorizationModes, ModeAlwaysAllow)
	return c.AnonymousAuth && !everything
}
