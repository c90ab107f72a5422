// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// secrets is a Getter with a service account and a secret with its token.
type secrets struct {
	Getter
	labels map[string]string
}

func (s secrets) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: s.labels},
		Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte("t")}}, nil
}

func (secrets) ServiceAccount(context.Context, string, string) (*corev1.ServiceAccount, error) {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: "1"},
		Secrets: []corev1.ObjectReference{{Name: "generated"}}}, nil
}

// TestLegacyMetrics checks that the metrics count uses of generated tokens, of manually created
// tokens and of invalidated tokens.
func TestLegacyMetrics(t *testing.T) {
	v := &Verifier{Metrics: NewMetrics(prometheus.NewRegistry())}
	use := func(secret string, labels map[string]string) {
		v.Get = secrets{labels: labels}
		err := v.stored(t.Context(), "t", &legacyClaims{SecretName: secret, ServiceAccountUID: "1"})
		if (err == nil) != (labels == nil) {
			t.Errorf("token of secret %s: %v", secret, err)
		}
	}
	use("generated", nil)
	use("manual", nil)
	use("manual", nil)
	use("generated", map[string]string{InvalidSinceLabel: "2030-01-01"})
	for c, want := range map[prometheus.Counter]float64{
		v.Metrics.generated: 1, v.Metrics.manual: 2, v.Metrics.invalidated: 1,
	} {
		if got := testutil.ToFloat64(c); got != want {
			t.Errorf("%s is %v, want %v", c.Desc(), got, want)
		}
	}
}
