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
	// extensionGrace is how long extension servers may still create objects in a namespace after
	// its deletion, as in Kubernetes: they check the namespace in a cache, before their admission
	// plugins run. The API server's own objects need no such time, because it stores an object
	// only while its namespace accepts new ones.
	extensionGrace = 5 * time.Second
	// notRegistered selects the APIServices that the API server has not registered itself.
	notRegistered = "!kube-aggregator.kubernetes.io/automanaged"
)

// grace returns how long an empty namespace must remain because an extension server may still be
// creating an object.
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

// extended reports whether one of the resources belongs to one of the APIServices.
func extended(all []resource, services []metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(services, func(s metav1.PartialObjectMetadata) bool {
		return slices.ContainsFunc(all, func(r resource) bool { return r.Version+"."+r.Group == s.Name })
	})
}
