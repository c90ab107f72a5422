// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podcertificate

import (
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// lostAfter is how long after its creation a request that is missing in the cache counts as
	// deleted. A request that was just created may be missing because the watch is late.
	lostAfter = 10 * time.Minute
	// overdueAfter is how long a renewal may take before an event reports that it is overdue.
	overdueAfter = 10 * time.Minute
	// maxJitter is the maximum random time that is added to the time of a renewal and to lostAfter.
	// It prevents that many requests are created at one time.
	maxJitter = 5 * time.Minute
)

// States of a podCertificate source, as metrics name them.
const (
	stateNotIssued = "not_yet_issued"
	stateFresh     = "fresh"
	stateOverdue   = "overdue_for_refresh"
	stateExpired   = "expired"
	stateDenied    = "denied"
	stateFailed    = "failed"
)

// outcome is what the signer has decided about a PodCertificateRequest.
type outcome struct {
	pod types.UID
	// condition is the type of the final condition. It is empty while the request is pending.
	condition       string
	reason, message string // of the final condition
	// If the condition is Issued, these fields have the certificates and times of the status.

	chain              []byte
	renewAt, expiresAt time.Time
}

// readOutcome returns the outcome of a request. A request that is issued without a time of renewal
// or expiry, which the API server prevents, counts as pending.
func readOutcome(r *certificatesv1.PodCertificateRequest) *outcome {
	out := &outcome{pod: r.Spec.PodUID}
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed:
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			if r.Status.BeginRefreshAt == nil || r.Status.NotAfter == nil {
				continue
			}
			out.chain = cleanChain(r.Status.CertificateChain)
			out.renewAt, out.expiresAt = r.Status.BeginRefreshAt.Time, r.Status.NotAfter.Time
		default:
			continue
		}
		out.condition, out.reason, out.message = c.Type, c.Reason, c.Message
		return out
	}
	return out
}

// source is one podCertificate source of a pod's volume. It is a state machine without I/O: advance
// decides what to do next.
type source struct {
	pod  *v1.Pod
	spec *v1.PodCertificateProjection

	awaited *awaited // the request whose outcome the source awaits, or nil
	issued  *issued  // the credentials of the pod; nil until the first are issued
	refused *outcome // a request that was denied or has failed, or nil
	failure error    // why the last attempt to create a request failed, or nil
}

// awaited is a PodCertificateRequest that this process has created.
type awaited struct {
	name types.NamespacedName
	key  []byte // private key, as PEM
	// lostAt is when the request counts as deleted if the cache does not have it.
	lostAt time.Time
}

// issued is a private key with its certificates.
type issued struct {
	key, chain                      []byte // as PEM
	renewAt, expiresAt              time.Time
	reportedOverdue, reportedExpiry bool
}

// event is a warning event on the source's pod.
type event struct{ reason, message string }

// step is what the caller of advance has to do.
type step struct {
	create  bool // create a request
	changed bool // the result of credentials has changed
	events  []event
}

// advance applies the outcome of the awaited request and returns the next step. The argument found
// is nil if the request does not exist, or if none is awaited. jitter delays the next renewal.
func (s *source) advance(now time.Time, found *outcome, jitter time.Duration) step {
	switch {
	case s.refused != nil:
		return step{}
	case s.awaited == nil:
	case found == nil:
		if now.After(s.awaited.lostAt) {
			s.awaited = nil
		}
	case found.condition == certificatesv1.PodCertificateRequestConditionTypeIssued:
		s.issued = &issued{
			key: s.awaited.key, chain: found.chain, renewAt: found.renewAt.Add(jitter), expiresAt: found.expiresAt,
		}
		s.awaited = nil
		return step{changed: true}
	case found.condition != "":
		text := fmt.Sprintf("PodCertificateRequest %s %s, reason=%q, message=%q", s.awaited.name,
			found.verb("was denied", "failed"), found.reason, found.message)
		s.refused, s.awaited = found, nil
		return step{changed: true, events: []event{{found.condition, text}}}
	}
	if s.issued == nil {
		return step{create: s.awaited == nil}
	}
	if now.Before(s.issued.renewAt) {
		return step{}
	}
	return step{create: s.awaited == nil, events: s.issued.overdueEvents(now)}
}

// verb returns one of two verbs for a PodCertificateRequest whose certificate was not issued.
func (o *outcome) verb(denied, failed string) string {
	if o.condition == certificatesv1.PodCertificateRequestConditionTypeDenied {
		return denied
	}
	return failed
}

// overdueEvents returns the events about a late renewal. Each is returned once.
func (i *issued) overdueEvents(now time.Time) (out []event) {
	if !i.reportedOverdue && now.After(i.renewAt.Add(overdueAfter)) {
		i.reportedOverdue = true
		out = append(out, event{"CertificateOverdueForRefresh", "PodCertificate refresh overdue"})
	}
	if !i.reportedExpiry && now.After(i.expiresAt) {
		i.reportedExpiry = true
		out = append(out, event{"CertificateExpired", "PodCertificate expired"})
	}
	return out
}

// credentials returns the private key and the certificates as PEM, or an error that says why there
// are none.
func (s *source) credentials() (key, chain []byte, err error) {
	switch {
	case s.refused != nil:
		return nil, nil, fmt.Errorf("PodCertificateRequest was permanently %s: reason=%q message=%q",
			s.refused.verb("denied", "failed"), s.refused.reason, s.refused.message)
	case s.issued != nil:
		return s.issued.key, s.issued.chain, nil
	case s.failure != nil:
		return nil, nil, fmt.Errorf("credential bundle is not issued yet: %w", s.failure)
	}
	return nil, nil, errors.New("credential bundle is not issued yet")
}

// state returns the state of the podCertificate source that metrics report.
func (s *source) state(now time.Time) string {
	switch {
	case s.refused != nil:
		return s.refused.verb(stateDenied, stateFailed)
	case s.issued == nil:
		return stateNotIssued
	case now.After(s.issued.expiresAt):
		return stateExpired
	case now.After(s.issued.renewAt.Add(overdueAfter)):
		return stateOverdue
	}
	return stateFresh
}
