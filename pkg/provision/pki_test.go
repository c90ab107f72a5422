// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/pki"
)

// TestPKI checks that certificates are created only once, and that they are valid for their
// purpose.
func TestPKI(t *testing.T) {
	p, _ := machine(t.TempDir())
	if err := p.IssueCertificates(false, clock.Real()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(p.Dir.PKI("apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.IssueCertificates(false, clock.Real()); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(p.Dir.PKI("apiserver.crt"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a second time makes another certificate; error %v", err)
	}
	ca, err := os.ReadFile(p.Dir.PKI("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	cert, err := pki.ReadCertificate(p.Dir.PKI("apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"kubernetes.default.svc", "kubernetes.default.svc.example.internal", "127.0.0.1", "::1",
		"10.30.0.1", "fd30::1", "m1", "10.60.0.11"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	manager, err := pki.ReadCertificate(p.Dir.PKI("scheduler.crt"))
	if err != nil || manager.VerifyHostname("127.0.0.1") != nil {
		t.Errorf("scheduler: %v, error %v", manager, err)
	}
	for _, key := range []string{"ca.key", "apiserver.key", "sa.key"} {
		info, err := os.Stat(p.Dir.PKI(key))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, error %v", key, info, err)
		}
	}
}

// TestCertificatesOfProxies checks that the certificate of each node's proxy has a subject with the
// node's name, even if an older version had issued a certificate with one subject for all nodes.
func TestCertificatesOfProxies(t *testing.T) {
	p, n1 := machine(t.TempDir())
	n2, clk := &Node{Cluster: n1.Cluster, Name: "m2", Root: t.TempDir(), Joins: true}, clock.Real()
	if err := errors.Join(p.IssueCertificates(false, clk), n1.IssueCertificates(p.Dir, false, clk),
		n2.IssueCertificates(p.Dir, false, clk)); err != nil {
		t.Fatal(err)
	}
	named := func(n *Node) []byte {
		t.Helper()
		file := n.path(ProxyCertificate + ".crt")
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
	before := named(n1)
	named(n2)
	signer, err := pki.ReadAuthority(p.Dir.PKI("ca"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*Node{n1, n2} {
		if err := n.IssueCertificates(p.Dir, false, clk); err != nil {
			t.Fatal(err)
		}
		if n == n1 && !bytes.Equal(named(n), before) {
			t.Error("the certificate was renewed before it was due")
		}
		if err := signer.IssueTo(n.path(ProxyCertificate+".crt"), n.path(ProxyCertificate+".key"),
			pki.Leaf{Name: "system:kube-proxy", Client: true}, clk); err != nil {
			t.Fatal(err)
		}
		if err := n.IssueCertificates(p.Dir, false, clk); err != nil {
			t.Fatal(err)
		}
		named(n)
	}
}

// TestKubeletAuthority checks that a separate authority signs the serving certificates of kubelets.
// A cluster that was created without that authority must get it at its next start.
func TestKubeletAuthority(t *testing.T) {
	root := t.TempDir()
	p, n := machine(root)
	clk := clock.Real()
	issue := func(force bool) {
		t.Helper()
		if err := errors.Join(p.IssueCertificates(force, clk), n.IssueCertificates(p.Dir, force, clk)); err != nil {
			t.Fatal(err)
		}
	}
	signedBy := func(step, authority string) {
		t.Helper()
		for _, name := range []string{"ca", ServingAuthority} {
			by, err := pki.ReadCertificate(p.Dir.PKI(name + ".crt"))
			if errors.Is(err, os.ErrNotExist) && name != authority {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			cert, err := pki.ReadCertificate(follow(root, currentPair(kubeletServer)))
			if err != nil {
				t.Fatal(err)
			}
			if got := cert.CheckSignatureFrom(by) == nil; got != (name == authority) {
				t.Errorf("%s: signed by %s: %t", step, name, got)
			}
		}
		for _, file := range n.Cluster.NodeCertificateFiles() {
			if cert := p.Trust().Check(root, file, clk.Now()); cert.Problem != "" {
				t.Errorf("%s: %s: %s", step, cert.File, cert.Problem)
			}
		}
	}
	issue(false)
	signedBy("new", ServingAuthority)

	// Make the files like those of an older version, which had one authority for all certificates:
	// remove the separate authority.
	if err := errors.Join(os.Remove(p.Dir.PKI(ServingAuthority+".crt")),
		os.Remove(p.Dir.PKI(ServingAuthority+".key"))); err != nil {
		t.Fatal(err)
	}
	issue(true)
	signedBy("renewed while an older version runs", "ca")
	issue(false)
	signedBy("restarted", ServingAuthority)
	issue(true)
	signedBy("renewed", ServingAuthority)
}

// TestEtcdCertificates checks that only etcd's own authority signs etcd's certificates, that other
// members accept a member's certificate, and that a control plane without a separate etcd has none.
func TestEtcdCertificates(t *testing.T) {
	p, _ := machine(t.TempDir())
	if err := p.IssueCertificates(false, clock.Real()); err != nil {
		t.Fatal(err)
	}
	if exists(p.Dir.PKI("apiserver-etcd-client.crt")) {
		t.Error("a certificate for an etcd that does not exist")
	}
	p.EtcdFiles, p.Hosts.Etcd = KubeadmEtcdFiles(), []string{"10.60.0.11", "127.0.0.1"}
	if err := p.IssueCertificates(false, clock.Real()); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ReadCertificate(p.Dir.PKI("etcd/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for file, host := range map[string]string{"etcd/server": "127.0.0.1", "etcd/peer": "10.60.0.11",
		"apiserver-etcd-client": ""} {
		cert, err := pki.ReadCertificate(p.Dir.PKI(file + ".crt"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	files, _, err := p.Dir.CertificateFiles()
	if err != nil || !slices.Contains(files, p.Dir.PKI("etcd/peer.crt")) {
		t.Errorf("files %q, %v", files, err)
	}
}

// TestCheckServingCertificate checks that a kubelet's serving certificate of another authority than
// that of kubelets is a problem, because the API server does not trust it.
func TestCheckServingCertificate(t *testing.T) {
	p, n := machine(t.TempDir())
	clk := clock.Real()
	if err := p.IssueCertificates(false, clk); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]bool{ServingAuthority: false, "ca": true} {
		by, err := pki.ReadAuthority(p.Dir.PKI(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.issuePair(by, kubeletServer, clk); err != nil {
			t.Fatal(err)
		}
		cert := p.Trust().Check(n.Root, currentPair(kubeletServer), clk.Now())
		if (cert.Problem != "") != bad {
			t.Errorf("signed by %s: problem %q", name, cert.Problem)
		}
	}
}

// TestJoiningNode checks that a node that joins with a token gets no credentials for its kubelet,
// because the kubelet requests them.
func TestJoiningNode(t *testing.T) {
	p, n := machine(t.TempDir())
	n.Joins = true
	if err := errors.Join(p.IssueCertificates(false, clock.Real()), n.IssueCertificates(p.Dir, true, clock.Real()),
		n.WriteKubeconfigs([]byte("authority"))); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{
		currentPair(kubeletClient): false, currentPair(kubeletServer): false, KubeletKubeconfig: false, proxyConf: true,
		ProxyCertificate + ".crt": true, nodeCA: true,
	} {
		if got := exists(n.path(file)); got != want {
			t.Errorf("%s exists: %t, want %t", file, got, want)
		}
	}
}

// TestProxyOfMachine checks that a machine's proxy uses the certificate that the machine's agent
// requests, and that no other one is issued.
func TestProxyOfMachine(t *testing.T) {
	p, n := machine(t.TempDir())
	n.Cluster.Machines = true
	if err := errors.Join(p.IssueCertificates(false, clock.Real()), n.IssueCertificates(p.Dir, true, clock.Real()),
		n.WriteKubeconfigs([]byte("authority"))); err != nil {
		t.Fatal(err)
	}
	if exists(n.path(ProxyCertificate + ".crt")) {
		t.Error("a certificate was issued")
	}
	cfg, err := clientcmd.LoadFromFile(n.path(proxyConf))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range cfg.AuthInfos {
		if user.ClientCertificate != AgentProxyPair || user.ClientKey != AgentProxyPair {
			t.Errorf("certificate %s, key %s", user.ClientCertificate, user.ClientKey)
		}
	}
}

// TestServerPresentsAuthority checks that the API server presents its authority, whose hash is all
// that a machine knows about the cluster that it joins.
func TestServerPresentsAuthority(t *testing.T) {
	p, _ := machine(t.TempDir())
	if err := p.IssueCertificates(false, clock.Real()); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(p.Dir.PKI("apiserver.crt"), p.Dir.PKI("apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ReadCertificate(p.Dir.PKI("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(pair.Certificate) != 2 || !bytes.Equal(pair.Certificate[1], ca.Raw) {
		t.Errorf("the server presents %d certificates", len(pair.Certificate))
	}
}
