// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// BundleName is the name of the controller of the ClusterTrustBundle.
const BundleName = "kube-apiserver-serving-clustertrustbundle-publisher-controller"

// signer is the signer of the ClusterTrustBundles. Only this controller creates bundles of this
// signer.
const signer = "kubernetes.io/kube-apiserver-serving"

// BundleController implements controller.Controller. It publishes the certificates as a
// ClusterTrustBundle, which pods can mount.
type BundleController struct {
	controller.Deps
	queue   *controller.Queue
	bundles certificateslisters.ClusterTrustBundleLister
	metrics *metrics
}

// NewBundle returns the controller of the ClusterTrustBundle.
func NewBundle(d controller.Deps) (controller.Controller, error) {
	bundles := d.Informers.Certificates().V1().ClusterTrustBundles()
	c := &BundleController{Deps: d, bundles: bundles.Lister(), metrics: newBundleMetrics(d.Metrics)}
	c.queue = controller.NewQueue(BundleName, d.Clock, d.Log, 1, c.sync)
	c.queue.Add(signer)
	return c, controller.OnChange(bundles.Informer(), func(old, b *certificatesv1.ClusterTrustBundle) {
		if controller.Latest(old, b).Spec.SignerName == signer {
			c.queue.Add(signer)
		}
	})
}

// Run implements controller.Controller.
func (c *BundleController) Run(ctx context.Context) error {
	return c.FollowRootCA(ctx, c.queue, func() { c.queue.Add(signer) })
}

func (c *BundleController) sync(ctx context.Context, _ string) error {
	began := c.Clock.Now()
	err := c.publish(ctx)
	c.metrics.synced(c.Clock.Since(began), err)
	return err
}

// publish creates or corrects the ClusterTrustBundle of the current certificates, and deletes the
// signer's other bundles.
func (c *BundleController) publish(ctx context.Context) error {
	certificates, client := c.Options.RootCertificates(), c.Client.CertificatesV1().ClusterTrustBundles()
	want, name := string(certificates), nameOf(certificates)
	switch b, err := c.bundles.Get(name); {
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: want},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create bundle: %w", err)
		}
	case err != nil:
		return err
	case b.Spec.TrustBundle != want:
		b = b.DeepCopy()
		b.Spec.TrustBundle = want
		if _, err := client.Update(ctx, b, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update bundle: %w", err)
		}
	}
	all, err := c.bundles.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		if b.Spec.SignerName == signer && b.Name != name {
			if err := client.Delete(ctx, b.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("delete bundle: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// nameOf returns the name of the ClusterTrustBundle with these certificates.
func nameOf(certificates []byte) string {
	hash := sha256.Sum256(certificates)
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), hash[:12])
}
