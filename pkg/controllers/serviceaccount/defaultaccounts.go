// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// DefaultAccountsName is the name of the controller of default service accounts.
const DefaultAccountsName = "serviceaccount-controller"

// defaultName is the name of the service account that every namespace has.
const defaultName = "default"

// recheck is the time after which a key is synced again if it depends on a service account that the
// cache does not show yet, in case the account is deleted before the cache shows it.
const recheck = time.Minute

type defaultAccounts struct {
	controller.Deps
	queue      *controller.Queue
	namespaces corelisters.NamespaceLister
	accounts   corelisters.ServiceAccountLister
}

// NewDefaultAccounts returns the controller that maintains the service account "default" in every
// namespace.
func NewDefaultAccounts(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	c := &defaultAccounts{Deps: d, namespaces: core.Namespaces().Lister(),
		accounts: core.ServiceAccounts().Lister()}
	c.queue = controller.NewQueue(DefaultAccountsName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(core.Namespaces().Informer(), func(_, ns *v1.Namespace) {
			if ns != nil {
				c.queue.Add(ns.Name)
			}
		}),
		controller.OnChange(core.ServiceAccounts().Informer(), func(old, sa *v1.ServiceAccount) {
			if sa == nil && old.Name == defaultName {
				c.queue.Add(old.Namespace)
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *defaultAccounts) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *defaultAccounts) sync(ctx context.Context, namespace string) error {
	ns, err := c.namespaces.Get(namespace)
	if apierrors.IsNotFound(err) || err == nil && ns.Status.Phase == v1.NamespaceTerminating {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err = c.accounts.ServiceAccounts(namespace).Get(defaultName); !apierrors.IsNotFound(err) {
		return err
	}
	sa := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: defaultName}}
	_, err = c.Client.CoreV1().ServiceAccounts(namespace).Create(ctx, sa, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return fmt.Errorf("create service account: %w", err)
	}
	// If the account is deleted before the cache shows it, there is no event of the deletion.
	// Therefore check the namespace again later.
	c.queue.AddAfter(namespace, recheck)
	return nil
}
