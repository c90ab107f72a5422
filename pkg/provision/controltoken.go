// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"

	core "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
)

// keyLen is the length in bytes of the key that is the third part of a control plane's token.
const keyLen = 32

// authoritiesKey is the key of the encrypted authorities in the data of a token's Secret. They are in
// the Secret of the token itself, so that they expire and are deleted with it.
const authoritiesKey = "authorities"

// controlPlaneRights is the prefix of the Role and the RoleBinding that let the client with a token
// read the token's own Secret. The rest of the name is the token's ID.
const controlPlaneRights = "keelson:join:"

var controlPlanePattern = regexp.MustCompile(`^([a-z0-9]{6}\.[a-z0-9]{16})\.([0-9a-f]{64})$`)

var errNoAuthorities = errors.New("the token's Secret has no authorities, so the token is not one for a control plane")

// ControlPlaneToken is a token with which a control plane joins.
type ControlPlaneToken struct {
	Join string // the join token, which the API server knows
	key  []byte // decrypts the authorities; no object and no file has it
}

// ParseControlPlaneToken parses a token that [CreateControlPlaneToken] has returned. ok is false if the
// text is not such a token.
func ParseControlPlaneToken(text string) (token ControlPlaneToken, ok bool) {
	parts := controlPlanePattern.FindStringSubmatch(text)
	if parts == nil {
		return token, false
	}
	key, err := hex.DecodeString(parts[2])
	return ControlPlaneToken{Join: parts[1], key: key}, err == nil
}

// CreateControlPlaneToken creates a token with which control planes join. It stores the authorities,
// encrypted with the third part of the token, which is not stored.
func CreateControlPlaneToken(ctx context.Context, client kubernetes.Interface, o TokenOptions, a Authorities,
	clk clock.Clock) (string, error) {
	key := make([]byte, keyLen)
	_, _ = rand.Read(key) // never fails
	sealed, err := a.seal(key)
	if err != nil {
		return "", err
	}
	token, secret, err := createToken(ctx, client, o, map[string][]byte{authoritiesKey: sealed}, clk)
	if err != nil {
		return "", err
	}
	if err := allowOwnSecret(ctx, client, token, secret); err != nil {
		id, _ := TokenID(token)
		return "", errors.Join(err, DeleteToken(context.WithoutCancel(ctx), client, id))
	}
	return token + "." + hex.EncodeToString(key), nil
}

// allowOwnSecret lets the client with a token read the token's Secret. The right is removed with the
// Secret.
func allowOwnSecret(ctx context.Context, client kubernetes.Interface, token string, secret *core.Secret) error {
	id, err := TokenID(token)
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{
		Name: controlPlaneRights + id, Namespace: secret.Namespace,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID}},
	}
	rights := client.RbacV1()
	_, err = rights.Roles(meta.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secret.Name}, Verbs: []string{"get"},
	}}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("rights of the token: %w", err)
	}
	_, err = rights.RoleBindings(meta.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: tokenUser + id}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("rights of the token: %w", err)
	}
	return nil
}

// tokenUser is the prefix of the name of a client that authenticates with a bootstrap token.
const tokenUser = "system:bootstrap:"

// FetchAuthorities reads and decrypts the authorities that were stored with a token. The client
// authenticates with the token.
func FetchAuthorities(ctx context.Context, client kubernetes.Interface, token ControlPlaneToken) (Authorities, error) {
	id, err := TokenID(token.Join)
	if err != nil {
		return nil, err
	}
	s, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, tokenPrefix+id, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("authorities: %w", err)
	}
	if len(s.Data[authoritiesKey]) == 0 {
		return nil, errNoAuthorities
	}
	return openAuthorities(s.Data[authoritiesKey], token.key)
}
