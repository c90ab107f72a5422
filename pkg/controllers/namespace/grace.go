// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const (
	// extensionGrace is how long after a namespace's deletion extension API servers may still
	// create objects in it. They may check the namespace in a cache before their admission plugins
	// run. Kubernetes waits for the same time. The API server itself needs no such time, because it
	// rejects new objects in terminating namespaces when it stores them.
	extensionGrace = 5 * time.Second
	// notRegistered is a label selector for APIServices that the API server has not registered
	// itself, which are those of extension API servers.
	notRegistered = "!kube-aggregator.kubernetes.io/automanaged"
)

// grace returns how long an empty namespace must still remain, because an extension API server may
// be creating an object in it.
func (c *Controller) grace(ctx context.Context, ns *v1.Namespace) (time.Duration, error) {
	left := extensionGrace - c.Clock.Since(ns.DeletionTimestamp.Time)
	if left <= 0 {
		return 0, nil
	}
	client := c.Metadata.Resource(apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"))
	services, err := client.List(ctx, metav1.ListOptions{LabelSelector: notRegistered})
	if apierrors.IsNotFound(err) || err == nil && len(services.Items) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list extension servers: %w", err)
	}
	all, err := c.resources()
	if err != nil {
		return 0, fmt.Errorf("discovery: %w", err)
	}
	if !extended(all, services.Items) {
		return 0, nil
	}
	return left, nil
}

// extended reports whether one of the APIServices serves one of the resources.
func extended(all []resource, services []metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(services, func(s metav1.PartialObjectMetadata) bool {
		return slices.ContainsFunc(all, func(r resource) bool { return r.Version+"."+r.Group == s.Name })
	})
}
