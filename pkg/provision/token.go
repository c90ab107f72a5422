// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/api/clock"
)

// nodeGroup is the group of clients that authenticate with a join token. Such a client may only
// request the client certificate of a node, and read the configuration of the cluster.
const nodeGroup = "system:bootstrappers:keelson:node"

// DefaultTokenLife is the default lifetime of a join token.
const DefaultTokenLife = time.Hour

// Kubernetes stores a bootstrap token as a Secret in kube-system that is called tokenPrefix and the
// token's ID. The Secret's type is tokenType.
const (
	tokenType   = "bootstrap.kubernetes.io/token" //nolint:gosec // the name of a type
	tokenPrefix = "bootstrap-token-"
)

// Keys of the data in a token's Secret. A key that begins with usagePrefix allows a use of the token.
const (
	expirationKey  = "expiration"
	groupsKey      = "auth-extra-groups"
	descriptionKey = "description"
	usagePrefix    = "usage-bootstrap-"
)

// tokenPattern matches a bootstrap token, one for a control plane, or the ID alone, which is the first
// submatch.
var tokenPattern = regexp.MustCompile(`^([a-z0-9]{6})(?:\.[a-z0-9]{16}(?:\.[0-9a-f]{64})?)?$`)

// A caller that passes a token with a typing error must not find it in a log, so errTokenFormat does
// not contain the token.
var (
	errTokenLife   = errors.New("a join token must expire: its lifetime must be longer than zero")
	errTokenFormat = errors.New("not a token (6 lowercase letters or digits, a dot, and 16 more) or the ID of one (6)")
)

// TokenOptions describe a new join token.
type TokenOptions struct {
	Life        time.Duration // must be longer than zero
	Description string        // for operators who list the tokens
}

// Validate returns an error if no token can be created with the options.
func (o TokenOptions) Validate() error {
	if o.Life <= 0 {
		return errTokenLife
	}
	return nil
}

// CreateToken creates a join token and returns it.
func CreateToken(ctx context.Context, client kubernetes.Interface, o TokenOptions, clk clock.Clock) (string, error) {
	token, _, err := createToken(ctx, client, o, nil, clk)
	return token, err
}

// createToken creates a join token and returns it and its Secret. The Secret also has the given data.
func createToken(ctx context.Context, client kubernetes.Interface, o TokenOptions, data map[string][]byte,
	clk clock.Clock) (token string, created *core.Secret, err error) {
	if err := o.Validate(); err != nil {
		return "", nil, err
	}
	id, err := letters(6)
	if err != nil {
		return "", nil, err
	}
	secret, err := letters(16)
	if err != nil {
		return "", nil, err
	}
	created, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &core.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: tokenPrefix + id},
		Type:       tokenType,
		Data:       data,
		StringData: map[string]string{
			"token-id":                     id,
			"token-secret":                 secret,
			expirationKey:                  clk.Now().Add(o.Life).UTC().Format(time.RFC3339),
			usagePrefix + "authentication": "true",
			groupsKey:                      nodeGroup,
			descriptionKey:                 o.Description,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", nil, fmt.Errorf("join token: %w", err)
	}
	return id + "." + secret, created, nil
}

// Token describes a bootstrap token, without its secret part.
type Token struct {
	ID string `json:"id"`
	// Expires is when the token expires, as in its Secret (RFC 3339). It is empty if the token never
	// expires.
	Expires string `json:"expires,omitempty"`
	// Usages are the purposes that the token can be used for: authentication or signing.
	Usages []string `json:"usages,omitempty"`
	// Groups are the groups of a client that authenticates with the token, besides
	// system:bootstrappers.
	Groups      []string `json:"groups,omitempty"`
	Description string   `json:"description,omitempty"`
}

// ListTokens returns all bootstrap tokens, also those that other programs have created, sorted by ID.
func ListTokens(ctx context.Context, client kubernetes.Interface) ([]Token, error) {
	secrets, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
		FieldSelector: "type=" + tokenType,
	})
	if err != nil {
		return nil, fmt.Errorf("join tokens: %w", err)
	}
	var out []Token
	for i := range secrets.Items {
		out = append(out, tokenIn(&secrets.Items[i]))
	}
	slices.SortFunc(out, func(a, b Token) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// tokenIn returns the description of the token in a Secret.
func tokenIn(s *core.Secret) Token {
	out := Token{
		ID: strings.TrimPrefix(s.Name, tokenPrefix), Expires: string(s.Data[expirationKey]),
		Description: string(s.Data[descriptionKey]),
	}
	if groups := string(s.Data[groupsKey]); groups != "" {
		out.Groups = strings.Split(groups, ",")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		if usage, ok := strings.CutPrefix(key, usagePrefix); ok && string(s.Data[key]) == "true" {
			out.Usages = append(out.Usages, usage)
		}
	}
	return out
}

// TokenID returns the ID of a token. It also accepts an ID.
func TokenID(token string) (string, error) {
	parts := tokenPattern.FindStringSubmatch(token)
	if parts == nil {
		return "", errTokenFormat
	}
	return parts[1], nil
}

// DeleteToken deletes the bootstrap token with an ID. A machine that has authenticated with it may do
// so for some more seconds, because API servers remember for a short time that a token is valid.
func DeleteToken(ctx context.Context, client kubernetes.Interface, id string) error {
	err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, tokenPrefix+id, metav1.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("join token %s: %w", id, err)
	}
	return nil
}

// BootstrapKubeconfig returns the kubeconfig with which a kubelet joins (--bootstrap-kubeconfig).
// server is the API server's URL, and ca the certificate of the cluster's authority. On a machine, the
// kubeconfig refers to the file with the authorities that [Node.WriteKubeconfigs] has written, and so
// does the kubelet's own kubeconfig afterwards.
func (c *Cluster) BootstrapKubeconfig(server string, ca []byte, token string) ([]byte, error) {
	user := api.NewAuthInfo()
	user.Token = token
	cfg := newKubeconfig(c.Name, server, ca, "bootstrap", user)
	if c.Machines {
		cfg.Clusters[c.Name].CertificateAuthorityData, cfg.Clusters[c.Name].CertificateAuthority = nil, nodeCA
	}
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
