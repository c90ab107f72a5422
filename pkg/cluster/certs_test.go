// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/pki"
)

// TestCertificates checks that problems of certificates are reported, and that RenewCertificates
// repairs them.
func TestCertificates(t *testing.T) {
	c := &Config{Name: "one", DataDir: t.TempDir(), Port: 7000, ToolsDir: t.TempDir()}
	d, clk := c.dirs(), clock.Real()
	if err := os.Mkdir(c.ToolsDir+"/cni", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(makePKI(c, clk), makeKubeconfigs(d, c, clk),
		makeNode(c, Node{Name: "n1", Index: 1}, clk)); err != nil {
		t.Fatal(err)
	}
	problems := func(at clock.Clock) map[string]string {
		t.Helper()
		list, err := Certificates(c, at)
		if err != nil || len(list) != 3+len(controlCertificates(c))+len(administrators)+3 {
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
	if p := problems(later); len(p) != len(controlCertificates(c))+len(administrators)+3 ||
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
	if err := os.Chmod(d.pki("apiserver.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.pki("scheduler.key")); err != nil {
		t.Fatal(err)
	}
	if p := problems(later); len(p) != 2 || p["pki/apiserver.crt"] != "other users may read its key: mode 0644" ||
		p["pki/scheduler.crt"] != "the file of its key is missing" {
		t.Errorf("with bad keys: %v", p)
	}
}

// TestCertificatesOfProxies checks that the certificate of each node's proxy has a subject with the
// node's name, even if an older version had issued a certificate with one subject for all nodes.
func TestCertificatesOfProxies(t *testing.T) {
	c := &Config{Name: "one", DataDir: t.TempDir(), Port: 7000, ToolsDir: t.TempDir()}
	d, clk := c.dirs(), clock.Real()
	nodes := []Node{{Name: "n1", Index: 1}, {Name: "n2", Index: 2, Joins: true}}
	if err := errors.Join(os.Mkdir(c.ToolsDir+"/cni", 0o700), makePKI(c, clk), makeNode(c, nodes[0], clk),
		makeNode(c, nodes[1], clk)); err != nil {
		t.Fatal(err)
	}
	named := func(n Node) []byte {
		t.Helper()
		file := d.node(n.Name).path(proxyPair + ".crt")
		cert, err := pki.ReadCertificate(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := cert.Subject; got.CommonName != "system:kube-proxy:"+n.Name || len(got.Organization) != 1 ||
			got.Organization[0] != "keelson:proxies" {
			t.Errorf("the proxy of %s is %v", n.Name, got)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	before := named(nodes[0])
	named(nodes[1])
	signer, err := pki.ReadAuthority(d.pki("ca"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		nd := d.node(n.Name)
		if err := renewNode(d, nd, n, clk, false); err != nil {
			t.Fatal(err)
		}
		if n.Index == 1 && !bytes.Equal(named(n), before) {
			t.Error("the certificate was renewed before it was due")
		}
		if err := signer.IssueTo(nd.path(proxyPair+".crt"), nd.path(proxyPair+".key"),
			pki.Leaf{Name: "system:kube-proxy", Client: true}, clk); err != nil {
			t.Fatal(err)
		}
		if err := renewNode(d, nd, n, clk, false); err != nil {
			t.Fatal(err)
		}
		named(n)
	}
}

// TestHardenedAPIServer checks that the API server accepts the hardening flags, and that they have
// the effects that the documentation describes.
func TestHardenedAPIServer(t *testing.T) {
	c := &Config{Name: "one", DataDir: t.TempDir(), BinDir: "/bin"}
	cfg, err := config.Parse(apiserverArgs(c, c.replicas()[0]), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.AnonymousAuth || cfg.Profiling || cfg.ExtendTokenExpiration || !cfg.ServiceAccountLookup {
		t.Errorf("anonymous %t, profiling %t, long tokens %t, look-up %t", cfg.AnonymousAuth, cfg.Profiling,
			cfg.ExtendTokenExpiration, cfg.ServiceAccountLookup)
	}
	for _, name := range []string{"NodeRestriction", "NodeOwnership", "DenyServiceExternalIPs", "EndpointOwnership"} {
		if !slices.Contains(cfg.EnableAdmission, name) {
			t.Errorf("admission plugin %s is not on", name)
		}
	}
	if !slices.Equal(cfg.AuthorizationModes, []string{config.ModeNode, config.ModeRBAC}) {
		t.Errorf("authorization %v", cfg.AuthorizationModes)
	}
	policy, err := cfg.Transport.Outbound()
	if err != nil || !policy.Restricts() {
		t.Errorf("outbound policy %v, %v", policy, err)
	}
	if cfg.Audit.PolicyFile == "" || cfg.Audit.Log.Path == "" || cfg.Audit.Log.MaxAge < 30 {
		t.Errorf("audit %+v", cfg.Audit)
	}
}

// TestLetters checks that random tokens consist of lowercase letters and digits.
func TestLetters(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s, err := letters(16)
		if err != nil || len(s) != 16 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || seen[s] {
			t.Fatalf("%q, %v", s, err)
		}
		seen[s] = true
	}
}

// TestKubeletAuthority checks that a separate authority signs the serving certificates of kubelets.
// A cluster that was created without that authority must get it at its next start.
func TestKubeletAuthority(t *testing.T) {
	c := &Config{Name: "one", DataDir: t.TempDir(), Port: 7000, ToolsDir: t.TempDir()}
	d, clk := c.dirs(), clock.Real()
	if err := os.Mkdir(c.ToolsDir+"/cni", 0o700); err != nil {
		t.Fatal(err)
	}
	start := func() {
		t.Helper()
		if err := errors.Join(makePKI(c, clk), makeKubeconfigs(d, c, clk),
			makeNode(c, Node{Name: "n1", Index: 1}, clk)); err != nil {
			t.Fatal(err)
		}
	}
	signedBy := func(step, authority string) {
		t.Helper()
		for _, name := range []string{"ca", kubeletAuthority} {
			by, err := pki.ReadCertificate(d.pki(name + ".crt"))
			if errors.Is(err, os.ErrNotExist) && name != authority {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			cert, err := pki.ReadCertificate(d.node("n1").follow(currentPair(kubeletServer)))
			if err != nil {
				t.Fatal(err)
			}
			if got := cert.CheckSignatureFrom(by) == nil; got != (name == authority) {
				t.Errorf("%s: signed by %s: %t", step, name, got)
			}
		}
		list, err := Certificates(c, clk)
		if err != nil {
			t.Fatal(err)
		}
		for _, cert := range list {
			if cert.Problem != "" {
				t.Errorf("%s: %s: %s", step, cert.File, cert.Problem)
			}
		}
	}
	start()
	signedBy("new", kubeletAuthority)
	deps := Deps{Clock: clk, Log: slog.New(slog.DiscardHandler), Out: io.Discard}

	// Make the files like those of an older version, which had one authority for all certificates:
	// remove the separate authority.
	if err := errors.Join(os.Remove(d.pki(kubeletAuthority+".crt")),
		os.Remove(d.pki(kubeletAuthority+".key"))); err != nil {
		t.Fatal(err)
	}
	if err := RenewCertificates(c, deps); err != nil {
		t.Fatal(err)
	}
	signedBy("renewed while an older version runs", "ca")
	start()
	signedBy("restarted", kubeletAuthority)
	if err := RenewCertificates(c, deps); err != nil {
		t.Fatal(err)
	}
	signedBy("renewed", kubeletAuthority)
}
