// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podcertificate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// have returns the credentials of a pod. The arguments are relative to now.
func have(renewAt, expiresAt time.Duration) *issued {
	return &issued{
		key: []byte("old key"), chain: []byte("old chain"), renewAt: now.Add(renewAt), expiresAt: now.Add(expiresAt),
	}
}

// await returns a PodCertificateRequest whose decision is awaited. The argument lostAt is relative
// to the present time.
func await(lostAt time.Duration) *awaited {
	return &awaited{
		name: types.NamespacedName{Namespace: "ns", Name: "req-1"}, key: []byte("new key"), lostAt: now.Add(lostAt),
	}
}

func TestAdvance(t *testing.T) {
	pending := &outcome{}
	signed := &outcome{
		condition: "Issued", chain: []byte("new chain"), renewAt: now.Add(time.Hour), expiresAt: now.Add(2 * time.Hour),
	}
	denied := &outcome{condition: "Denied", reason: "UnsupportedKeyType", message: "use ED25519"}
	failed := &outcome{condition: "Failed", reason: "Broken", message: "no CA"}
	overdue := event{"CertificateOverdueForRefresh", "PodCertificate refresh overdue"}
	expired := event{"CertificateExpired", "PodCertificate expired"}
	wasDenied := event{"Denied",
		`PodCertificateRequest ns/req-1 was denied, reason="UnsupportedKeyType", message="use ED25519"`}
	const (
		errDenied = `PodCertificateRequest was permanently denied: reason="UnsupportedKeyType" message="use ED25519"`
		errFailed = `PodCertificateRequest was permanently failed: reason="Broken" message="no CA"`
		jitter    = 3 * time.Minute
	)

	for name, c := range map[string]struct {
		source source
		found  *outcome
		want   step
		// What the source has after the step.
		key, err, state string
		awaits          bool
	}{
		"no request yet": {
			want: step{create: true}, err: "credential bundle is not issued yet", state: stateNotIssued,
		},
		"first request is pending": {
			source: source{awaited: await(time.Minute)}, found: pending,
			err: "credential bundle is not issued yet", state: stateNotIssued, awaits: true,
		},
		"first request is not in the cache yet": {
			source: source{awaited: await(time.Minute)},
			err:    "credential bundle is not issued yet", state: stateNotIssued, awaits: true,
		},
		"first request was deleted": {
			source: source{awaited: await(-time.Second)}, want: step{create: true},
			err: "credential bundle is not issued yet", state: stateNotIssued,
		},
		"first request is pending for long": {
			source: source{awaited: await(-time.Hour)}, found: pending,
			err: "credential bundle is not issued yet", state: stateNotIssued, awaits: true,
		},
		"first request was issued": {
			source: source{awaited: await(time.Minute)}, found: signed,
			want: step{changed: true}, key: "new key", state: stateFresh,
		},
		"first request was denied": {
			source: source{awaited: await(time.Minute)}, found: denied,
			want: step{changed: true, events: []event{wasDenied}},
			err:  errDenied, state: stateDenied,
		},
		"first request has failed": {
			source: source{awaited: await(time.Minute)}, found: failed,
			want: step{changed: true, events: []event{{"Failed",
				`PodCertificateRequest ns/req-1 failed, reason="Broken", message="no CA"`}}},
			err: errFailed, state: stateFailed,
		},
		"denied before": {
			source: source{refused: denied},
			err:    errDenied, state: stateDenied,
		},
		"fresh": {
			source: source{issued: have(time.Second, time.Hour)}, key: "old key", state: stateFresh,
		},
		"renewal is due": {
			source: source{issued: have(0, time.Hour)}, want: step{create: true}, key: "old key", state: stateFresh,
		},
		"renewal is pending": {
			source: source{issued: have(-time.Minute, time.Hour), awaited: await(time.Minute)}, found: pending,
			key: "old key", state: stateFresh, awaits: true,
		},
		"renewal is overdue": {
			source: source{issued: have(-11*time.Minute, time.Hour), awaited: await(time.Minute)}, found: pending,
			want: step{events: []event{overdue}}, key: "old key", state: stateOverdue, awaits: true,
		},
		"certificate has expired": {
			source: source{issued: have(-time.Hour, -time.Minute)},
			want:   step{create: true, events: []event{overdue, expired}}, key: "old key", state: stateExpired,
		},
		"request for renewal was deleted": {
			source: source{issued: have(-time.Minute, time.Hour), awaited: await(-time.Second)},
			want:   step{create: true}, key: "old key", state: stateFresh,
		},
		"renewed": {
			source: source{issued: have(-time.Hour, -time.Minute), awaited: await(time.Minute)}, found: signed,
			want: step{changed: true}, key: "new key", state: stateFresh,
		},
		"renewal was denied": {
			source: source{issued: have(-time.Minute, time.Hour), awaited: await(time.Minute)}, found: denied,
			want: step{changed: true, events: []event{wasDenied}},
			err:  errDenied, state: stateDenied,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.source
			if d := cmp.Diff(c.want, s.advance(now, c.found, jitter), cmp.AllowUnexported(step{}, event{})); d != "" {
				t.Errorf("step (-want +got):\n%s", d)
			}
			key, chain, err := s.credentials()
			if string(key) != c.key || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
				t.Errorf("key %q, error %v", key, err)
			}
			renewed := string(chain) == "new chain" && s.issued.renewAt.Equal(signed.renewAt.Add(jitter))
			if renewed != (c.key == "new key") {
				t.Errorf("chain %q, issued %+v", chain, s.issued)
			}
			if got := s.state(now); got != c.state {
				t.Errorf("state %s, want %s", got, c.state)
			}
			if (s.awaited != nil) != c.awaits {
				t.Errorf("awaits %v", s.awaited)
			}
			if again := s.advance(now, c.found, jitter); len(again.events) != 0 {
				t.Errorf("the events are repeated: %v", again.events)
			}
		})
	}
}

func TestReadOutcome(t *testing.T) {
	at, none := metav1.NewTime(now), time.Time{}
	status := func(chain string, times *metav1.Time, conditions ...string) certificatesv1.PodCertificateRequestStatus {
		s := certificatesv1.PodCertificateRequestStatus{CertificateChain: chain, BeginRefreshAt: times, NotAfter: times}
		for _, c := range conditions {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: c, Reason: "R", Message: "M"})
		}
		return s
	}
	for name, c := range map[string]struct {
		status certificatesv1.PodCertificateRequestStatus
		want   outcome
	}{
		"pending":              {status("", nil), outcome{pod: "u"}},
		"another condition":    {status("", nil, "Seen"), outcome{pod: "u"}},
		"denied":               {status("", nil, "Seen", "Denied"), outcome{"u", "Denied", "R", "M", nil, none, none}},
		"failed":               {status("", nil, "Failed"), outcome{"u", "Failed", "R", "M", nil, none, none}},
		"issued":               {status("", &at, "Issued"), outcome{"u", "Issued", "R", "M", nil, now, now}},
		"issued without times": {status("", nil, "Issued"), outcome{pod: "u"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := readOutcome(&certificatesv1.PodCertificateRequest{
				Spec: certificatesv1.PodCertificateRequestSpec{PodUID: "u"}, Status: c.status,
			})
			if d := cmp.Diff(&c.want, got, cmp.AllowUnexported(outcome{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
