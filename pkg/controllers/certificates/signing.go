// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/util/cert"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/pki"
)

// SigningName is the name of the controller that signs approved requests.
const SigningName = "certificatesigningrequest-signing-controller"

const (
	// backdate is how long before the signing time a certificate becomes valid. So clients whose
	// clocks are up to 5 minutes behind accept a new certificate.
	backdate = 5 * time.Minute
	// shortLife separates short from long lifetimes. A shorter lifetime counts from the signing
	// time. A lifetime of shortLife or more counts from the earlier time at which the certificate
	// becomes valid (see backdate), so that the certificate is valid for exactly its lifetime.
	shortLife   = 8 * time.Hour
	minLife     = 10 * time.Minute
	reasonRules = "SignerValidationFailure"
)

type signing struct {
	controller.Deps
	queue    *controller.Queue
	requests certificateslisters.CertificateSigningRequestLister
	// pairs are the certificate authorities by signer name. The key "" has the default authority.
	pairs map[string]controller.KeyPair
}

// NewSigning returns the controller that signs approved requests with the certificate authorities
// in the options.
func NewSigning(d controller.Deps) (controller.Controller, error) {
	pairs := maps.Clone(d.Options.Signers)
	if len(d.Options.SigningCert) > 0 {
		pairs = map[string]controller.KeyPair{
			"": {Cert: d.Options.SigningCert, Key: d.Options.SigningKey, Read: d.Options.ReadSigning},
		}
	}
	for signer, pair := range pairs {
		if _, err := readAuthority(pair); err != nil {
			return nil, fmt.Errorf("signing authority %s: %w", signer, err)
		}
	}
	requests := d.Informers.Certificates().V1().CertificateSigningRequests()
	c := &signing{Deps: d, requests: requests.Lister(), pairs: pairs}
	c.queue = controller.NewQueue(SigningName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(requests.Informer(), func(_, csr *certificatesv1.CertificateSigningRequest) {
		if csr != nil && needsSignature(csr) {
			c.queue.Add(csr.Name)
		}
	})
}

// readAuthority returns the certificate authority of a pair.
func readAuthority(p controller.KeyPair) (*pki.Authority, error) {
	if p.Read != nil {
		var err error
		if p, err = p.Read(); err != nil {
			return nil, err
		}
	}
	bundle, err := cert.ParseCertsPEM(p.Cert)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	var cross []*x509.Certificate
	if len(p.Cross) > 0 {
		if cross, err = cert.ParseCertsPEM(p.Cross); err != nil {
			return nil, fmt.Errorf("cross certificates: %w", err)
		}
	}
	return pki.NewAuthority(bundle, cross, p.Key)
}

// pairFor returns the certificate authority of a signer, or the default authority, if there is one.
func (c *signing) pairFor(signer string) (controller.KeyPair, bool) {
	for _, name := range []string{signer, ""} {
		if p, ok := c.pairs[name]; ok {
			return p, true
		}
	}
	return controller.KeyPair{}, false
}

// Run implements controller.Controller.
func (c *signing) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// needsSignature reports whether a CertificateSigningRequest is approved and not denied, has no
// certificate yet and has not failed.
func needsSignature(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) == 0 && is(csr, certificatesv1.CertificateApproved) &&
		!is(csr, certificatesv1.CertificateDenied) && !is(csr, certificatesv1.CertificateFailed)
}

func (c *signing) sync(ctx context.Context, name string) error {
	csr, err := c.requests.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !needsSignature(csr) {
		return nil
	}
	req, err := parse(csr)
	if err != nil {
		return err
	}
	next := csr.DeepCopy()
	pair, ours := c.pairFor(csr.Spec.SignerName)
	switch known, wrong := check(csr, req); {
	case !known || !ours:
		return nil
	case wrong != nil:
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: v1.ConditionTrue, Reason: reasonRules, Message: wrong.Error(),
			LastUpdateTime: metav1.NewTime(c.Clock.Now()),
		})
	default:
		if next.Status.Certificate, err = c.sign(csr, req, pair); err != nil {
			return fmt.Errorf("sign: %w", err)
		}
	}
	if _, err := c.Client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, next,
		metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

// sign returns the certificate for a CertificateSigningRequest. It copies the subject and the
// subject alternative names of the X.509 request, and ignores the request's other extensions.
// It reads the authority's files for each certificate, because another authority may sign now.
func (c *signing) sign(csr *certificatesv1.CertificateSigningRequest, req *x509.CertificateRequest,
	pair controller.KeyPair) ([]byte, error) {
	if err := req.CheckSignature(); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	by, err := readAuthority(pair)
	if err != nil {
		return nil, err
	}
	from, to, err := c.validity(csr.Spec.ExpirationSeconds, by.Cert.NotAfter)
	if err != nil {
		return nil, err
	}
	usage, extended, err := keyUsages(csr.Spec.Usages)
	if err != nil {
		return nil, err
	}
	return by.Sign(&x509.Certificate{
		Subject: req.Subject, NotBefore: from, NotAfter: to,
		DNSNames: req.DNSNames, IPAddresses: req.IPAddresses, EmailAddresses: req.EmailAddresses, URIs: req.URIs,
		KeyUsage: usage, ExtKeyUsage: extended, BasicConstraintsValid: true,
	}, req.PublicKey, c.Clock)
}

var errAuthorityExpired = errors.New("the signer has expired")

// validity returns the period in which a certificate is valid. The lifetime is the requested one,
// but at most the lifetime in the options, and the certificate never outlives the authority, which
// expires at end.
func (c *signing) validity(seconds *int32, end time.Time) (from, to time.Time, err error) {
	life := c.Options.SigningDuration
	if seconds != nil {
		life = min(max(time.Duration(*seconds)*time.Second, minLife), life)
	}
	now := c.Clock.Now()
	from, to = now.Add(-backdate), now.Add(life)
	if life >= shortLife {
		to = to.Add(-backdate)
	}
	if !now.Before(end) {
		return from, to, fmt.Errorf("%w: NotAfter=%v", errAuthorityExpired, end)
	}
	if to.After(end) {
		to = end
	}
	return from, to, nil
}

// keyUsages converts the usages in a request to the key usages and extended key usages of X.509.
func keyUsages(usages []certificatesv1.KeyUsage) (x509.KeyUsage, []x509.ExtKeyUsage, error) {
	plain := map[certificatesv1.KeyUsage]x509.KeyUsage{
		certificatesv1.UsageSigning:           x509.KeyUsageDigitalSignature,
		certificatesv1.UsageDigitalSignature:  x509.KeyUsageDigitalSignature,
		certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment,
		certificatesv1.UsageKeyEncipherment:   x509.KeyUsageKeyEncipherment,
		certificatesv1.UsageKeyAgreement:      x509.KeyUsageKeyAgreement,
		certificatesv1.UsageDataEncipherment:  x509.KeyUsageDataEncipherment,
		certificatesv1.UsageCertSign:          x509.KeyUsageCertSign,
		certificatesv1.UsageCRLSign:           x509.KeyUsageCRLSign,
		certificatesv1.UsageEncipherOnly:      x509.KeyUsageEncipherOnly,
		certificatesv1.UsageDecipherOnly:      x509.KeyUsageDecipherOnly,
	}
	extended := map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
		certificatesv1.UsageAny:             x509.ExtKeyUsageAny,
		certificatesv1.UsageServerAuth:      x509.ExtKeyUsageServerAuth,
		certificatesv1.UsageClientAuth:      x509.ExtKeyUsageClientAuth,
		certificatesv1.UsageCodeSigning:     x509.ExtKeyUsageCodeSigning,
		certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageSMIME:           x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageIPsecEndSystem:  x509.ExtKeyUsageIPSECEndSystem,
		certificatesv1.UsageIPsecTunnel:     x509.ExtKeyUsageIPSECTunnel,
		certificatesv1.UsageIPsecUser:       x509.ExtKeyUsageIPSECUser,
		certificatesv1.UsageTimestamping:    x509.ExtKeyUsageTimeStamping,
		certificatesv1.UsageOCSPSigning:     x509.ExtKeyUsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC:    x509.ExtKeyUsageMicrosoftServerGatedCrypto,
		certificatesv1.UsageNetscapeSGC:     x509.ExtKeyUsageNetscapeServerGatedCrypto,
	}
	var bits x509.KeyUsage
	var list []x509.ExtKeyUsage
	for _, u := range usages {
		if e, ok := extended[u]; ok {
			list = append(list, e)
		} else if p, ok := plain[u]; ok {
			bits |= p
		} else {
			return 0, nil, fmt.Errorf("unrecognized usage values: %q", u)
		}
	}
	slices.Sort(list)
	return bits, slices.Compact(list), nil
}
