// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// TokensName is the name of the controller of token Secrets.
const TokensName = "serviceaccount-token-controller"

type tokens struct {
	controller.Deps
	queue    *controller.Queue
	secrets  corelisters.SecretLister
	accounts corelisters.ServiceAccountLister
	sign     signer
}

// NewTokens returns the controller that fills token Secrets, and that deletes those of deleted service
// accounts.
func NewTokens(d controller.Deps) (controller.Controller, error) {
	sign, err := newSigner(d.Options.TokenKey)
	if err != nil {
		return nil, err
	}
	core := d.Informers.Core().V1()
	c := &tokens{Deps: d, secrets: core.Secrets().Lister(), accounts: core.ServiceAccounts().Lister(), sign: sign}
	c.queue = controller.NewQueue(TokensName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(core.Secrets().Informer(), func(_, s *v1.Secret) {
			if s != nil && s.Type == v1.SecretTypeServiceAccountToken {
				c.queue.AddObject(s)
			}
		}),
		controller.OnChange(core.ServiceAccounts().Informer(), func(old, sa *v1.ServiceAccount) {
			if sa == nil || old == nil || old.UID != sa.UID {
				c.accountChanged(controller.Latest(old, sa))
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *tokens) Run(ctx context.Context) error {
	return c.FollowRootCA(ctx, c.queue, func() {
		all, err := c.secrets.List(labels.Everything())
		if err != nil {
			return // cannot happen: List of a cache returns no error
		}
		for _, s := range all {
			if s.Type == v1.SecretTypeServiceAccountToken {
				c.queue.AddObject(s)
			}
		}
	})
}

func (c *tokens) accountChanged(sa *v1.ServiceAccount) {
	list, err := c.secrets.Secrets(sa.Namespace).List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, s := range list {
		if s.Type == v1.SecretTypeServiceAccountToken && s.Annotations[v1.ServiceAccountNameKey] == sa.Name {
			c.queue.AddObject(s)
		}
	}
}

func (c *tokens) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	secret, err := c.secrets.Secrets(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && secret.DeletionTimestamp != nil {
		return nil
	}
	if err != nil {
		return err
	}
	account, err := c.account(ctx, secret)
	if err != nil {
		return err
	}
	if account == nil {
		return c.remove(ctx, secret)
	}
	return c.fill(ctx, secret, account)
}

// account returns the service account that a Secret names, or nil if it does not exist or was
// replaced by another one.
func (c *tokens) account(ctx context.Context, s *v1.Secret) (*v1.ServiceAccount, error) {
	name, uid := s.Annotations[v1.ServiceAccountNameKey], s.Annotations[v1.ServiceAccountUIDKey]
	right := func(sa *v1.ServiceAccount) bool { return uid == "" || string(sa.UID) == uid }
	if sa, err := c.accounts.ServiceAccounts(s.Namespace).Get(name); err == nil && right(sa) {
		return sa, nil
	}
	// The cache may lag. Ask the API server, because the Secret is deleted if the account does not
	// exist.
	sa, err := c.Client.CoreV1().ServiceAccounts(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !right(sa) {
		return nil, nil
	}
	// If the account is deleted before the cache shows it, there is no event of the deletion.
	// Therefore check the Secret again later.
	c.queue.AddAfter(controller.Key(s), recheck)
	return sa, err
}

func (c *tokens) remove(ctx context.Context, s *v1.Secret) error {
	err := c.Client.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
	return ignoreChanged("remove token", err)
}

func (c *tokens) fill(ctx context.Context, s *v1.Secret, sa *v1.ServiceAccount) error {
	next := s.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	authorities := c.Options.RootCertificates()
	complete := next.Annotations[v1.ServiceAccountUIDKey] != "" && len(next.Data[v1.ServiceAccountTokenKey]) > 0 &&
		len(next.Data[v1.ServiceAccountNamespaceKey]) > 0 &&
		(len(authorities) == 0 || string(next.Data[v1.ServiceAccountRootCAKey]) == string(authorities))
	if complete {
		return nil
	}
	if len(next.Data[v1.ServiceAccountTokenKey]) == 0 {
		token, err := c.sign.token(sa, s)
		if err != nil {
			return err
		}
		next.Data[v1.ServiceAccountTokenKey] = []byte(token)
	}
	if len(authorities) > 0 {
		next.Data[v1.ServiceAccountRootCAKey] = authorities
	}
	if len(next.Data[v1.ServiceAccountNamespaceKey]) == 0 {
		next.Data[v1.ServiceAccountNamespaceKey] = []byte(s.Namespace)
	}
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1.ServiceAccountNameKey, sa.Name)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1.ServiceAccountUIDKey, string(sa.UID))
	if _, err := c.Client.CoreV1().Secrets(s.Namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("fill token: %w", err)
	}
	return nil
}

// ignoreChanged returns nil for errors that occur because a Secret was changed or deleted in the
// meantime. An event or the next sweep checks it again.
func ignoreChanged(what string, err error) error {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
