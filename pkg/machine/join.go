// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/pem"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/discovery"
	"keelson.dev/keelson/pkg/provision"
)

// Invitation is what a machine needs to know to join a cluster.
type Invitation struct {
	Server string   // an API server, as IP address and port
	Token  string   // a join token
	Hashes []string // hashes of the cluster's authority, see discovery.Hash
}

// client returns a client of the invitation's server with the rights of its token. authority is the
// certificate of the cluster's authority in PEM.
func (i *Invitation) client(authority []byte) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + i.Server, BearerToken: i.Token, Timeout: apiTimeout,
		TLSClientConfig: rest.TLSClientConfig{CAData: authority},
	})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return client, nil
}

// Discover checks that the invitation's server belongs to the cluster, and reads the configuration
// that the cluster's machines have in common. It returns the authority's certificate in PEM, too.
func Discover(ctx context.Context, i *Invitation) (shared *config.KeelsonConfiguration, authority []byte, err error) {
	cert, err := discovery.Authority(ctx, i.Server, i.Hashes)
	if err != nil {
		return nil, nil, err
	}
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	client, err := i.client(authority)
	if err != nil {
		return nil, nil, err
	}
	shared, err = sharedConfiguration(ctx, client)
	return shared, authority, err
}

// Join makes this machine a node of the cluster that has sent the invitation. c is valid, has all
// defaults, and agrees with the cluster's configuration. It returns when the node is ready.
func Join(ctx context.Context, c *config.KeelsonConfiguration, i *Invitation, authority []byte, d Deps) error {
	dir, err := release()
	if err != nil {
		return err
	}
	of, err := cluster(c)
	if err != nil {
		return err
	}
	s := &steps{Deps: d}
	if err := s.run("configuration", func() error { return writeWorker(ctx, dir, c, of, i, authority) }); err != nil {
		return err
	}
	if err := s.run("containerd", func() error { return startUnits(ctx, containerd, agentName) }); err != nil {
		return err
	}
	if err := s.run("images", func() error { return importOwnImages(ctx) }); err != nil {
		return err
	}
	err = s.run("node "+c.Node.Name, func() error {
		return s.startNode(ctx, func(ctx context.Context) error {
			// The kubelet's own credentials show that it has got them.
			client, err := kubeletClient()
			if err != nil {
				return err
			}
			return nodeReady(ctx, client, c.Node.Name)
		})
	})
	if err != nil {
		return err
	}
	// The token is not needed any more.
	if err := os.Remove(provision.BootstrapKubeconfig); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("token: %w", err)
	}
	fmt.Fprintf(d.Out, "\nThis machine is the node %s of the cluster %s.\n", c.Node.Name, c.ClusterName)
	return nil
}

// writeWorker writes the files of a machine that joins as a node.
func writeWorker(ctx context.Context, dir string, c *config.KeelsonConfiguration, of *provision.Cluster, i *Invitation,
	authority []byte) error {
	n := node(c, of, true)
	if err := writeMachine(ctx, dir, c, n); err != nil {
		return err
	}
	if err := n.WriteKubeconfigs(authority); err != nil {
		return err
	}
	bootstrap, err := of.BootstrapKubeconfig(n.Server, authority, i.Token)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteDurably(provision.BootstrapKubeconfig, bootstrap, 0o600); err != nil {
		return err
	}
	return agent.WriteServers(serverList, []string{i.Server})
}
