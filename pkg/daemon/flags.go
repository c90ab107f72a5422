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
		"kubeconfig file with the address of the API server and the credentials of this process")
	fs.IntVarP(&f.Verbosity, "v", "v", f.Verbosity, "verbosity of the log; from 4 on, debug messages are logged")
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
	fs.IPVar(&f.BindAddress, "bind-address", f.BindAddress,
		"IP address on which the process serves /healthz, /livez, /readyz and /metrics; 0.0.0.0 and :: mean "+
			"all addresses")
	fs.IntVar(&f.SecurePort, "secure-port", f.SecurePort,
		"port on which the process serves /healthz, /livez, /readyz and /metrics by HTTPS; 0 means that it "+
			"does not serve them")
	fs.StringVar(&f.CertFile, "tls-cert-file", f.CertFile,
		"file with the serving certificate; if empty, the process makes a self-signed certificate when it "+
			"starts")
	fs.StringVar(&f.KeyFile, "tls-private-key-file", f.KeyFile, "file with the private key of --tls-cert-file")
	fs.StringVar(&f.ClientCAFile, "client-ca-file", f.ClientCAFile,
		"file with the CA certificates that verify client certificates; if empty, client certificates are "+
			"not accepted")
	fs.StringVar(&f.MinTLSVersion, "tls-min-version", f.MinTLSVersion,
		"lowest TLS version that clients may use: VersionTLS12 or VersionTLS13; if empty, VersionTLS12")
	fs.StringSliceVar(&f.CipherSuites, "tls-cipher-suites", f.CipherSuites,
		"cipher suites that clients may use with TLS 1.2, separated by commas; if empty, Go's default")
	fs.IntVar(&f.MaxStreams, "http2-max-streams-per-connection", f.MaxStreams,
		"maximum number of requests at the same time on one HTTP/2 connection; 0 means Go's default")
	fs.Var(&inverse{&f.NoProfiling}, "profiling", "serve profiles at /debug/pprof to users who may get this path")
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
		"elect a leader among all running processes of this kind, by a Lease; only the leader works, the "+
			"other processes wait")
	fs.DurationVar(&f.LeaseDuration, "leader-elect-lease-duration", f.LeaseDuration,
		"time after the leader's last renewal of the Lease after which another process takes over")
	fs.DurationVar(&f.RenewDeadline, "leader-elect-renew-deadline", f.RenewDeadline,
		"how long the leader retries a renewal of the Lease before it gives up being the leader; must be less "+
			"than --leader-elect-lease-duration")
	fs.DurationVar(&f.RetryPeriod, "leader-elect-retry-period", f.RetryPeriod,
		"pause between two attempts to get or renew the Lease")
	fs.StringVar(&f.ResourceName, "leader-elect-resource-name", f.ResourceName,
		"name of the Lease for the election of a leader")
	fs.StringVar(&f.ResourceNamespace, "leader-elect-resource-namespace", f.ResourceNamespace,
		"namespace of the Lease for the election of a leader")
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
