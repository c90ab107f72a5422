// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates obtains the kubelet's client and server certificates. It creates
// CertificateSigningRequests and stores the issued certificates in the kubelet's certificate
// directory, where NAME-current.pem links to the newest certificate with its key. It renews
// certificates well before they expire.
//
// A kubelet that has no certificate yet uses the credentials of a bootstrap kubeconfig, which
// permit only requests for a certificate.
//
// client-go makes the requests. A controller of the cluster approves them.
package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/certificate"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
)

// Names of the certificates in the certificate directory.
const (
	clientStore = "kubelet-client"
	serverStore = "kubelet-server"
)

const (
	// poll is how often a starting kubelet checks whether its first certificate has been issued.
	poll = 100 * time.Millisecond
	// reread is how often the kubelet reads its certificate file again, because another program may
	// have renewed the certificate.
	reread = 10 * time.Second
)

// Config holds the settings that client and server certificates have in common.
type Config struct {
	NodeName string
	// Dir is the kubelet's certificate directory.
	Dir     string
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

func (c *Config) subject() pkix.Name {
	return pkix.Name{CommonName: "system:node:" + c.NodeName, Organization: []string{"system:nodes"}}
}

// ClientFile returns the path of the client certificate and its key, for use in a kubeconfig.
func ClientFile(dir string) string { return currentFile(dir, clientStore) }

func currentFile(dir, store string) string { return filepath.Join(dir, store+"-current.pem") }

// Manager obtains one certificate of the kubelet and renews it.
type Manager struct {
	inner certificate.Manager
	file  string // file with the newest certificate and its key
	clock clock.Clock
	found atomic.Pointer[tls.Certificate] // the certificate last read from file
}

// Run renews the certificate in time until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	m.inner.Start()
	defer m.inner.Stop()
	ticker := m.clock.NewTicker(reread)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		// If the file cannot be read, keep the previous certificate.
		if cert, err := tls.LoadX509KeyPair(m.file, m.file); err == nil {
			m.found.Store(&cert)
		}
	}
}

var errNoCertificate = errors.New("no serving certificate available for the kubelet")

// Get returns the certificate that a TLS server presents: the one in the file, to which the manager
// writes its certificates too, or the manager's if the file was not read yet.
func (m *Manager) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if found := m.found.Load(); found != nil {
		return found, nil
	}
	if cert := m.inner.Current(); cert != nil {
		return cert, nil
	}
	return nil, errNoCertificate
}

// Bootstrap makes sure that kubeconfig exists and is valid. If it is not, Bootstrap requests a
// client certificate with the credentials in the kubeconfig bootstrap, waits until the certificate
// is issued, and writes kubeconfig.
func Bootstrap(ctx context.Context, c Config, kubeconfig, bootstrap string) error {
	if usable(kubeconfig, c.Clock.Now()) {
		return nil
	}
	with, err := clientcmd.BuildConfigFromFlags("", bootstrap)
	if err != nil {
		return fmt.Errorf("bootstrap kubeconfig: %w", err)
	}
	m, err := NewClient(c, func() (*rest.Config, error) { return with, nil })
	if err != nil {
		return err
	}
	c.Log.Info("Requesting a client certificate", "server", with.Host)
	m.inner.Start()
	defer m.inner.Stop()
	for m.inner.Current() == nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("client certificate: %w", context.Cause(ctx))
		case <-c.Clock.After(poll):
		}
	}
	return writeKubeconfig(kubeconfig, bootstrap, ClientFile(c.Dir))
}

// usable reports whether a kubeconfig has a certificate that has not expired, or has a bearer
// token.
func usable(kubeconfig string, now time.Time) bool {
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return false
	}
	data := rc.CertData
	if rc.CertFile != "" {
		if data, err = os.ReadFile(rc.CertFile); err != nil {
			return false
		}
	}
	if len(data) == 0 {
		return rc.BearerToken != "" || rc.BearerTokenFile != ""
	}
	pair, err := tls.X509KeyPair(data, keyOf(rc, data))
	return err == nil && pair.Leaf != nil && now.Before(pair.Leaf.NotAfter)
}

func keyOf(rc *rest.Config, cert []byte) []byte {
	if rc.KeyFile == "" || rc.KeyFile == rc.CertFile {
		return append(append([]byte{}, rc.KeyData...), cert...)
	}
	key, err := os.ReadFile(rc.KeyFile)
	if err != nil {
		return nil
	}
	return key
}

// writeKubeconfig writes a kubeconfig to file. It contains the cluster of the kubeconfig bootstrap,
// and the certificate in the file pair as credentials.
func writeKubeconfig(file, bootstrap, pair string) error {
	from, err := clientcmd.LoadFromFile(bootstrap)
	if err != nil {
		return fmt.Errorf("bootstrap kubeconfig: %w", err)
	}
	at := from.Contexts[from.CurrentContext]
	if at == nil || from.Clusters[at.Cluster] == nil {
		return fmt.Errorf("bootstrap kubeconfig %s: no current context", bootstrap)
	}
	if err := clientcmd.ResolveLocalPaths(from); err != nil {
		return fmt.Errorf("bootstrap kubeconfig: %w", err)
	}
	const name = "default"
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificate, user.ClientKey = pair, pair
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo, context.Namespace = name, name, at.Namespace
	out := clientcmdapi.NewConfig()
	out.Clusters[name], out.AuthInfos[name], out.Contexts[name], out.CurrentContext = from.Clusters[at.Cluster],
		user, context, name
	data, err := clientcmd.Write(*out)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := atomicfile.WriteDurably(file, data, 0o600); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

// NewClient returns the manager of the client certificate. Before each request, it calls the given
// function to get the client configuration: the bootstrap configuration, or the kubelet's own,
// which is read again each time because its certificate changes.
func NewClient(c Config, with func() (*rest.Config, error)) (*Manager, error) {
	store, err := certificate.NewFileStore(clientStore, c.Dir, c.Dir, "", "")
	if err != nil {
		return nil, fmt.Errorf("store of client certificates: %w", err)
	}
	failures := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_certificate_manager_client_expiration_renew_errors",
		Help: "[ALPHA] Counter of certificate renewal errors."})
	inner, err := certificate.NewManager(&certificate.Config{
		ClientsetFn:      clients(with),
		Template:         &x509.CertificateRequest{Subject: c.subject()},
		SignerName:       certificatesv1.KubeAPIServerClientKubeletSignerName,
		GetUsages:        certificate.DefaultKubeletClientGetUsages,
		CertificateStore: store, CertificateRenewFailure: failures,
	})
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	m := &Manager{inner: inner, file: ClientFile(c.Dir), clock: c.Clock}
	return m, c.measure(inner, "client", "client certificate", failures)
}

// NewServer returns the manager of the serving certificate. The certificate is valid for the given
// DNS names and IP addresses.
func NewServer(c Config, client kubernetes.Interface, names []string, addresses []net.IP) (*Manager, error) {
	store, err := certificate.NewFileStore(serverStore, c.Dir, c.Dir, "", "")
	if err != nil {
		return nil, fmt.Errorf("store of serving certificates: %w", err)
	}
	failures := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_server_expiration_renew_errors", Help: "[ALPHA] Counter of certificate renewal errors."})
	ages := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "kubelet_certificate_manager_server_rotation_seconds",
		Help: "[ALPHA] Histogram of the number of seconds the previous certificate lived before being rotated.",
		// 1 minute, 1 and 4 hours, 1 and 7 days, 1, 3, 6 and 12 months of 30 days, and 4 years
		Buckets: []float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000},
	})
	inner, err := certificate.NewManager(&certificate.Config{
		ClientsetFn:      func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil },
		GetTemplate:      func() *x509.CertificateRequest { return c.serving(names, addresses) },
		SignerName:       certificatesv1.KubeletServingSignerName,
		GetUsages:        certificate.DefaultKubeletServingGetUsages,
		CertificateStore: store, CertificateRenewFailure: failures, CertificateRotation: ages,
	})
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	m := &Manager{inner: inner, file: currentFile(c.Dir, serverStore), clock: c.Clock}
	return m, c.measure(inner, "server", "serving certificate", failures, ages)
}

func (c *Config) serving(names []string, addresses []net.IP) *x509.CertificateRequest {
	if len(addresses) == 0 {
		return nil // no certificate is requested, because clients could not reach a server without addresses
	}
	return &x509.CertificateRequest{Subject: c.subject(), DNSNames: names, IPAddresses: addresses}
}

func clients(with func() (*rest.Config, error)) certificate.ClientsetFunc {
	return func(*tls.Certificate) (kubernetes.Interface, error) {
		rc, err := with()
		if err != nil {
			return nil, err
		}
		return kubernetes.NewForConfig(rc)
	}
}

// measure registers the given collectors, and a metric of the time until the manager's certificate
// expires.
func (c *Config) measure(m certificate.Manager, kind, what string, others ...prometheus.Collector) error {
	if c.Metrics == nil {
		return nil
	}
	left := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_certificate_manager_" + kind + "_ttl_seconds",
		Help: "[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's " + what +
			". The value is in seconds until certificate expiry (negative if already expired). If the " +
			"certificate is invalid or unused, the value will be +INF.",
	}, func() float64 {
		if cert := m.Current(); cert != nil && cert.Leaf != nil {
			return math.Trunc(cert.Leaf.NotAfter.Sub(c.Clock.Now()).Seconds())
		}
		return math.Inf(1)
	})
	for _, collector := range append(others, left) {
		if err := c.Metrics.Register(collector); err != nil {
			return fmt.Errorf("metrics of certificates: %w", err)
		}
	}
	return nil
}
