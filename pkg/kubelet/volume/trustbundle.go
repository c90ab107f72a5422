// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// trustBundle returns the certificates of one ClusterTrustBundle, or of all bundles of a signer
// that match the selector, as PEM. Each certificate occurs once. The order of the certificates does
// not depend on the order of the bundles.
func (m *Manager) trustBundle(ctx context.Context, s *v1.ClusterTrustBundleProjection) ([]byte, error) {
	bundles, err := m.readTrustBundles(ctx, s)
	if err != nil {
		return nil, err
	}
	if len(bundles) == 0 {
		if isTrue(s.Optional) {
			return nil, nil
		}
		return nil, errors.New("no matching clustertrustbundles exist")
	}
	return joinCertificates(bundles), nil
}

func (m *Manager) readTrustBundles(ctx context.Context, s *v1.ClusterTrustBundleProjection) ([]string, error) {
	client := m.cfg.Client.CertificatesV1().ClusterTrustBundles()
	switch {
	case s.Name != nil:
		b, err := client.Get(ctx, *s.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && isTrue(s.Optional) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("while getting ClusterTrustBundle by name: %w", err)
		}
		return []string{b.Spec.TrustBundle}, nil
	case s.SignerName != nil:
		// A missing selector selects nothing, and an empty one selects everything.
		if s.LabelSelector == nil {
			return nil, nil
		}
		selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("while parsing label selector: %w", err)
		}
		list, err := client.List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.signerName", *s.SignerName).String(),
			LabelSelector: selector.String(),
		})
		if err != nil {
			return nil, fmt.Errorf("while listing ClusterTrustBundles: %w", err)
		}
		var out []string
		for i := range list.Items {
			out = append(out, list.Items[i].Spec.TrustBundle)
		}
		return out, nil
	}
	return nil, errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
}

// joinCertificates joins PEM bundles. The result contains each certificate once, sorted, and
// neither comments nor other PEM blocks.
func joinCertificates(bundles []string) []byte {
	var certs [][]byte
	for _, b := range bundles {
		for block, rest := pem.Decode([]byte(b)); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == "CERTIFICATE" {
				certs = append(certs, block.Bytes)
			}
		}
	}
	slices.SortFunc(certs, bytes.Compare)
	certs = slices.CompactFunc(certs, bytes.Equal)
	var out bytes.Buffer
	for _, c := range certs {
		// Writing to a Buffer never fails.
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c})
	}
	return out.Bytes()
}
