// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

const (
	tokenLife   = time.Hour
	callTimeout = 10 * time.Second
)

// account is the service account of a controller, in the namespace kube-system. It gets tokens from
// the API server as an oauth2.TokenSource.
type account struct {
	ctx    context.Context // stored here because the method Token of the interface has no context parameter
	client kubernetes.Interface
	name   string
}

// configFor returns a copy of a client configuration that authenticates as the service account with
// the given name.
func configFor(ctx context.Context, rc *rest.Config, client kubernetes.Interface, name string) *rest.Config {
	c := rest.AnonymousClientConfig(rc)
	c.UserAgent = rc.UserAgent + "/" + name
	c.QPS, c.Burst = rc.QPS, rc.Burst
	c.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedTokenSource(&account{ctx, client, name})))
	return c
}

// Token returns a new token for the service account. It creates the service account if it does not
// exist. It implements oauth2.TokenSource.
func (a *account) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(a.ctx, callTimeout)
	defer cancel()
	token, err := a.request(ctx)
	if apierrors.IsNotFound(err) {
		sa := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: a.name}}
		_, err = a.client.CoreV1().ServiceAccounts(sa.Namespace).Create(ctx, sa, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			token, err = a.request(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("token of service account %s: %w", a.name, err)
	}
	return &oauth2.Token{AccessToken: token.Status.Token, TokenType: "Bearer",
		Expiry: token.Status.ExpirationTimestamp.Time}, nil
}

func (a *account) request(ctx context.Context) (*authenticationv1.TokenRequest, error) {
	life := int64(tokenLife / time.Second)
	return a.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, a.name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life}},
		metav1.CreateOptions{})
}
