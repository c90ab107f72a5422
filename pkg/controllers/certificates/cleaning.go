// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// CleaningName is the name of the controller that deletes old CertificateSigningRequests.
const CleaningName = "certificatesigningrequest-cleaner-controller"

const (
	cleanPeriod = time.Hour
	// answeredKept is how long requests with a certificate, denied requests and failed requests are
	// kept. openKept is how long requests without a decision, and approved requests without a
	// certificate, are kept.
	answeredKept = time.Hour
	openKept     = 24 * time.Hour
)

type cleaning struct {
	controller.Deps
	requests certificateslisters.CertificateSigningRequestLister
	// nodes is nil unless Options.ProtectNodes is set.
	nodes corelisters.NodeLister
}

// NewCleaning returns the controller that deletes old CertificateSigningRequests.
func NewCleaning(d controller.Deps) (controller.Controller, error) {
	c := &cleaning{Deps: d, requests: d.Informers.Certificates().V1().CertificateSigningRequests().Lister()}
	if d.Options.ProtectNodes {
		c.nodes = d.Informers.Core().V1().Nodes().Lister()
	}
	return c, nil
}

// Run implements controller.Controller.
func (c *cleaning) Run(ctx context.Context) error {
	clean := func(ctx context.Context) {
		if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("Failed to delete old certificate requests", "err", err)
		}
	}
	clean(ctx)
	controller.RunEvery(ctx, c.Clock, cleanPeriod, clean)
	return nil
}

func (c *cleaning) sweep(ctx context.Context) error {
	list, err := c.requests.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	now := c.Clock.Now()
	var errs []error
	for _, csr := range list {
		if !stale(csr, now) || c.guards(csr, now) {
			continue
		}
		err := c.Client.CertificatesV1().CertificateSigningRequests().Delete(ctx, csr.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(csr.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", csr.Name, err))
		}
	}
	return errors.Join(errs...)
}

// guards reports whether a CertificateSigningRequest must be kept because it is the only record
// that a node's certificate was issued. The record is needed until the node has registered: without
// it, another machine could get a certificate with the same name.
func (c *cleaning) guards(csr *certificatesv1.CertificateSigningRequest, now time.Time) bool {
	if c.nodes == nil || !holds(csr, now) || len(csr.Status.Certificate) == 0 {
		return false
	}
	names, _ := indexByNode(csr)
	return slices.ContainsFunc(names, func(name string) bool {
		_, err := c.nodes.Get(name)
		return apierrors.IsNotFound(err) && !renews(csr, name)
	})
}

// stale reports whether a CertificateSigningRequest is old enough to be deleted.
func stale(csr *certificatesv1.CertificateSigningRequest, now time.Time) bool {
	past := func(t metav1.Time, d time.Duration) bool { return !t.IsZero() && now.Sub(t.Time) > d }
	if len(csr.Status.Conditions) == 0 {
		return past(csr.CreationTimestamp, openKept)
	}
	issued := len(csr.Status.Certificate) > 0
	for _, c := range csr.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			if past(c.LastUpdateTime, answeredKept) {
				return true
			}
		case certificatesv1.CertificateApproved:
			if issued && (past(c.LastUpdateTime, answeredKept) || expired(csr, now)) || !issued &&
				past(c.LastUpdateTime, openKept) {
				return true
			}
		}
	}
	return false
}

// expired reports whether the certificate in a CertificateSigningRequest's status has expired.
func expired(csr *certificatesv1.CertificateSigningRequest, now time.Time) bool {
	block, _ := pem.Decode(csr.Status.Certificate)
	if block == nil {
		return false
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.After(certificate.NotAfter)
}
