// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/pki"
)

// contents returns the contents of all files below a directory by path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRenew checks that certificates are renewed when a third of their lifetime is left, those in
// kubeconfig files included, and that authorities and keys of service accounts stay.
func TestRenew(t *testing.T) {
	root := t.TempDir()
	p, _ := machine(root)
	clk := testclock.NewFakeClock(time.Now())
	if err := errors.Join(p.IssueCertificates(false, clk), p.WriteKubeconfigs(clk)); err != nil {
		t.Fatal(err)
	}
	before := contents(t, root)
	clk.Step(pki.LeafLife / 2)
	if err := p.Renew(clk); err != nil {
		t.Fatal(err)
	}
	for file, was := range before {
		if now := contents(t, root)[file]; now != was {
			t.Errorf("%s was written too early", file)
		}
	}
	clk.Step(pki.LeafLife / 4)
	if err := p.Renew(clk); err != nil {
		t.Fatal(err)
	}
	after := contents(t, root)
	kept := map[string]bool{p.Dir.Kubeconfig(Scheduler): true, p.Dir.Kubeconfig(ControllerManager): true}
	for _, name := range []string{"ca", "front-proxy-ca", ServingAuthority} {
		kept[p.Dir.PKI(name+".crt")], kept[p.Dir.PKI(name+".key")] = true, true
	}
	kept[p.Dir.PKI("sa.key")], kept[p.Dir.PKI("sa.pub")] = true, true
	for file, was := range before {
		if (after[file] == was) != kept[file] {
			t.Errorf("%s is the same: %t, want %t", file, after[file] == was, kept[file])
		}
	}
	for _, file := range []string{p.Dir.PKI("apiserver.crt"), p.Dir.Kubeconfig("admin")} {
		if got := p.Trust().Check("", file, clk.Now()); got.Problem != "" {
			t.Errorf("%s: %s", file, got.Problem)
		}
	}
}

// TestRenewWithoutAuthority checks that a missing authority is not replaced by a new one, whose
// certificates nobody would trust.
func TestRenewWithoutAuthority(t *testing.T) {
	root := t.TempDir()
	p, _ := machine(root)
	clk := testclock.NewFakeClock(time.Now())
	if err := errors.Join(p.IssueCertificates(false, clk), p.WriteKubeconfigs(clk),
		os.Remove(p.Dir.PKI("ca.key"))); err != nil {
		t.Fatal(err)
	}
	before := contents(t, root)
	clk.Step(pki.LeafLife)
	if err := p.Renew(clk); err == nil {
		t.Error("no error")
	}
	after := contents(t, root)
	if len(after) != len(before) {
		t.Errorf("%d files, want %d", len(after), len(before))
	}
	for file, was := range before {
		if after[file] != was {
			t.Errorf("%s was written", file)
		}
	}
}
