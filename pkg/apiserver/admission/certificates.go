// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/keelson/pkg/apiserver/rbac"
)

// mayFor reports whether u has the right to use verb on a signer, or on all signers of its domain
// ("example.com/*").
func mayFor(ctx context.Context, authz authorizer.UnconditionalAuthorizer, u user.Info, verb, signer string) bool {
	attrs := authorizer.AttributesRecord{
		User: u, Verb: verb, Name: signer,
		APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", ResourceRequest: true,
	}
	if decision, _, err := authz.Authorize(ctx, attrs); err == nil && decision == authorizer.DecisionAllow {
		return true
	}
	domain, _, _ := strings.Cut(signer, "/")
	attrs.Name = domain + "/*"
	decision, _, err := authz.Authorize(ctx, attrs)
	return err == nil && decision == authorizer.DecisionAllow
}

// SignerGuard decides which users may sign pod certificates.
type SignerGuard struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

// MaySign reports whether the user of the request in ctx has the right to sign for signer. Without a
// user it returns false.
func (g *SignerGuard) MaySign(ctx context.Context, signer string) bool {
	u, ok := request.UserFrom(ctx)
	return ok && mayFor(ctx, g.Authorizer, u, "sign", signer)
}

type csr = *certificatesv1.CertificateSigningRequest

func requests(subresource string, op admission.Operation,
	validate func(context.Context, admission.Attributes, csr) error) admission.Interface {
	return &typed[csr]{
		Handler: admission.NewHandler(op), group: certificatesv1.GroupName, resource: "certificatesigningrequests",
		subresource: subresource, validate: validate,
	}
}

// newCertificateApproval returns the plugin CertificateApproval. It requires that a user who
// approves a CertificateSigningRequest has the right to approve requests for its signer.
func newCertificateApproval(deps Deps) (admission.Interface, error) {
	return requests("approval", admission.Update, func(ctx context.Context, a admission.Attributes, _ csr) error {
		old, ok := a.GetOldObject().(csr)
		if !ok {
			return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetOldObject()))
		}
		if !mayFor(ctx, deps.Authorizer, a.GetUserInfo(), "approve", old.Spec.SignerName) {
			return admission.NewForbidden(a,
				fmt.Errorf("user not permitted to approve requests with signerName %q", old.Spec.SignerName))
		}
		return nil
	}), nil
}

// newCertificateSigning returns the plugin CertificateSigning. It requires that a user who changes
// the certificate or the conditions in the status of a CertificateSigningRequest has the right to
// sign for its signer.
func newCertificateSigning(deps Deps) (admission.Interface, error) {
	return requests("status", admission.Update, func(ctx context.Context, a admission.Attributes, obj csr) error {
		old, ok := a.GetOldObject().(csr)
		if !ok {
			return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetOldObject()))
		}
		if bytes.Equal(old.Status.Certificate, obj.Status.Certificate) &&
			equality.Semantic.DeepEqual(old.Status.Conditions, obj.Status.Conditions) {
			return nil
		}
		if !mayFor(ctx, deps.Authorizer, a.GetUserInfo(), "sign", old.Spec.SignerName) {
			return admission.NewForbidden(a,
				fmt.Errorf("user not permitted to sign requests with signerName %q", old.Spec.SignerName))
		}
		return nil
	}), nil
}

// newSubjectRestriction returns the plugin CertificateSubjectRestriction, which rejects requests
// for client certificates with the group system:masters.
func newSubjectRestriction(Deps) (admission.Interface, error) {
	return requests("", admission.Create, func(_ context.Context, a admission.Attributes, obj csr) error {
		if obj.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
			return nil
		}
		request, err := parseRequest(obj.Spec.Request)
		if err != nil {
			return admission.NewForbidden(a, fmt.Errorf("failed to parse CSR: %w", err))
		}
		if slices.Contains(request.Subject.Organization, user.SystemPrivilegedGroup) {
			return admission.NewForbidden(a,
				fmt.Errorf("use of %s signer with system:masters group is not allowed",
					certificatesv1.KubeAPIServerClientSignerName))
		}
		return nil
	}), nil
}

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// newTrustBundleAttest returns the plugin ClusterTrustBundleAttest. It requires that a user who
// writes a ClusterTrustBundle of a signer has the right to attest for the signer. A change of owner
// references and finalizers only needs no such right, because the garbage collector makes it.
func newTrustBundleAttest(deps Deps) (admission.Interface, error) {
	return &typed[*certificatesv1.ClusterTrustBundle]{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		group:   certificatesv1.GroupName, resource: "clustertrustbundles",
		validate: func(ctx context.Context, a admission.Attributes, obj *certificatesv1.ClusterTrustBundle) error {
			signer := obj.Spec.SignerName
			if signer == "" || a.GetOperation() == admission.Update && rbac.OnlyOwnership(obj, a.GetOldObject()) {
				return nil
			}
			if !mayFor(ctx, deps.Authorizer, a.GetUserInfo(), "attest", signer) {
				return admission.NewForbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", signer))
			}
			return nil
		},
	}, nil
}
