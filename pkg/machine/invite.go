// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/discovery"
)

// rootCA is the ConfigMap in each namespace with the certificate of the cluster's authority, under
// rootCAKey. The controller manager keeps it up to date.
const (
	rootCA    = "kube-root-ca.crt"
	rootCAKey = "ca.crt"
)

var (
	errNoServer    = errors.New("the EndpointSlice default/kubernetes has no address of an API server")
	errNoAuthority = errors.New("no certificate authority found")
)

// Invite returns what machines need to join the cluster, except a token. authority has the
// certificates in PEM that the client trusts, one of them that of the cluster's authority. If it is
// empty, Invite reads them from the cluster.
func Invite(ctx context.Context, client kubernetes.Interface, authority []byte) (*Invitation, error) {
	slice, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("API servers: %w", err)
	}
	servers := agent.ServersIn(slice)
	if len(servers) == 0 {
		return nil, errNoServer
	}
	if len(authority) == 0 {
		m, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, rootCA, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		authority = []byte(m.Data[rootCAKey])
	}
	hashes, err := authorityHashes(authority)
	if err != nil {
		return nil, err
	}
	return &Invitation{Server: servers[0], Hashes: hashes}, nil
}

// authorityHashes returns the hashes of all authorities in PEM. While the authorities of a cluster are
// replaced, the server presents the certificate of the one that signs, which is not the first at each step.
func authorityHashes(pem []byte) (out []string, err error) {
	certs, err := cert.ParseCertsPEM(pem)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	for _, c := range certs {
		if h := discovery.Hash(c); c.IsCA && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	if len(out) == 0 {
		return nil, errNoAuthority
	}
	return out, nil
}

// Command returns the command with which a machine accepts the invitation.
func (i *Invitation) Command() string {
	return fmt.Sprintf("ctl join %s --token %s --ca-cert-hash %s", i.Server, i.Token, strings.Join(i.Hashes, ","))
}

// ControlPlaneCommand returns the shell command with which a machine accepts an invitation to become a
// control plane. It keeps the token, which protects the keys of the cluster, out of the list of
// processes.
func (i *Invitation) ControlPlaneCommand() string {
	return fmt.Sprintf("echo %s | ctl join %s --control-plane --token-file - --ca-cert-hash %s", i.Token, i.Server,
		strings.Join(i.Hashes, ","))
}
