// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rootca maintains a ConfigMap in every namespace with the certificate with which pods
// verify the API server.
package rootca

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "root-ca-certificate-publisher-controller"

const (
	configMap             = "kube-root-ca.crt"
	descriptionAnnotation = "kubernetes.io/description"
	description           = "Contains a CA bundle that can be used to verify the kube-apiserver when using " +
		"internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// recheck is the time after which a namespace is synced again when its ConfigMap was created, in
// case the ConfigMap was deleted before the cache showed it.
const recheck = time.Minute

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue      *controller.Queue
	namespaces corelisters.NamespaceLister
	maps       corelisters.ConfigMapLister
	metrics    *metrics
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	c := &Controller{Deps: d, namespaces: core.Namespaces().Lister(), maps: core.ConfigMaps().Lister(),
		metrics: newMetrics(d.Metrics)}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(core.Namespaces().Informer(), func(_, ns *v1.Namespace) {
			if ns != nil {
				c.queue.Add(ns.Name)
			}
		}),
		controller.OnChange(core.ConfigMaps().Informer(), func(old, cm *v1.ConfigMap) {
			if cm := controller.Latest(old, cm); cm.Name == configMap {
				c.queue.Add(cm.Namespace)
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return c.FollowRootCA(ctx, c.queue, func() {
		all, err := c.namespaces.List(labels.Everything())
		if err != nil {
			return // cannot happen: List of a cache returns no error
		}
		for _, ns := range all {
			c.queue.Add(ns.Name)
		}
	})
}

func (c *Controller) sync(ctx context.Context, namespace string) error {
	began := c.Clock.Now()
	err := c.publish(ctx, namespace)
	c.metrics.synced(c.Clock.Since(began), err)
	return err
}

// publish creates the ConfigMap of a namespace, or corrects its content.
func (c *Controller) publish(ctx context.Context, namespace string) error {
	ns, err := c.namespaces.Get(namespace)
	if apierrors.IsNotFound(err) || err == nil && ns.Status.Phase == v1.NamespaceTerminating {
		return nil
	}
	if err != nil {
		return err
	}
	data := map[string]string{"ca.crt": string(c.Options.RootCertificates())}
	cm, err := c.maps.ConfigMaps(namespace).Get(configMap)
	switch {
	case apierrors.IsNotFound(err):
		_, err = c.Client.CoreV1().ConfigMaps(namespace).Create(ctx, &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: configMap,
				Annotations: map[string]string{descriptionAnnotation: description}},
			Data: data,
		}, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			// If the ConfigMap is deleted before the cache shows it, there is no event of the
			// deletion. Therefore check the namespace again later.
			c.queue.AddAfter(namespace, recheck)
			return nil
		}
	case err == nil && !(maps.Equal(cm.Data, data) && len(cm.BinaryData) == 0 &&
		cm.Annotations[descriptionAnnotation] != ""):
		next := cm.DeepCopy()
		next.Data, next.BinaryData = data, nil
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, descriptionAnnotation, description)
		_, err = c.Client.CoreV1().ConfigMaps(namespace).Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("publish root CA: %w", err)
	}
	return nil
}
