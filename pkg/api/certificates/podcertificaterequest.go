// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/older"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/signer"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

const (
	maxStub = 10 << 10 // maximum size of spec.stubPKCS10Request in bytes
	maxUID  = 128      // maximum length of a UID in the spec
)

// MaySign reports whether the user of the request in ctx has the right to sign for a signer.
type MaySign func(ctx context.Context, signer string) bool

// podCertificateRequestRow declares podcertificaterequests. maySign may be nil; then all users can
// change the status.
func podCertificateRequestRow(maySign MaySign) *resource.Row {
	parts := strategy.Parts[certificatesv1.PodCertificateRequest, certificatesv1.PodCertificateRequestSpec,
		certificatesv1.PodCertificateRequestStatus](
		func(o *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequestSpec,
			*certificatesv1.PodCertificateRequestStatus) {
			return &o.Spec, &o.Status
		})
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return resource.Of[certificatesv1.PodCertificateRequestList](resource.Kind[*certificatesv1.PodCertificateRequest]{
		Group: "certificates.k8s.io", Version: "v1", Resource: "podcertificaterequests", Kind: "PodCertificateRequest",
		Namespaced: true,
		Feature:    "PodCertificateRequest",
		Versions:   []resource.Version{{Name: "v1", Introduced: 37}, olderPodRequests()},

		Default:       defaultPodRequest,
		PrepareCreate: parts.ClearStatus,
		PrepareUpdate: parts.KeepStatus,
		Fields: func(r *certificatesv1.PodCertificateRequest) fields.Set {
			return fields.Set{
				"spec.signerName": r.Spec.SignerName,
				"spec.podName":    r.Spec.PodName,
				"spec.nodeName":   string(r.Spec.NodeName),
			}
		},
		SelectableFields: []string{"spec.signerName", "spec.podName", "spec.nodeName"},
		ResetFields:      []string{"status"},
		Validate:         validatePodRequest,
		ValidateUpdate:   validatePodRequestUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "PodName", Type: "string", Description: doc["podName"]},
			{Name: "ServiceAccountName", Type: "string", Description: doc["serviceAccountName"]},
			{Name: "NodeName", Type: "string", Description: doc["nodeName"]},
			{Name: "SignerName", Type: "string", Description: doc["signerName"]},
			{Name: "State", Type: "string", Description: "Is the request Pending, Issued, Denied, or Failed?"},
			{Name: "UnverifiedUserAnnotations", Type: "string", Description: doc["unverifiedUserAnnotations"]},
		},
		Cells: podRequestCells,

		Subresources: []resource.Sub[*certificatesv1.PodCertificateRequest]{
			{Subresource: strategy.View("status", "metadata", "spec"), PrepareUpdate: parts.KeepSpecAndMeta,
				ValidateUpdate: validatePodRequestStatus(maySign)},
		},
	})
}

func olderPodRequests() resource.Version {
	v := older.Version{
		Name: "v1beta1",
		Deprecated: "certificates.k8s.io/v1beta1 PodCertificateRequest is deprecated in v1.37+, unavailable in v1.40+; " +
			"use certificates.k8s.io/v1 PodCertificateRequest",
		Removed: 40,
		Stored:  &certificatesv1.PodCertificateRequest{}, Object: &certificatesv1beta1.PodCertificateRequest{},
		List: &certificatesv1beta1.PodCertificateRequestList{}, Convert: convertPodRequest,
	}
	v.Default = v.As(func(o resource.Object) {
		if r, ok := o.(*certificatesv1.PodCertificateRequest); ok {
			defaultPodRequest(r)
		}
	})
	return v.Row()
}

func defaultPodRequest(r *certificatesv1.PodCertificateRequest) {
	unset.Point(&r.Spec.MaxExpirationSeconds, signer.DefaultSeconds)
}

// convertPodRequest drops the two fields that v1 does not have, pkixPublicKey and
// proofOfPossession. A request that has only these is rejected, because its stubPKCS10Request is
// missing.
func convertPodRequest(in, out resource.Object) error {
	if in, ok := in.(*certificatesv1.PodCertificateRequest); ok {
		if out, ok := out.(*certificatesv1beta1.PodCertificateRequest); ok {
			s := in.Spec
			out.ObjectMeta, out.Status = in.ObjectMeta, certificatesv1beta1.PodCertificateRequestStatus(in.Status)
			out.Spec = certificatesv1beta1.PodCertificateRequestSpec{
				SignerName: s.SignerName, PodName: s.PodName, PodUID: s.PodUID,
				ServiceAccountName: s.ServiceAccountName, ServiceAccountUID: s.ServiceAccountUID,
				NodeName: s.NodeName, NodeUID: s.NodeUID, MaxExpirationSeconds: s.MaxExpirationSeconds,
				StubPKCS10Request: s.StubPKCS10Request, UnverifiedUserAnnotations: s.UnverifiedUserAnnotations,
			}
			return nil
		}
	}
	if in, ok := in.(*certificatesv1beta1.PodCertificateRequest); ok {
		if out, ok := out.(*certificatesv1.PodCertificateRequest); ok {
			s := in.Spec
			out.ObjectMeta, out.Status = in.ObjectMeta, certificatesv1.PodCertificateRequestStatus(in.Status)
			out.Spec = certificatesv1.PodCertificateRequestSpec{
				SignerName: s.SignerName, PodName: s.PodName, PodUID: s.PodUID,
				ServiceAccountName: s.ServiceAccountName, ServiceAccountUID: s.ServiceAccountUID,
				NodeName: s.NodeName, NodeUID: s.NodeUID, MaxExpirationSeconds: s.MaxExpirationSeconds,
				StubPKCS10Request: s.StubPKCS10Request, UnverifiedUserAnnotations: s.UnverifiedUserAnnotations,
			}
			return nil
		}
	}
	return fmt.Errorf("cannot convert %T to %T", in, out)
}

// podRequestCells returns the cells of a PodCertificateRequest in the table that kubectl prints. At
// most one condition is true; its type is the state.
func podRequestCells(r *certificatesv1.PodCertificateRequest, _ resource.CellEnv) []any {
	state := "Pending"
	for _, c := range r.Status.Conditions {
		if slices.Contains(endTypes(), c.Type) {
			state = c.Type
		}
	}
	return []any{r.Name, r.Spec.PodName, r.Spec.ServiceAccountName, string(r.Spec.NodeName), r.Spec.SignerName, state,
		labels.FormatLabels(r.Spec.UnverifiedUserAnnotations)}
}

func validatePodRequest(_ context.Context, req *certificatesv1.PodCertificateRequest) field.ErrorList {
	var r report.Report
	path, s := field.NewPath("spec"), &req.Spec
	signer.CheckName(&r, path.Child("signerName"), s.SignerName)
	signer.CheckAnnotations(&r, path.Child("unverifiedUserAnnotations"), s.UnverifiedUserAnnotations)
	checkSubject(&r, path, "pod", s.PodName, s.PodUID)
	checkSubject(&r, path, "serviceAccount", s.ServiceAccountName, s.ServiceAccountUID)
	checkSubject(&r, path, "node", string(s.NodeName), s.NodeUID)
	seconds := path.Child("maxExpirationSeconds")
	if s.MaxExpirationSeconds == nil {
		r.Required(seconds, "must be set")
		return r.Errors
	}
	if limit := signer.MaxSeconds(s.SignerName); *s.MaxExpirationSeconds < signer.MinSeconds ||
		*s.MaxExpirationSeconds > limit {
		r.Invalid(seconds, *s.MaxExpirationSeconds, fmt.Sprintf("must be in the range [%d, %d]", signer.MinSeconds, limit))
	}
	checkStub(&r, path, s.StubPKCS10Request)
	return r.Errors
}

// checkSubject validates the name and UID of the pod, service account or node that the certificate
// is for.
func checkSubject(r *report.Report, path *field.Path, what, name string, uid types.UID) {
	r.Each(path.Child(what+"Name"), name, naming.NameIsDNSSubdomain(name, false))
	switch at := path.Child(what + "UID"); {
	case uid == "":
		r.Invalid(at, uid, "must not be empty")
	case len(uid) > maxUID:
		r.TooLong(at, maxUID)
	}
}

// checkStub requires a PKCS #10 certificate signing request that is signed with its own key. The
// signer, not the API server, checks the contents of the request.
func checkStub(r *report.Report, spec *field.Path, stub []byte) {
	path := spec.Child("stubPKCS10Request")
	if len(stub) == 0 {
		r.Invalid(spec, field.OmitValueType{},
			"exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set")
		return
	}
	if len(stub) > maxStub {
		r.TooLong(path, maxStub)
		return
	}
	request, err := x509.ParseCertificateRequest(stub)
	if err != nil {
		r.Invalid(path, field.OmitValueType{}, "must be a valid PKCS#10 CSR")
		return
	}
	if value, reason := unsupportedKey(request.PublicKey); reason != "" {
		r.Invalid(path, value, reason)
		return
	}
	if request.CheckSignature() != nil {
		r.Invalid(path, field.OmitValueType{}, "invalid signature")
	}
}

// unsupportedKey returns the reason why a certificate cannot have a public key, and the value to
// report.
func unsupportedKey(public any) (value any, reason string) {
	switch key := public.(type) {
	case ed25519.PublicKey:
		return nil, ""
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521() {
			return nil, ""
		}
		return "curve " + key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521"
	case *rsa.PublicKey:
		const byteBits, short, long = 8, 3072, 4096
		bits := key.Size() * byteBits
		if bits == short || bits == long {
			return nil, ""
		}
		return fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096"
	}
	return field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
}

func validatePodRequestUpdate(_ context.Context, req, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	var r report.Report
	r.Immutable(field.NewPath("spec"), req.Spec, old.Spec)
	return r.Errors
}
