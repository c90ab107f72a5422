// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// logMemory logs the anonymous memory of the child processes of this process.
func logMemory(t *testing.T) {
	t.Helper()
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	children := 0
	for _, path := range statuses {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		if fields := parseStatus(string(status)); fields["PPid"] == fmt.Sprint(os.Getpid()) {
			children++
			t.Logf("%s has %s of anonymous memory", fields["Name"], fields["RssAnon"])
		}
	}
	if children == 0 {
		t.Error("no process of the control plane found")
	}
}

// parseStatus parses a file /proc/PID/status and returns its fields by name.
func parseStatus(s string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(s) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}
