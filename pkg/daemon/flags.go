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

// Flags are those that the clients of the API server have in common, under
// upstream's names.
type Flags struct {
	Kubeconfig string
	Verbosity  int
}

// Add defines the flags.
func (f *Flags) Add(fs *pflag.FlagSet) {
	fs.StringVar(&f.Kubeconfig, "kubeconfig", f.Kubeconfig, "file with the address of the API server and the credentials to use")
	fs.IntVarP(&f.Verbosity, "v", "v", f.Verbosity, "log level; debug messages are written from 4 on")
}

// ServingFlags say where a process serves its endpoints.
type ServingFlags struct {
	BindAddress  net.IP
	SecurePort   int // 0: do not serve
	CertFile     string
	KeyFile      string
	ClientCAFile string
	// MinTLSVersion and CipherSuites restrict TLS; empty: 1.2, Go's default.
	MinTLSVersion string
	CipherSuites  []string
	// MaxStreams is how many requests an HTTP/2 connection may have at once; 0: Go's default.
	MaxStreams int
	// NoProfiling leaves /debug/pprof out.
	NoProfiling bool
}

// Add defines the flags, with the present values as defaults.
func (f *ServingFlags) Add(fs *pflag.FlagSet) {
	fs.IPVar(&f.BindAddress, "bind-address", f.BindAddress, "address to serve /healthz, /livez, /readyz and /metrics on")
	fs.IntVar(&f.SecurePort, "secure-port", f.SecurePort, "port to serve on by TLS; 0 serves nothing")
	fs.StringVar(&f.CertFile, "tls-cert-file", f.CertFile, "serving certificate; without one a self-signed certificate is made")
	fs.StringVar(&f.KeyFile, "tls-private-key-file", f.KeyFile, "key of --tls-cert-file")
	fs.StringVar(&f.ClientCAFile, "client-ca-file", f.ClientCAFile, "authority of the client certificates to accept")
	fs.StringVar(&f.MinTLSVersion, "tls-min-version", f.MinTLSVersion, "lowest version of TLS to speak: VersionTLS12, VersionTLS13")
	fs.StringSliceVar(&f.CipherSuites, "tls-cipher-suites", f.CipherSuites, "cipher suites of TLS 1.2; empty: Go's default")
	fs.IntVar(&f.MaxStreams, "http2-max-streams-per-connection", f.MaxStreams, "most streams of one HTTP/2 connection; 0: Go's default")
	fs.Var(&inverse{&f.NoProfiling}, "profiling", "serve /debug/pprof to who may get it")
	fs.Lookup("profiling").NoOptDefVal = "true"
}

// inverse is a flag that is on unless it is switched off.
type inverse struct{ off *bool }

// Set reads a truth value.
func (i *inverse) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*i.off = !on
	return nil
}

// String is the value as it would be set.
func (i *inverse) String() string { return strconv.FormatBool(i.off == nil || !*i.off) }

// Type names the flag's value in usage.
func (*inverse) Type() string { return "bool" }

// Address is where to listen.
func (f *ServingFlags) Address() string {
	return net.JoinHostPort(f.BindAddress.String(), strconv.Itoa(f.SecurePort))
}

// ElectionFlags say whether and how replicas of a process elect one that works.
type ElectionFlags struct {
	Enabled           bool
	LeaseDuration     time.Duration
	RenewDeadline     time.Duration
	RetryPeriod       time.Duration
	ResourceName      string
	ResourceNamespace string
}

// DefaultElection is upstream's default for the process of that name.
func DefaultElection(name string) ElectionFlags {
	return ElectionFlags{
		Enabled: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ResourceName: name, ResourceNamespace: "kube-system",
	}
}

// Add defines the flags, with the present values as defaults.
func (f *ElectionFlags) Add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.Enabled, "leader-elect", f.Enabled, "work only while holding the lease")
	fs.DurationVar(&f.LeaseDuration, "leader-elect-lease-duration", f.LeaseDuration, "how long others wait for a leader that does not renew")
	fs.DurationVar(&f.RenewDeadline, "leader-elect-renew-deadline", f.RenewDeadline, "how long a leader tries to renew before it gives up")
	fs.DurationVar(&f.RetryPeriod, "leader-elect-retry-period", f.RetryPeriod, "time between tries")
	fs.StringVar(&f.ResourceName, "leader-elect-resource-name", f.ResourceName, "name of the Lease")
	fs.StringVar(&f.ResourceNamespace, "leader-elect-resource-namespace", f.ResourceNamespace, "namespace of the Lease")
}

// RESTConfig reads a kubeconfig for a client of built-in kinds: it speaks
// protobuf, and is not limited in its rate, which is the server's business.
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
