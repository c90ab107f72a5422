// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"

	"keelson.dev/keelson/pkg/nodeclaims"
)

// pairEnding is the ending of the names of certificate.FileStore's newest pairs.
const pairEnding = "-current.pem"

// nodePoll is how often the agent looks whether the machine has a Node.
const nodePoll = 250 * time.Millisecond

// keepProxyCertificate requests the client certificate of the machine's proxy as soon as the machine has a Node, and
// renews it, until ctx ends. A controller of the cluster approves the requests.
func (c *Config) keepProxyCertificate(ctx context.Context, client kubernetes.Interface) error {
	dir, file := filepath.Split(c.ProxyPair)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory of the proxy's certificate: %w", err)
	}
	store, err := certificate.NewFileStore(strings.TrimSuffix(file, pairEnding), dir, dir, "", "")
	if err != nil {
		return fmt.Errorf("store of the proxy's certificate: %w", err)
	}
	m, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil },
		Template: &x509.CertificateRequest{Subject: pkix.Name{
			CommonName: nodeclaims.ProxyUser(c.Node), Organization: []string{nodeclaims.ProxyGroup},
		}},
		SignerName:       certificatesv1.KubeAPIServerClientSignerName,
		GetUsages:        certificate.DefaultKubeletClientGetUsages,
		CertificateStore: store,
	})
	if err != nil {
		return fmt.Errorf("proxy's certificate: %w", err)
	}
	if !c.awaitNode(ctx, client) {
		return nil
	}
	m.Start()
	defer m.Stop()
	<-ctx.Done()
	return nil
}

// awaitNode waits until the machine has a Node. Without one, the controller would not approve the request, and log a
// warning. A control plane that joins has credentials before it has a Node. awaitNode returns false if ctx has ended.
func (c *Config) awaitNode(ctx context.Context, client kubernetes.Interface) bool {
	for {
		if _, err := client.CoreV1().Nodes().Get(ctx, c.Node, metav1.GetOptions{}); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-c.Clock.After(nodePoll):
		}
	}
}
