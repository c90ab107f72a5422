// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/api/clock"
)

// TestKubeconfigs checks that a cluster's credentials are added to a kubeconfig and removed from
// it, and that other entries of the file do not change.
func TestKubeconfigs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "person", "config")
	for _, name := range []string{"one", "two"} {
		p, _ := machine(t.TempDir())
		p.Cluster.Name = name
		if err := errors.Join(p.IssueCertificates(false, clock.Real()), p.WriteKubeconfigs(clock.Real())); err != nil {
			t.Fatal(err)
		}
		if err := MergeKubeconfig(p.Dir.Kubeconfig("admin"), file); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Contexts) != 2 || len(cfg.Clusters) != 2 || len(cfg.AuthInfos) != 2 || cfg.CurrentContext != "two" {
		t.Errorf("merged: %d contexts, %d clusters, %d users, current %q", len(cfg.Contexts), len(cfg.Clusters),
			len(cfg.AuthInfos), cfg.CurrentContext)
	}
	if err := UnmergeKubeconfig("two", file); err != nil {
		t.Fatal(err)
	}
	if cfg, err = clientcmd.LoadFromFile(file); err != nil || len(cfg.Contexts) != 1 ||
		cfg.Contexts["one"] == nil || cfg.CurrentContext != "" {
		t.Errorf("one is left: %+v, error %v", cfg, err)
	}
	if err := UnmergeKubeconfig("one", file); err != nil || exists(file) {
		t.Errorf("the empty file stays, error %v", err)
	}
}

// TestServers checks at which address each user of a machine reaches the API server, and which
// credentials the user has.
func TestServers(t *testing.T) {
	p, n := machine(t.TempDir())
	if err := errors.Join(p.IssueCertificates(false, clock.Real()), p.WriteKubeconfigs(clock.Real())); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(p.Dir.PKI("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.WriteKubeconfigs(ca); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]struct{ server, user, certificate, authority string }{
		p.Dir.Kubeconfig(ControllerManager): {p.Server, "controller-manager@prod",
			p.Dir.PKI("controller-manager-client.crt"), p.Dir.PKI("ca.crt")},
		p.Dir.Kubeconfig(Scheduler):     {p.Server, "scheduler@prod", p.Dir.PKI("scheduler-client.crt"), p.Dir.PKI("ca.crt")},
		p.Dir.Kubeconfig("admin"):       {p.AdminServer, "kubernetes-admin@prod", "", ""},
		p.Dir.Kubeconfig("super-admin"): {p.AdminServer, "kubernetes-super-admin@prod", "", ""},
		n.path(KubeletKubeconfig): {n.Server, "system:node:m1@prod",
			"/var/lib/kubelet/pki/kubelet-client-current.pem", nodeCA},
		n.path(proxyConf): {n.Server, "system:kube-proxy:m1@prod", "/var/lib/kube-proxy/client.crt", nodeCA},
	} {
		cfg, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		user := cfg.AuthInfos[want.user]
		if user == nil || cfg.Contexts[cfg.CurrentContext].AuthInfo != want.user ||
			user.ClientCertificate != want.certificate || (len(user.ClientCertificateData) > 0) != (want.certificate == "") {
			t.Errorf("%s: users %v", file, cfg.AuthInfos)
		}
		server := cfg.Clusters["prod"]
		if server == nil || server.Server != want.server {
			t.Fatalf("%s: clusters %v", file, cfg.Clusters)
		}
		// Programs read the authorities from a file, which they reload. Administrators can copy their
		// kubeconfig to another computer, so it has all authorities.
		if server.CertificateAuthority != want.authority ||
			bytes.Equal(server.CertificateAuthorityData, ca) != (want.authority == "") {
			t.Errorf("%s: authority in %q and %q", file, server.CertificateAuthority, server.CertificateAuthorityData)
		}
	}
}
