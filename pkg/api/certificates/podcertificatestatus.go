// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/report"
)

const (
	maxChain = 100 << 10 // maximum size of a certificate chain in bytes
	// clockSkew is the maximum difference between the start of a certificate and the time of the
	// API server.
	clockSkew      = 5 * time.Minute
	minPodLifetime = time.Hour
	// refreshMargin is the minimum time between the start or end of a certificate and the time when
	// the kubelet requests the next one.
	refreshMargin = 10 * time.Minute
)

// endTypes returns the conditions that end a PodCertificateRequest. A request has at most one of
// them.
func endTypes() []string {
	return []string{certificatesv1.PodCertificateRequestConditionTypeIssued,
		certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed}
}

// validatePodRequestStatus returns the validation of a new status. A signer can change the status
// once: it issues the certificate, denies the request, or reports that it failed. maySign is called
// for a valid change only.
func validatePodRequestStatus(maySign MaySign) func(ctx context.Context,
	req, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	return func(ctx context.Context, req, old *certificatesv1.PodCertificateRequest) field.ErrorList {
		var r report.Report
		checkPodRequestStatus(ctx, &r, req, old)
		if len(r.Errors) > 0 || maySign == nil || equality.Semantic.DeepEqual(old.Status, req.Status) {
			return r.Errors
		}
		if name := old.Spec.SignerName; !maySign(ctx, name) {
			user := ""
			if u, ok := request.UserFrom(ctx); ok {
				user = u.GetName()
			}
			r.Forbidden(field.NewPath("spec", "signerName"),
				fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", user, name))
		}
		return r.Errors
	}
}

func checkPodRequestStatus(ctx context.Context, r *report.Report, req, old *certificatesv1.PodCertificateRequest) {
	path := field.NewPath("status")
	checkPodRequestConditions(r, path.Child("conditions"), req.Status.Conditions)
	if len(r.Errors) > 0 {
		return
	}
	want, reason := old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`
	switch was, is := ended(&old.Status), ended(&req.Status); {
	case was != "":
		reason = "immutable after PodCertificateRequest is issued, denied, or failed"
	case is == certificatesv1.PodCertificateRequestConditionTypeIssued:
		(&issuance{Report: r, path: path, now: resource.Time(ctx).Time, req: req}).check(old.Spec.StubPKCS10Request)
		return
	case is != "":
		want = certificatesv1.PodCertificateRequestStatus{Conditions: req.Status.Conditions}
		reason = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
	}
	if !equality.Semantic.DeepEqual(req.Status, want) {
		r.Invalid(path, field.OmitValueType{}, reason)
	}
}

func checkPodRequestConditions(r *report.Report, path *field.Path, conditions []metav1.Condition) {
	known := 0
	for i := range conditions {
		at, c := path.Child(fmt.Sprintf("[%d]", i)), &conditions[i]
		if !slices.Contains(endTypes(), c.Type) {
			r.Add(field.NotSupported(at.Child("type"), c.Type, endTypes()))
			continue
		}
		if known++; known > 1 {
			r.Invalid(at.Child("type"), c.Type,
				`There may be at most one condition with type "Issued", "Denied", or "Failed"`)
		}
		if c.Status != metav1.ConditionTrue {
			r.Add(field.NotSupported(at.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	r.Add(metav1validation.ValidateConditions(conditions, path)...)
}

// ended returns the type of the condition that ends the PodCertificateRequest, or an empty string.
func ended(s *certificatesv1.PodCertificateRequestStatus) string {
	for _, c := range s.Conditions {
		if c.Status == metav1.ConditionTrue && slices.Contains(endTypes(), c.Type) {
			return c.Type
		}
	}
	return ""
}

// issuance checks a status with which a signer issues a certificate. Each check returns false if
// the later ones make no sense.
type issuance struct {
	*report.Report
	path *field.Path
	now  time.Time
	req  *certificatesv1.PodCertificateRequest

	leaf *x509.Certificate
	rest []byte // PEM blocks after the leaf certificate
}

func (c *issuance) check(stub []byte) {
	if c.parseLeaf() && c.checkKey(stub) && c.checkTimes() {
		c.checkRest()
	}
}

// fail reports an invalid certificate chain, and returns false.
func (c *issuance) fail(value any, reason string) bool {
	c.Invalid(c.path.Child("certificateChain"), value, reason)
	return false
}

func (c *issuance) parseLeaf() bool {
	chain := c.req.Status.CertificateChain
	if len(chain) > maxChain {
		c.TooLong(c.path.Child("certificateChain"), maxChain)
		return false
	}
	block, rest := pem.Decode([]byte(chain))
	if block == nil {
		return c.fail(chain, "issued certificate chain must contain at least one certificate")
	}
	if block.Type != pemCertificate {
		return c.fail(chain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return c.fail(chain, "leaf certificate does not parse as valid X.509")
	}
	for _, name := range leaf.DNSNames {
		if name == "" {
			c.fail(name, "leaf certificate should not contain empty DNSName")
		}
		if strings.Contains(name, "..") {
			c.fail(name, "leaf certificate's DNSName should not contain '..'")
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			c.fail(name, "leaf certificate's DNSName should not start or end with '.'")
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			c.fail(address, "leaf certificate should not contain invalid EmailAddress")
		}
	}
	c.leaf, c.rest = leaf, rest
	return true
}

// checkKey requires that the certificate has the public key of the PodCertificateRequest.
func (c *issuance) checkKey(stub []byte) bool {
	request, err := x509.ParseCertificateRequest(stub)
	if err != nil {
		c.Invalid(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, "must be a valid PKCS#10 CSR")
		return false
	}
	key, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !key.Equal(c.leaf.PublicKey) {
		return c.fail(c.req.Status.CertificateChain, "leaf certificate was not issued to the requested public key")
	}
	return true
}

// checkTimes compares the times in the status with those in the certificate.
func (c *issuance) checkTimes() bool {
	start, end, refresh := c.req.Status.NotBefore, c.req.Status.NotAfter, c.req.Status.BeginRefreshAt
	starts, ends, refreshes := c.path.Child("notBefore"), c.path.Child("notAfter"), c.path.Child("beginRefreshAt")
	const consistent = "must be present and consistent with the issued certificate"
	if start == nil {
		c.Required(starts, consistent)
	}
	if end == nil {
		c.Required(ends, consistent)
	}
	if refresh == nil {
		c.Required(refreshes, "must be present and in the range [notbefore+10min, notafter-10min]")
	}
	if len(c.Errors) > 0 {
		return false
	}
	switch lifetime, limit := c.leaf.NotAfter.Sub(c.leaf.NotBefore), *c.req.Spec.MaxExpirationSeconds; {
	case !start.Time.Equal(c.leaf.NotBefore):
		c.Invalid(starts, start.Time, "must be set to the NotBefore time encoded in the leaf certificate")
	case start.Sub(c.now).Abs() >= clockSkew:
		c.Invalid(starts, start.Time, "must be set to within 5 minutes of kube-apiserver's current time")
	case !end.Time.Equal(c.leaf.NotAfter):
		c.Invalid(ends, end.Time, "must be set to the NotAfter time encoded in the leaf certificate")
	case lifetime < minPodLifetime:
		c.fail(lifetime, "leaf certificate lifetime must be >= 1 hour")
	case lifetime > time.Duration(limit)*time.Second:
		c.fail(lifetime, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%d)", limit))
	case refresh.Time.Before(start.Add(refreshMargin)):
		c.Invalid(refreshes, refresh.Time, "must be at least 10 minutes after status.notBefore")
	case refresh.Time.After(end.Add(-refreshMargin)):
		c.Invalid(refreshes, refresh.Time, "must be at least 10 minutes before status.notAfter")
	default:
		return true
	}
	return false
}

// checkRest requires that the blocks after the leaf are certificates. It does not verify the chain.
func (c *issuance) checkRest() {
	for {
		var block *pem.Block
		if block, c.rest = pem.Decode(c.rest); block == nil {
			return
		}
		if block.Type != pemCertificate {
			// The text has the spelling of Kubernetes.
			c.fail(c.req.Status.CertificateChain, "issued certificate chain must consist entirely of CERTFICATE PEM blocks")
			return
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			c.fail(c.req.Status.CertificateChain, "intermediate certificate does not parse as valid X.509")
			return
		}
	}
}
