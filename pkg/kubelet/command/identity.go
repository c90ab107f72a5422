// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/kubelet/certificates"
)

// identity holds the credentials with which the kubelet accesses the API server.
type identity struct {
	options  *options
	config   certificates.Config
	managers []*certificates.Manager // certificate managers; the caller must call Run of each
	rest     *rest.Config
	tracing  *daemon.Tracing
	// qps and burst limit the rate of the requests to the API server. If qps is nil, the rate is
	// not limited.
	qps   *int32
	burst int32
}

// client returns a client of the API server. A kubelet that has no certificate yet first requests
// one with the credentials of the bootstrap kubeconfig.
func (i *identity) client(ctx context.Context) (kubernetes.Interface, error) {
	if i.options.bootstrap != "" {
		first := i.config
		first.Metrics = nil // the manager that is created later registers the metrics
		if err := certificates.Bootstrap(ctx, first, i.options.Kubeconfig, i.options.bootstrap); err != nil {
			return nil, fmt.Errorf("bootstrap: %w", err)
		}
	}
	var err error
	if i.rest, err = i.load(); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(i.rest)
	i.tracing.Client(own)
	if i.qps != nil {
		own.QPS, own.Burst = float32(*i.qps), int(i.burst)
	}
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return client, nil
}

func (i *identity) load() (*rest.Config, error) {
	return daemon.RESTConfig(i.options.Kubeconfig, "kubelet")
}

// certificates creates the managers of the certificates that the kubelet must renew according to
// the configuration. It returns the function that provides the server's certificate, or nil if the
// kubelet does not request that certificate.
func (i *identity) certificates(client kubernetes.Interface, c *kubeletconfig.KubeletConfiguration,
	ips []string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if c.RotateCertificates {
		// The client reads a renewed certificate only if it is in the file that the manager writes.
		if i.rest.CertFile == certificates.ClientFile(i.config.Dir) {
			m, err := certificates.NewClient(i.config, i.load)
			if err != nil {
				return nil, err
			}
			i.managers = append(i.managers, m)
		} else {
			i.config.Log.Info("Client certificate is not renewed, because the kubelet did not request it itself",
				"file", i.rest.CertFile)
		}
	}
	if !c.ServerTLSBootstrap || c.TLSCertFile != "" {
		return nil, nil
	}
	var addresses []net.IP
	for _, ip := range ips {
		addresses = append(addresses, net.ParseIP(ip))
	}
	m, err := certificates.NewServer(i.config, client, []string{i.config.NodeName}, addresses)
	if err != nil {
		return nil, err
	}
	i.managers = append(i.managers, m)
	return m.Get, nil
}
