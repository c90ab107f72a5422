// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/machine/config"
)

// runPreflight runs the command "ctl preflight" and returns what it prints.
func runPreflight(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := preflightCommand(&out)
	c.SetArgs(append([]string{"--node-name=m1", "--node-ip=192.0.2.1"}, args...))
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestPreflight checks that the command finds a problem that every machine has: none has the address
// 192.0.2.1, which is for documentation. If all errors are ignored, the command succeeds.
func TestPreflight(t *testing.T) {
	out, err := runPreflight(t, "--worker")
	if err == nil || !strings.Contains(err.Error(), "Addresses") || !strings.Contains(out, "error    Addresses: ") {
		t.Errorf("error %v, output\n%s", err, out)
	}
	out, err = runPreflight(t, "--ignore-preflight-errors=all")
	if err != nil || !strings.Contains(out, "ignored  Addresses: ") {
		t.Errorf("error %v, output\n%s", err, out)
	}
}

func TestPreflightPrintsDefaults(t *testing.T) {
	out, err := runPreflight(t, "--print-defaults", "--max-pods=50")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Decode([]byte(out))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if c.Kubelet.MaxPods != 50 || c.Node.Name != "m1" || c.APIServer.Port != 6443 {
		t.Errorf("configuration %+v", c)
	}
}

func TestPreflightChecksConfiguration(t *testing.T) {
	if _, err := runPreflight(t, "--runtime=other"); err == nil || !strings.Contains(err.Error(), "runtime: Unsupported") {
		t.Errorf("error %v", err)
	}
}
