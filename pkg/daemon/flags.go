// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags has the flags that all clients of the API server share. The flags have the same names as in
// Kubernetes.
type Flags struct {
	Kubeconfig string
	Verbosity  int
}

// Add defines the flags in fs.
func (f *Flags) Add(fs *pflag.FlagSet) {
	fs.StringVar(&f.Kubeconfig, "kubeconfig", f.Kubeconfig,
		"kubeconfig file with the API server's address and this process's credentials")
	fs.IntVarP(&f.Verbosity, "v", "v", f.Verbosity, "log verbosity; debug messages are written from 4 on")
}

// ServingFlags has the flags that configure where and how a process serves its HTTP endpoints.
type ServingFlags struct {
	BindAddress  net.IP
	SecurePort   int // 0 means that nothing is served
	CertFile     string
	KeyFile      string
	ClientCAFile string
	// MinTLSVersion is the minimum TLS version; if it is empty, the minimum is TLS 1.2.
	// CipherSuites are the allowed cipher suites; if the list is empty, Go's default suites are
	// allowed.
	MinTLSVersion string
	CipherSuites  []string
	// MaxStreams is the maximum number of concurrent requests on an HTTP/2 connection; 0 means Go's
	// default.
	MaxStreams int
	// NoProfiling disables /debug/pprof.
	NoProfiling bool
}

// Add defines the flags in fs. The current values of f are the defaults.
func (f *ServingFlags) Add(fs *pflag.FlagSet) {
	fs.IPVar(&f.BindAddress, "bind-address", f.BindAddress, "address to serve /healthz, /livez, /readyz and /metrics on")
	fs.IntVar(&f.SecurePort, "secure-port", f.SecurePort, "port to serve on, with TLS; 0 disables serving")
	fs.StringVar(&f.CertFile, "tls-cert-file", f.CertFile,
		"file with the serving certificate; if empty, a self-signed certificate is created")
	fs.StringVar(&f.KeyFile, "tls-private-key-file", f.KeyFile, "file with the private key of --tls-cert-file")
	fs.StringVar(&f.ClientCAFile, "client-ca-file", f.ClientCAFile,
		"file with the certificate authority of client certificates; empty accepts none")
	fs.StringVar(&f.MinTLSVersion, "tls-min-version", f.MinTLSVersion,
		"lowest TLS version to accept: VersionTLS12 or VersionTLS13; empty means VersionTLS12")
	fs.StringSliceVar(&f.CipherSuites, "tls-cipher-suites", f.CipherSuites,
		"cipher suites to accept with TLS 1.2, separated by commas; empty means Go's default")
	fs.IntVar(&f.MaxStreams, "http2-max-streams-per-connection", f.MaxStreams,
		"maximum number of concurrent requests on one HTTP/2 connection; 0 means Go's default")
	fs.Var(&inverse{&f.NoProfiling}, "profiling", "serve /debug/pprof to authorized users")
	fs.Lookup("profiling").NoOptDefVal = "true"
}

// inverse is a boolean flag whose value is the opposite of the field that it sets.
type inverse struct{ off *bool }

// Set parses a boolean.
func (i *inverse) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*i.off = !on
	return nil
}

// String returns the value in the form that Set parses.
func (i *inverse) String() string { return strconv.FormatBool(i.off == nil || !*i.off) }

// Type returns the flag's type for the usage text.
func (*inverse) Type() string { return "bool" }

// Address returns the address to listen on.
func (f *ServingFlags) Address() string {
	return net.JoinHostPort(f.BindAddress.String(), strconv.Itoa(f.SecurePort))
}

// ElectionFlags has the flags that configure leader election between replicas of a process.
type ElectionFlags struct {
	Enabled           bool
	LeaseDuration     time.Duration
	RenewDeadline     time.Duration
	RetryPeriod       time.Duration
	ResourceName      string
	ResourceNamespace string
}

// DefaultElection returns Kubernetes' default settings for the named process.
func DefaultElection(name string) ElectionFlags {
	return ElectionFlags{
		Enabled: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ResourceName: name, ResourceNamespace: "kube-system",
	}
}

// Add defines the flags in fs. The current values of f are the defaults.
func (f *ElectionFlags) Add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.Enabled, "leader-elect", f.Enabled,
		"elect a leader among the replicas by a Lease; only the leader works")
	fs.DurationVar(&f.LeaseDuration, "leader-elect-lease-duration", f.LeaseDuration,
		"how long the other replicas wait after the leader's last renewal before one of them takes over")
	fs.DurationVar(&f.RenewDeadline, "leader-elect-renew-deadline", f.RenewDeadline,
		"how long the leader retries a failing renewal before it stops leading")
	fs.DurationVar(&f.RetryPeriod, "leader-elect-retry-period", f.RetryPeriod,
		"pause between attempts to acquire or renew the lease")
	fs.StringVar(&f.ResourceName, "leader-elect-resource-name", f.ResourceName, "name of the Lease")
	fs.StringVar(&f.ResourceNamespace, "leader-elect-resource-namespace", f.ResourceNamespace, "namespace of the Lease")
}

// RESTConfig reads a kubeconfig and returns the configuration of a client for built-in kinds. The
// client uses protobuf. It has no rate limit, because the API server limits its clients itself.
func RESTConfig(kubeconfig, userAgent string) (*rest.Config, error) {
	if kubeconfig == "" {
		return nil, fmt.Errorf("--kubeconfig is required")
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	c.UserAgent = userAgent + "/" + Version
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	c.QPS = -1
	return c, nil
}
