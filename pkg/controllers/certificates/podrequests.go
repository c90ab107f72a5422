// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// PodRequestCleaningName is the name of the controller that deletes old PodCertificateRequests.
const PodRequestCleaningName = "podcertificaterequest-cleaner-controller"

const (
	podRequestPeriod = 5 * time.Minute
	// podRequestKept is how long a request is kept. By then the kubelet has its certificate, or has
	// made a new request.
	podRequestKept = 15 * time.Minute
)

type podRequestCleaning struct {
	controller.Deps
	requests certificateslisters.PodCertificateRequestLister
}

// NewPodRequestCleaning returns the controller that deletes old PodCertificateRequests.
func NewPodRequestCleaning(d controller.Deps) (controller.Controller, error) {
	return &podRequestCleaning{Deps: d,
		requests: d.Informers.Certificates().V1().PodCertificateRequests().Lister()}, nil
}

// Run implements controller.Controller.
func (c *podRequestCleaning) Run(ctx context.Context) error {
	clean := func(ctx context.Context) {
		if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("Failed to delete old pod certificate requests", "err", err)
		}
	}
	clean(ctx)
	controller.RunEvery(ctx, c.Clock, podRequestPeriod, clean)
	return nil
}

func (c *podRequestCleaning) sweep(ctx context.Context) error {
	list, err := c.requests.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("pod certificate requests: %w", err)
	}
	now := c.Clock.Now()
	var errs []error
	for _, r := range list {
		if now.Sub(r.CreationTimestamp.Time) < podRequestKept {
			continue
		}
		err := c.Client.CertificatesV1().PodCertificateRequests(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(r.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s/%s: %w", r.Namespace, r.Name, err))
		}
	}
	return errors.Join(errs...)
}
