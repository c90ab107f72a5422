// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates declares certificate signing requests, bundles of trusted certificates, and
// the requests by which kubelets get certificates for pods.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
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
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/older"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/signer"
	"keelson.dev/keelson/pkg/api/strategy"
)

// pemCertificate is the type of PEM blocks with a certificate.
const pemCertificate = "CERTIFICATE"

// Deps has the dependencies of the group's rows.
type Deps struct {
	// Requests are called for writes of certificate signing requests.
	Requests resource.Hooks[*certificatesv1.CertificateSigningRequest]
	// MaySign is called for changes of the status of pod certificate requests. If it is nil, all
	// users may make them.
	MaySign MaySign
}

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows(deps Deps) []*resource.Row {
	return []*resource.Row{
		certificateSigningRequestRow(deps.Requests),
		older.StoredAs("v1beta1", clusterTrustBundleRow()),
		older.StoredAs("v1beta1", podCertificateRequestRow(deps.MaySign)),
	}
}

// certificateSigningRequestRow returns the row of the kind table for the resource
// certificatesigningrequests.
func certificateSigningRequestRow(
	hooks resource.Hooks[*certificatesv1.CertificateSigningRequest]) *resource.Row {
	return resource.Of[certificatesv1.CertificateSigningRequestList](
		resource.Kind[*certificatesv1.CertificateSigningRequest]{
			Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests",
			Kind:       "CertificateSigningRequest",
			ShortNames: []string{"csr"},
			Hooks:      hooks,

			MetaOnUpdate:             resource.CheckNameAndFinalizers,
			PrepareCreate:            prepareCertificateSigningRequestCreate,
			PrepareUpdate:            prepareCertificateSigningRequestUpdate,
			Fields:                   certificateSigningRequestFields,
			SelectableFields:         []string{"spec.signerName"},
			AllowUnconditionalUpdate: true,
			ResetFields:              []string{"spec", "status"},
			ValidateName:             report.SegmentName,
			Validate:                 validateCertificateSigningRequest,

			Columns: []metav1.TableColumnDefinition{
				column.Name(),
				column.Age(),
				{Name: "SignerName", Type: "string",
					Description: certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()["signerName"]},
				{Name: "Requestor", Type: "string",
					Description: certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()["request"]},
				{Name: "RequestedDuration", Type: "string",
					Description: certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()["expirationSeconds"]},
				{Name: "Condition", Type: "string",
					Description: certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]},
			},
			Cells: certificateSigningRequestCells,

			Subresources: []resource.Sub[*certificatesv1.CertificateSigningRequest]{
				{Subresource: strategy.View("approval", "spec", "status.certificate").WithMetaChecks(
					resource.CheckNameAndFinalizers).WithoutTable(),
					PrepareUpdate: prepareCertificateSigningRequestApproval, ValidateUpdate: validateCertificateSigningRequestState},
				{Subresource: strategy.View("status", "spec", "status.conditions").WithMetaChecks(
					resource.CheckNameAndFinalizers), PrepareUpdate: prepareCertificateSigningRequestStatus,
					ValidateUpdate: validateCertificateSigningRequestStatus},
			},
		})
}

// prepareCertificateSigningRequestCreate records the user who sends the request. It overwrites what
// the client sent in the user's fields.
func prepareCertificateSigningRequestCreate(ctx context.Context, r *certificatesv1.CertificateSigningRequest) {
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
	if user, ok := request.UserFrom(ctx); ok {
		r.Spec.Username, r.Spec.UID, r.Spec.Groups = user.GetName(), user.GetUID(), user.GetGroups()
		for key, values := range user.GetExtra() {
			if r.Spec.Extra == nil {
				r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
			}
			r.Spec.Extra[key] = values
		}
	}
	r.Status = certificatesv1.CertificateSigningRequestStatus{}
}

func prepareCertificateSigningRequestUpdate(_ context.Context, r, old *certificatesv1.CertificateSigningRequest) {
	r.Spec, r.Status = old.Spec, old.Status
}

// prepareCertificateSigningRequestStatus keeps the spec and the conditions Approved and Denied,
// which clients change through the subresource "approval".
func prepareCertificateSigningRequestStatus(ctx context.Context, r, old *certificatesv1.CertificateSigningRequest) {
	r.Spec = old.Spec
	keepConditions(r, old, certificatesv1.CertificateApproved)
	keepConditions(r, old, certificatesv1.CertificateDenied)
	stampConditions(ctx, r, old)
}

func prepareCertificateSigningRequestApproval(ctx context.Context, r, old *certificatesv1.CertificateSigningRequest) {
	stampConditions(ctx, r, old)
	conditions := r.Status.Conditions
	r.Spec, r.Status = old.Spec, old.Status
	r.Status.Conditions = conditions
}

// keepConditions restores the old conditions of one type. If the client has added or removed such
// conditions, it restores nothing, and validation rejects the update.
func keepConditions(r, old *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) {
	was, is := conditionsOf(old, kind), conditionsOf(r, kind)
	if len(was) != len(is) {
		return
	}
	for i := range was {
		*is[i] = *was[i]
	}
}

func conditionsOf(r *certificatesv1.CertificateSigningRequest,
	kind certificatesv1.RequestConditionType) []*certificatesv1.CertificateSigningRequestCondition {
	var found []*certificatesv1.CertificateSigningRequestCondition
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == kind {
			found = append(found, &r.Status.Conditions[i])
		}
	}
	return found
}

func stampConditions(ctx context.Context, r, old *certificatesv1.CertificateSigningRequest) {
	now := resource.Time(ctx)
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = transitionOf(c, old, now)
		}
	}
}

// transitionOf returns the time of the last transition of condition c. If old has a condition of
// the same type and status, it is the time in old; otherwise it is now.
func transitionOf(c *certificatesv1.CertificateSigningRequestCondition,
	old *certificatesv1.CertificateSigningRequest, now metav1.Time) metav1.Time {
	for _, was := range conditionsOf(old, c.Type) {
		if was.Status == c.Status && !was.LastTransitionTime.IsZero() {
			return was.LastTransitionTime
		}
	}
	return now
}

func certificateSigningRequestFields(r *certificatesv1.CertificateSigningRequest) fields.Set {
	return fields.Set{"spec.signerName": r.Spec.SignerName}
}

const minLifetime = 600

// usages returns every key usage that a request may have, in the order in which error messages list
// the usages.
func usages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{
		certificatesv1.UsageAny, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth,
		certificatesv1.UsageCodeSigning,
		certificatesv1.UsageContentCommitment, certificatesv1.UsageCRLSign, certificatesv1.UsageDataEncipherment,
		certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
		certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
		certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment,
		certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning,
		certificatesv1.UsageSMIME, certificatesv1.UsageServerAuth, certificatesv1.UsageSigning,
		certificatesv1.UsageTimestamping,
	}
}

func validateCertificateSigningRequest(_ context.Context,
	in *certificatesv1.CertificateSigningRequest) field.ErrorList {
	r, spec, path := &report.Report{}, &in.Spec, field.NewPath("spec")
	if err := signed(spec.Request); err != nil {
		r.Invalid(path.Child("request"), spec.Request, err.Error())
	}
	at := path.Child("usages")
	if len(spec.Usages) == 0 {
		r.Required(at, "")
	}
	for i, usage := range spec.Usages {
		report.OneOf(r, at.Index(i), usage, usages()...)
	}
	for i, usage := range spec.Usages {
		if slices.Contains(spec.Usages[:i], usage) {
			r.Duplicate(at.Index(i), usage)
		}
	}
	if spec.SignerName == certificatesv1beta1.LegacyUnknownSignerName {
		r.Invalid(path.Child("signerName"), spec.SignerName, "the legacy signerName is not allowed via this API version")
	} else {
		signer.CheckName(r, path.Child("signerName"), spec.SignerName)
	}
	if s := spec.ExpirationSeconds; s != nil && *s < minLifetime {
		r.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)")
	}
	conditions(r, field.NewPath("status", "conditions"), in.Status.Conditions)
	if err := certificates(in.Status.Certificate); err != nil {
		r.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error())
	}
	return r.Errors
}

// validateCertificateSigningRequestState validates an update of the subresource "approval" or
// "status". It does not check the spec, because these updates cannot change it.
func validateCertificateSigningRequestState(_ context.Context, in,
	old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	r, path := &report.Report{}, field.NewPath("status", "conditions")
	conditions(r, path, in.Status.Conditions)
	was, at := old.Status.Certificate, field.NewPath("status", "certificate")
	changed := !slices.Equal(was, in.Status.Certificate)
	// If the stored certificate is invalid, an invalid new one is not reported here.
	if err := certificates(in.Status.Certificate); err != nil && changed && certificates(was) == nil {
		r.Invalid(at, "<certificate data>", err.Error())
	}
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved,
		certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		if len(conditionsOf(old, kind)) > 0 && len(conditionsOf(in, kind)) == 0 {
			r.Forbidden(path, fmt.Sprintf("updates may not remove a condition of type %q", kind))
		}
	}
	if changed && len(was) > 0 {
		r.Forbidden(at, "updates may not modify existing certificate content")
	}
	return r.Errors
}

// validateCertificateSigningRequestStatus validates an update of the subresource "status". In
// addition to the common rules, it rejects new conditions Approved and Denied, so that a signer
// cannot approve or deny requests.
func validateCertificateSigningRequestStatus(ctx context.Context, in,
	old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	r := &report.Report{Errors: validateCertificateSigningRequestState(ctx, in, old)}
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved,
		certificatesv1.CertificateDenied} {
		if len(conditionsOf(old, kind)) == 0 && len(conditionsOf(in, kind)) > 0 {
			r.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not add a condition of type %q", kind))
		}
	}
	return r.Errors
}

func conditions(r *report.Report, path *field.Path, list []certificatesv1.CertificateSigningRequestCondition) {
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range list {
		at := path.Index(i)
		if c.Type == "" {
			r.Required(at.Child("type"), "")
		}
		switch c.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			report.OneOfRequired(r, at.Child("status"), c.Status, corev1.ConditionTrue)
		default:
			report.OneOfRequired(r, at.Child("status"), c.Status, corev1.ConditionFalse, corev1.ConditionTrue,
				corev1.ConditionUnknown)
		}
		if c.Type == certificatesv1.CertificateApproved && seen[certificatesv1.CertificateDenied] ||
			c.Type == certificatesv1.CertificateDenied && seen[certificatesv1.CertificateApproved] {
			r.Invalid(path, c.Type, "Approved and Denied conditions are mutually exclusive")
		}
		if seen[c.Type] {
			r.Duplicate(at.Child("type"), c.Type)
		}
		seen[c.Type] = true
	}
}

// signed returns an error unless data is a PEM-encoded certificate request that is signed with its
// own key.
func signed(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err // the caller puts the text of the error in its message
	}
	return request.CheckSignature() // the caller puts the text of the error in its message
}

func certificates(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	blocks := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) != 0 {
			return errors.New("no PEM block headers are permitted")
		}
		found, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err // the caller puts the text of the error in its message
		}
		if len(found) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		blocks++
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

func certificateSigningRequestCells(r *certificatesv1.CertificateSigningRequest, env resource.CellEnv) []any {
	lifetime := column.None
	if r.Spec.ExpirationSeconds != nil {
		lifetime = duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
	}
	return []any{
		r.Name, env.Age(r.CreationTimestamp), column.OrNone(r.Spec.SignerName), r.Spec.Username, lifetime, condition(r),
	}
}

func condition(r *certificatesv1.CertificateSigningRequest) string {
	has := func(kind certificatesv1.RequestConditionType) bool { return len(conditionsOf(r, kind)) > 0 }
	text := "Pending"
	if has(certificatesv1.CertificateDenied) {
		text = "Denied"
	} else if has(certificatesv1.CertificateApproved) {
		text = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		text += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}
