// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package emulation_test

import (
	"encoding/json"
	"strings"
	"testing"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/api/rowtest"
	"keelson.dev/keelson/pkg/release"
)

const (
	trust   = `{"clusterTrustBundle":{"name":"b","path":"p"}}`
	podCert = `{"podCertificate":{"signerName":"a.b/c","keyType":"ED25519","keyPath":"k"}}`
)

func podWith(sources string) string {
	return `{"volumes":[{"name":"v","projected":{"sources":[` + sources + `]}}]}`
}

// TestFields checks that new fields are dropped on write, unless the stored object has them, and that
// they are kept if nothing is emulated.
func TestFields(t *testing.T) {
	t.Parallel()
	rolling := func(more string) string {
		return `{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{` + more + `}}}}`
	}
	template := func(sources string) string { return `{"spec":{"template":{"spec":` + podWith(sources) + `}}}` }
	for name, tc := range map[string]struct{ resource, with, without, field string }{
		"bundle in a pod": {"pods", `{"spec":` + podWith(trust) + `}`, `{"spec":` + podWith("") + `}`,
			`"clusterTrustBundle"`},
		"certificate in a pod": {"pods", `{"spec":` + podWith(podCert) + `}`, `{"spec":` + podWith(trust) + `}`,
			`"podCertificate"`},
		"bundle in a pod template": {"podtemplates", `{"template":{"spec":` + podWith(trust) + `}}`,
			`{"template":{"spec":` + podWith("") + `}}`, `"clusterTrustBundle"`},
		"bundle in a cron job": {"cronjobs", `{"spec":{"jobTemplate":` + template(trust) + `}}`,
			`{"spec":{"jobTemplate":` + template("") + `}}`, `"clusterTrustBundle"`},
		"bundle in a replication controller": {"replicationcontrollers", template(trust), `{"spec":{}}`,
			`"clusterTrustBundle"`},
		"bundle in a replica set":  {"replicasets", template(trust), template(""), `"clusterTrustBundle"`},
		"bundle in a deployment":   {"deployments", template(trust), template(""), `"clusterTrustBundle"`},
		"bundle in a daemon set":   {"daemonsets", template(trust), template(""), `"clusterTrustBundle"`},
		"bundle in a stateful set": {"statefulsets", template(trust), template(""), `"clusterTrustBundle"`},
		"bundle in a job":          {"jobs", template(trust), template(""), `"clusterTrustBundle"`},
		"stateful set":             {"statefulsets", rolling(`"maxUnavailable":2`), rolling(``), `"maxUnavailable"`},
		"driver": {"csidrivers", `{"spec":{"preventPodSchedulingIfMissing":true}}`, `{"spec":{}}`,
			`"preventPodSchedulingIfMissing"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, emulated := range []release.Emulated{0, 36} {
				row := rowtest.Row(t, api.Rows(api.Deps{Emulated: emulated}), tc.resource)
				made := rowtest.Decode(t, row, "", tc.with)
				if row.PrepareCreate != nil {
					row.PrepareCreate(t.Context(), made)
				}
				if got, want := strings.Contains(text(t, made), tc.field), emulated == 0; got != want {
					t.Errorf("emulated %d: created with the field: %t", emulated, got)
				}
				changed := rowtest.Decode(t, row, "", tc.with)
				row.PrepareUpdate(t.Context(), changed, rowtest.Decode(t, row, "", tc.with))
				if !strings.Contains(text(t, changed), tc.field) {
					t.Errorf("emulated %d: the field of the stored object was dropped", emulated)
				}
				if emulated == 0 {
					continue
				}
				if unset := rowtest.Decode(t, row, "", tc.without); strings.Contains(text(t, unset), tc.field) {
					t.Error("the field has a default")
				}
				added := rowtest.Decode(t, row, "", tc.with)
				row.PrepareUpdate(t.Context(), added, rowtest.Decode(t, row, "", tc.without))
				if strings.Contains(text(t, added), tc.field) {
					t.Error("an update added the field")
				}
			}
		})
	}
}

func TestMinimumOfZero(t *testing.T) {
	t.Parallel()
	const (
		rest = `"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},` +
			`"metrics":[{"type":"External","external":{"metric":{"name":"m"},"target":{"type":"Value","value":"1"}}}]}}`
		zero, one = `{"spec":{"minReplicas":0,` + rest, `{"spec":{"minReplicas":1,` + rest
	)
	for _, emulated := range []release.Emulated{0, 36} {
		row := rowtest.Row(t, api.Rows(api.Deps{Emulated: emulated}), "horizontalpodautoscalers")
		want := ""
		if emulated == 36 {
			want = `spec.minReplicas: Invalid value: 0: must be greater than or equal to 1`
		}
		got := ""
		withZero, withOne := rowtest.Decode(t, row, "", zero), rowtest.Decode(t, row, "", one)
		if err := row.Validate(t.Context(), withZero).ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("emulated %d: create: %q, want %q", emulated, got, want)
		}
		got = ""
		if err := row.ValidateUpdate(t.Context(), withZero, withOne).ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("emulated %d: update: %q, want %q", emulated, got, want)
		}
		if errs := row.ValidateUpdate(t.Context(), withZero, withZero); len(errs) > 0 {
			t.Errorf("emulated %d: update of a stored zero: %v", emulated, errs)
		}
	}
}

func text(t *testing.T, obj resource.Object) string {
	t.Helper()
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
