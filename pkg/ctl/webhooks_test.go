// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
)

// TestWebhooks checks the table that "ctl webhooks" prints for a response of the API server.
func TestWebhooks(t *testing.T) {
	for name, tc := range map[string]struct{ document, want string }{
		"none": {`{}`, "No webhooks are configured.\n"},
		"two": {`{"webhooks":[
			{"type":"Mutating","configuration":"c","name":"m.example.com","failurePolicy":"Ignore","state":"Closed","calls":7,"medianSeconds":0.00123,"p99Seconds":1.5},
			{"type":"Validating","configuration":"c","name":"v.example.com","failurePolicy":"Fail","state":"Open","calls":9,"failures":5,"consecutiveFailures":4,
			 "passedOver":3,"lastFailure":"2026-01-02T03:04:05Z","lastFailureReason":"` + strings.Repeat("x", 101) + `"}]}`,
			`TYPE         CONFIGURATION   NAME            POLICY   CIRCUIT   CALLS   FAILED   IN A ROW   SKIPPED   MEDIAN   P99    LAST FAILURE
Mutating     c               m.example.com   Ignore   Closed    7       0        0          0         1.2ms    1.5s   -
Validating   c               v.example.com   Fail     Open      9       5        4          3         0s       0s     2026-01-02T03:04:05Z "` + strings.Repeat("x", 100) + `…"
`},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != webhookhealth.Path {
					http.NotFound(w, r)
					return
				}
				_, _ = w.Write([]byte(tc.document))
			}))
			defer s.Close()
			var out bytes.Buffer
			if err := Run(t.Context(), []string{"ctl", "webhooks", "--server", s.URL, "--kubeconfig",
				"/dev/null"}, strings.NewReader(""), &out, &out); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
