// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstraptoken

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// CleaningName is the name of the controller that deletes expired bootstrap tokens.
const CleaningName = "token-cleaner-controller"

type cleaning struct {
	controller.Deps
	queue   *controller.Queue
	secrets corelisters.SecretLister
}

// NewCleaning returns the controller that deletes bootstrap tokens when they expire.
func NewCleaning(d controller.Deps) (controller.Controller, error) {
	secrets := d.Informers.Core().V1().Secrets()
	c := &cleaning{Deps: d, secrets: secrets.Lister()}
	c.queue = controller.NewQueue(CleaningName, d.Clock, d.Log, 1, c.sync)
	return c, controller.OnChange(secrets.Informer(), func(_, s *v1.Secret) {
		if s != nil && isToken(s) {
			c.queue.AddObject(s)
		}
	})
}

// Run implements controller.Controller.
func (c *cleaning) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *cleaning) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	s, err := c.secrets.Secrets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	at, forever := expiry(s)
	if forever || !isToken(s) {
		return nil
	}
	if left := at.Sub(c.Clock.Now()); left > 0 {
		c.queue.AddAfter(key, left)
		return nil
	}
	// Delete the Secret only in the version that the cache shows, because its expiration may have
	// been changed since.
	err = c.Client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("expired token: %w", err)
	}
	return nil
}
