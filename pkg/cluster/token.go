// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"os"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// nodeGroup is the group of clients that authenticate with a join token. Such a client may only
// request the client certificate of a node.
const nodeGroup = "system:bootstrappers:keelson:node"

// joinPatience is the lifetime of a token that is created for a node that joins immediately.
const joinPatience = 10 * time.Minute

// DefaultTokenLife is the default lifetime of a join token.
const DefaultTokenLife = time.Hour

// CreateToken creates a join token and returns it.
func CreateToken(ctx context.Context, c *Config, life time.Duration, deps Deps) (string, error) {
	client, err := machineClient(c)
	if err != nil {
		return "", err
	}
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
			"expiration":                     deps.Clock.Now().Add(life).UTC().Format(time.RFC3339),
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
// It has the cluster's certificate authority and the token.
func BootstrapKubeconfig(c *Config, token string) ([]byte, error) {
	cluster := api.NewCluster()
	cluster.Server = c.clusterServer()
	var err error
	if cluster.CertificateAuthorityData, err = os.ReadFile(c.dirs().pki("ca.crt")); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	user := api.NewAuthInfo()
	user.Token = token
	at := api.NewContext()
	at.Cluster, at.AuthInfo = c.Name, "bootstrap"
	cfg := api.NewConfig()
	cfg.Clusters[c.Name], cfg.AuthInfos["bootstrap"], cfg.Contexts[c.Name], cfg.CurrentContext = cluster, user, at, c.Name
	data, err := clientcmd.Write(*cfg)
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
