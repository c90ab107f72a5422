// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"keelson.dev/keelson/pkg/machine"
	"keelson.dev/keelson/pkg/machine/config"
)

// runMachine runs a command about this machine and returns what it prints.
func runMachine(t *testing.T, command func(io.Writer) *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := command(&out)
	c.SetArgs(append([]string{"--node-name=m1", "--node-ip=192.0.2.1"}, args...))
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestPreflight checks that the command finds a problem that every machine has: none has the address
// 192.0.2.1, which is for documentation. If all errors are ignored, the command succeeds.
func TestPreflight(t *testing.T) {
	out, err := runMachine(t, preflightCommand, "--worker")
	if err == nil || !strings.Contains(err.Error(), "Addresses") || !strings.Contains(out, "error    Addresses: ") {
		t.Errorf("error %v, output\n%s", err, out)
	}
	out, err = runMachine(t, preflightCommand, "--ignore-preflight-errors=all")
	if err != nil || !strings.Contains(out, "ignored  Addresses: ") {
		t.Errorf("error %v, output\n%s", err, out)
	}
}

func newInit(stdout io.Writer) *cobra.Command { return initCommand(stdout, io.Discard) }

func TestInitPrintsDefaults(t *testing.T) {
	out, err := runMachine(t, newInit, "--print-defaults", "--max-pods=50")
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
	_, err := runMachine(t, preflightCommand, "--runtime=other")
	if err == nil || !strings.Contains(err.Error(), "runtime: Unsupported") {
		t.Errorf("error %v", err)
	}
}

// TestCheckInvitation checks that "ctl join" rejects incomplete arguments before it connects.
func TestCheckInvitation(t *testing.T) {
	hash := "sha256:" + strings.Repeat("0a", 32)
	for name, tc := range map[string]struct {
		invitation machine.Invitation
		want       string // a part of the error; empty if there is none
	}{
		"complete":     {machine.Invitation{Server: "192.0.2.1:6443", Token: "t", Hashes: []string{hash}}, ""},
		"IPv6":         {machine.Invitation{Server: "[2001:db8::1]:6443", Token: "t", Hashes: []string{hash}}, ""},
		"host name":    {machine.Invitation{Server: "m1:6443", Token: "t", Hashes: []string{hash}}, "want an IP address"},
		"no port":      {machine.Invitation{Server: "192.0.2.1", Token: "t", Hashes: []string{hash}}, "want an IP address"},
		"no token":     {machine.Invitation{Server: "192.0.2.1:6443", Hashes: []string{hash}}, "--token"},
		"no hash":      {machine.Invitation{Server: "192.0.2.1:6443", Token: "t"}, "--ca-cert-hash"},
		"another hash": {machine.Invitation{Server: "192.0.2.1:6443", Token: "t", Hashes: []string{"md5:00"}}, "sha256:"},
	} {
		err := checkInvitation(&tc.invitation)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
}

func TestConfirmed(t *testing.T) {
	for answer, want := range map[string]bool{
		"y\n": true, "Yes\n": true, " yes": true, "": false, "\n": false, "n\n": false, "no\ny\n": false, "yeah\n": false,
	} {
		var out bytes.Buffer
		if got := confirmed(strings.NewReader(answer), &out, "It is gone then. "); got != want {
			t.Errorf("answer %q: got %t, want %t", answer, got, want)
		}
		if got := out.String(); got != "It is gone then. Continue? [y/N] " {
			t.Errorf("printed %q", got)
		}
	}
}
