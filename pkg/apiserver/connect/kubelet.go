// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connect forwards requests of clients to kubelets, pods and services: logs, exec, attach,
// port-forward and the proxies.
//
// It does not follow redirects, and does not forward the client's credentials. It connects only to
// addresses in API objects. Proxies do not connect to addresses of the server's own machine and
// network (loopback, link-local, multicast).
package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/halfclose"
	"keelson.dev/keelson/pkg/outbound"
)

const (
	defaultKubeletPort = 10250
	handshakeTimeout   = 30 * time.Second
)

// KubeletConfig configures connections to kubelets.
type KubeletConfig struct {
	CertFile, KeyFile string // client certificate; may be empty
	CAFile            string // CA of the kubelets' serving certificates; if empty, these are not verified
	AddressTypes      []string
	// Outbound decides to which addresses the server may connect.
	Outbound outbound.Policy
}

// Kubelets looks up the kubelets of nodes and sends requests to them.
type Kubelets struct {
	client   kubernetes.Interface
	types    []corev1.NodeAddressType
	verified *http.Transport
	insecure *http.Transport
	// streams is the transport for upgraded connections.
	streams *http.Transport
	// proxied is the transport for requests of the node proxy. Whatever the policy allows, it never
	// connects to loopback, link-local or multicast addresses.
	proxied *http.Transport
	policy  outbound.Policy // policy of proxied
}

// NewKubelets reads the files that cfg names. The client certificate is read again for every
// connection, so that it can be renewed without a restart.
func NewKubelets(cfg KubeletConfig, client kubernetes.Interface) (*Kubelets, error) {
	k := &Kubelets{client: client, policy: cfg.Outbound.With(outbound.SpecialRanges())}
	dialer := outbound.NewDialer(cfg.Outbound)
	for _, t := range cfg.AddressTypes {
		k.types = append(k.types, corev1.NodeAddressType(t))
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, err := readable(cfg.CAFile, cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	if cfg.CertFile != "" && cfg.KeyFile != "" {
		base.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
			return &cert, err
		}
	}
	insecure := base.Clone()
	insecure.InsecureSkipVerify = true // for clients that ask for it, and for all requests if there is no CA
	k.insecure = transport(insecure, dialer)
	k.verified = k.insecure
	if cfg.CAFile != "" {
		base.RootCAs = x509.NewCertPool()
		if !base.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("unable to load root certificates: no valid certificate authority data seen")
		}
		k.verified = transport(base, dialer)
	}
	k.streams = k.verified.Clone()
	k.streams.DialContext = halfclose.Dial(dialer.DialContext)
	k.proxied = transport(k.verified.TLSClientConfig.Clone(), outbound.NewDialer(k.policy))
	return k, nil
}

// readable reads files, skips empty names, and returns the content of the first. All files must be
// readable, even a certificate without a key, which is not used.
func readable(files ...string) (first []byte, err error) {
	for i, file := range files {
		if file == "" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = data
		}
	}
	return first, nil
}

// transport returns a transport that uses only HTTP/1.1, because HTTP/2 does not support upgrades.
func transport(c *tls.Config, d *outbound.Dialer) *http.Transport {
	return &http.Transport{
		TLSClientConfig:     c,
		DialContext:         d.DialContext,
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}

// kubelet is the address of a node's kubelet.
type kubelet struct {
	host, port string
}

func (k kubelet) url(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(k.host, k.port), Path: path, RawQuery: query.Encode()}
}

// of looks up the kubelet of a node.
func (k *Kubelets) of(ctx context.Context, node string) (kubelet, error) {
	obj, err := k.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return kubelet{}, err
	}
	port := obj.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = defaultKubeletPort
	}
	for _, t := range k.types {
		for _, a := range obj.Status.Addresses {
			if a.Type == t {
				return kubelet{a.Address, strconv.Itoa(int(port))}, nil
			}
		}
	}
	return kubelet{}, fmt.Errorf("no preferred addresses found; known addresses: %v", obj.Status.Addresses)
}

// Close ends idle connections.
func (k *Kubelets) Close() {
	for _, t := range []*http.Transport{k.verified, k.insecure, k.streams, k.proxied} {
		t.CloseIdleConnections()
	}
}
