// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/api/clock"
)

// nodeGroup is the group of clients that authenticate with a join token. Such a client may only
// request the client certificate of a node.
const nodeGroup = "system:bootstrappers:keelson:node"

// DefaultTokenLife is the default lifetime of a join token.
const DefaultTokenLife = time.Hour

// CreateToken creates a join token that is valid for the duration life, and returns it.
func CreateToken(
	ctx context.Context, client kubernetes.Interface, life time.Duration, clk clock.Clock,
) (string, error) {
	id, err := letters(6)
	if err != nil {
		return "", err
	}
	secret, err := letters(16)
	if err != nil {
		return "", err
	}
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &core.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id":                       id,
			"token-secret":                   secret,
			"expiration":                     clk.Now().Add(life).UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true",
			"auth-extra-groups":              nodeGroup,
			"description":                    "to join a node",
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("join token: %w", err)
	}
	return id + "." + secret, nil
}

// BootstrapKubeconfig returns the kubeconfig with which a kubelet joins (--bootstrap-kubeconfig).
// server is the API server's URL, and ca the certificate of the cluster's authority.
func (c *Cluster) BootstrapKubeconfig(server string, ca []byte, token string) ([]byte, error) {
	user := api.NewAuthInfo()
	user.Token = token
	data, err := clientcmd.Write(*newKubeconfig(c.Name, server, ca, "bootstrap", user))
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return data, nil
}

// letters returns n random characters of the alphabet of bootstrap tokens.
func letters(n int) (string, error) {
	const of = "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, n)
	for i := range out {
		at, err := rand.Int(rand.Reader, big.NewInt(int64(len(of))))
		if err != nil {
			return "", fmt.Errorf("random letters: %w", err)
		}
		out[i] = of[at.Int64()]
	}
	return string(out), nil
}
