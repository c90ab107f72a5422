// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/daemon/podtrace"
	"keelson.dev/keelson/pkg/daemon/tracetest"
)

// TestTracingFile checks that spans of pods' traces arrive at the collector that a file configures,
// and that invalid files are rejected.
func TestTracingFile(t *testing.T) {
	received := tracetest.Start(t)
	for name, tc := range map[string]struct{ text, want string }{
		"exports": {"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: " +
			"1000000\nendpoint: " + received.Endpoint, ""},
		"another kind": {"apiVersion: v1\nkind: Pod", `no kind "Pod" is registered`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tracing.yaml")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var file string
			fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
			AddTracingFile(fs, &file)
			if err := fs.Parse([]string{"--tracing-config-file=" + path}); err != nil {
				t.Fatal(err)
			}
			spans, err := OpenTracing(file, "scheduler")
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %q in it", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "0f8fad5b-d9cb-469f-a165-70867728950e"}}
			spans.Pods().Record(t.Context(), pod, podtrace.Span{Name: "x"})
			spans.Pods().RecordRoot(t.Context(), pod, podtrace.Span{})
			if err := spans.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := received.Spans()
			if len(got) != 2 || got[0].Name != "x" || got[1].Name != "pod" || got[1].Parent != "" ||
				got[0].Parent != got[1].ID || got[1].Trace != podtrace.TraceID(pod.UID).String() {
				t.Errorf("spans %+v", got)
			}
		})
	}
}

// TestNoTracingFile checks that OpenTracing returns nil without a file.
func TestNoTracingFile(t *testing.T) {
	spans, err := OpenTracing("", "scheduler")
	if err != nil || spans != nil || spans.Pods() != nil {
		t.Error(spans, err)
	}
}
