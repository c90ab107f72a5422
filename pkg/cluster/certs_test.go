// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/pki"
)

// TestCertificates checks that problems of certificates are reported, and that RenewCertificates
// repairs them.
func TestCertificates(t *testing.T) {
	c := &Config{Name: "one", DataDir: t.TempDir(), Port: 7000, ToolsDir: t.TempDir()}
	d, clk := c.dirs().control(), clock.Real()
	if err := os.Mkdir(c.ToolsDir+"/cni", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writeControlPlane(c, clk), makeNode(c, Node{Name: "n1", Index: 1}, clk)); err != nil {
		t.Fatal(err)
	}
	const authorities, others = 3, 7 + 2 + 3 // others: of the control plane, administrators and a node
	problems := func(at clock.Clock) map[string]string {
		t.Helper()
		list, err := Certificates(c, at)
		if err != nil || len(list) != authorities+others {
			t.Fatalf("%d certificates, %v", len(list), err)
		}
		out := map[string]string{}
		for _, cert := range list {
			if cert.Problem != "" {
				out[cert.File] = cert.Problem
			}
		}
		return out
	}
	if p := problems(clk); len(p) > 0 {
		t.Errorf("new certificates: %v", p)
	}
	later := testclock.NewFakeClock(clk.Now().Add(pki.LeafLife * 3 / 4))
	if p := problems(later); len(p) != others ||
		p["pki/apiserver.crt"] != "it must be renewed" {
		t.Errorf("near their end: %v", p)
	}
	if p := problems(testclock.NewFakeClock(clk.Now().Add(2 * pki.LeafLife))); !strings.Contains(
		p["pki/scheduler.crt"], "expired") {
		t.Errorf("after their end: %v", p)
	}
	if err := RenewCertificates(c, Deps{Clock: later, Log: slog.New(slog.DiscardHandler), Out: io.Discard}); err != nil {
		t.Fatal(err)
	}
	if p := problems(later); len(p) > 0 {
		t.Errorf("renewed: %v", p)
	}
	if err := os.Chmod(d.PKI("apiserver.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.PKI("scheduler.key")); err != nil {
		t.Fatal(err)
	}
	if p := problems(later); len(p) != 2 || p["pki/apiserver.crt"] != "other users may read its key: mode 0644" ||
		p["pki/scheduler.crt"] != "the file of its key is missing" {
		t.Errorf("with bad keys: %v", p)
	}
}
