// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/older"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/signer"
)

// maxBundle is the maximum size of a ClusterTrustBundle's certificates in bytes.
const maxBundle = 1 << 20

// clusterTrustBundleRow declares clustertrustbundles.
func clusterTrustBundleRow() *resource.Row {
	return resource.Of[certificatesv1.ClusterTrustBundleList](resource.Kind[*certificatesv1.ClusterTrustBundle]{
		Group: "certificates.k8s.io", Version: "v1", Resource: "clustertrustbundles", Kind: "ClusterTrustBundle",
		Feature:  "ClusterTrustBundle",
		Versions: []resource.Version{{Name: "v1", Introduced: 37}, olderTrustBundles()},

		MetaOnUpdate: resource.CheckNameAndFinalizers,
		Fields: func(b *certificatesv1.ClusterTrustBundle) fields.Set {
			return fields.Set{"spec.signerName": b.Spec.SignerName}
		},
		SelectableFields: []string{"spec.signerName"},
		ValidateName:     report.SegmentName, // the name's form depends on the signer
		Validate:         validateClusterTrustBundle,
		ValidateUpdate:   validateClusterTrustBundleUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "SignerName", Type: "string",
				Description: certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"]},
		},
		Cells: func(b *certificatesv1.ClusterTrustBundle, _ resource.CellEnv) []any {
			return []any{b.Name, column.OrNone(b.Spec.SignerName)}
		},
	})
}

func olderTrustBundles() resource.Version {
	v := older.Version{
		Name: "v1beta1",
		Deprecated: "certificates.k8s.io/v1beta1 ClusterTrustBundle is deprecated in v1.37+, unavailable in v1.40+; " +
			"use certificates.k8s.io/v1 ClusterTrustBundle",
		Removed: 40,
		Stored:  &certificatesv1.ClusterTrustBundle{}, Object: &certificatesv1beta1.ClusterTrustBundle{},
		List: &certificatesv1beta1.ClusterTrustBundleList{}, Convert: convertTrustBundle,
	}
	return v.Row()
}

func convertTrustBundle(in, out resource.Object) error {
	if in, ok := in.(*certificatesv1.ClusterTrustBundle); ok {
		if out, ok := out.(*certificatesv1beta1.ClusterTrustBundle); ok {
			out.ObjectMeta, out.Spec = in.ObjectMeta, certificatesv1beta1.ClusterTrustBundleSpec(in.Spec)
			return nil
		}
	}
	if in, ok := in.(*certificatesv1beta1.ClusterTrustBundle); ok {
		if out, ok := out.(*certificatesv1.ClusterTrustBundle); ok {
			out.ObjectMeta, out.Spec = in.ObjectMeta, certificatesv1.ClusterTrustBundleSpec(in.Spec)
			return nil
		}
	}
	return fmt.Errorf("cannot convert %T to %T", in, out)
}

func validateClusterTrustBundle(_ context.Context, b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	var r report.Report
	checkBundleMeta(&r, b)
	checkBundle(&r, field.NewPath("spec", "trustBundle"), b.Spec.TrustBundle)
	return r.Errors
}

// validateClusterTrustBundleUpdate does not parse certificates that the update does not change, so
// that a bundle can still be changed after Go's parser has become stricter.
func validateClusterTrustBundleUpdate(_ context.Context, b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
	var r report.Report
	checkBundleMeta(&r, b)
	if b.Spec.TrustBundle != old.Spec.TrustBundle {
		checkBundle(&r, field.NewPath("spec", "trustBundle"), b.Spec.TrustBundle)
	}
	r.Immutable(field.NewPath("spec", "signerName"), b.Spec.SignerName, old.Spec.SignerName)
	return r.Errors
}

func checkBundleMeta(r *report.Report, b *certificatesv1.ClusterTrustBundle) {
	path, name := field.NewPath("metadata"), b.Spec.SignerName
	if b.GenerateName != "" {
		r.Each(path.Child("generateName"), b.GenerateName, signer.BundleName(name, b.GenerateName, true))
	}
	if b.Name != "" {
		r.Each(path.Child("name"), b.Name, signer.BundleName(name, b.Name, false))
	}
	if name != "" {
		signer.CheckName(r, field.NewPath("spec", "signerName"), name)
	}
}

// checkBundle requires different certificates of certificate authorities, without PEM headers.
func checkBundle(r *report.Report, path *field.Path, bundle string) {
	if len(bundle) > maxBundle {
		r.TooLong(path, maxBundle)
		return
	}
	const omitted = "<value omitted>"
	places, order, valid := map[string][]int{}, []string{}, true
	for i, rest := 0, []byte(bundle); ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if reason := notAnchor(block); reason != "" {
			r.Invalid(path, omitted, fmt.Sprintf("entry %d %s", i, reason))
			valid = false
			continue
		}
		if places[string(block.Bytes)] == nil {
			order = append(order, string(block.Bytes))
		}
		places[string(block.Bytes)] = append(places[string(block.Bytes)], i)
	}
	if !valid {
		return
	}
	if len(order) == 0 {
		r.Invalid(path, omitted, "at least one trust anchor must be provided")
	}
	for _, der := range order {
		if at := places[der]; len(at) > 1 {
			r.Invalid(path, omitted, fmt.Sprintf("duplicate trust anchor (indices %v)", at))
		}
	}
}

// notAnchor returns the reason why a block is not the certificate of an authority.
func notAnchor(block *pem.Block) string {
	if block.Type != pemCertificate {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	switch cert, err := x509.ParseCertificate(block.Bytes); {
	case err != nil:
		return "does not parse as X.509"
	case !cert.IsCA:
		return "does not have the CA bit set"
	case !cert.BasicConstraintsValid:
		return "has invalid basic constraints"
	default:
		return ""
	}
}
