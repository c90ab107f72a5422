// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestLogSource checks that messages of etcd have the source line that logged them.
func TestLogSource(t *testing.T) {
	var out bytes.Buffer
	NewLogger(slog.NewTextHandler(&out, &slog.HandlerOptions{AddSource: true})).Warn("slow")
	if got := out.String(); !strings.Contains(got, "log_test.go:") || !strings.Contains(got, "msg=slow component=etcd") {
		t.Errorf("logged %q", got)
	}
}
