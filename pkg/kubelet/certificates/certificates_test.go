// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/certificates"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

const (
	tokenID, tokenSecret = "abcdef", "0123456789abcdef"
	joiners              = "system:bootstrappers:joiners"
)

// slow is a clock that is behind the real time by a fixed duration.
type slow struct {
	clock.Clock
	by time.Duration
}

func (s slow) Now() time.Time { return s.Clock.Now().Add(-s.by) }

// cluster starts an API server with a controller that issues the certificates that kubelets
// request. The certificates are valid for the duration life. Their validity began in the past, by the
// duration ago.
func cluster(t *testing.T, life, ago time.Duration) *testserver.Server {
	s := testserver.Start(t, testserver.Options{})
	ca, err := os.ReadFile(filepath.Join(s.Dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(s.Dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for role, group := range map[string]string{
		"system:node-bootstrapper": joiners, "system:certificates.k8s.io:certificatesigningrequests:nodeclient": joiners,
		"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": "system:nodes",
	} {
		if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "join-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: group}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Client.CoreV1().Secrets("kube-system").Create(ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + tokenID}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{"token-id": tokenID, "token-secret": tokenSecret,
			"usage-bootstrap-authentication": "true", "auth-extra-groups": joiners},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Run(t, s, controller.Options{Workers: 1, SigningCert: ca, SigningKey: key,
		SigningDuration: life, ApproveServing: true},
		certificates.NewApproving, func(d controller.Deps) (controller.Controller, error) {
			d.Clock = slow{d.Clock, ago}
			return certificates.NewSigning(d)
		})
	return s
}

// writeBootstrap writes a bootstrap kubeconfig with the join token and returns its path.
func writeBootstrap(t *testing.T, s *testserver.Server, dir string) string {
	t.Helper()
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: s.Config.CAData}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: tokenID + "." + tokenSecret}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	out.CurrentContext = "x"
	file := filepath.Join(dir, "bootstrap.conf")
	if err := clientcmd.WriteToFile(*out, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestJoin checks that a kubelet that has only a join token obtains a client certificate, with
// which it can register its own node but no other node, and then a serving certificate.
func TestJoin(t *testing.T) {
	s := cluster(t, time.Hour, 0)
	dir := t.TempDir()
	bootstrap, kubeconfig := writeBootstrap(t, s, dir), filepath.Join(dir, "etc", "kubelet.conf")
	c := Config{NodeName: "n1", Dir: filepath.Join(dir, "pki"), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
	if err := Bootstrap(t.Context(), c, kubeconfig, bootstrap); err != nil {
		t.Fatal(err)
	}
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if rc.CertFile != ClientFile(c.Dir) || rc.BearerToken != "" {
		t.Errorf("kubeconfig with %q and token %q", rc.CertFile, rc.BearerToken)
	}
	info, err := os.Stat(rc.CertFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v %v", info, err)
	}
	client := kubernetes.NewForConfigOrDie(rc)
	node, err := client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal("the node with its certificate: ", err)
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{}); err == nil {
		t.Error("the node makes another")
	}
	// Bootstrap requests no certificate if one exists, so the second call works without the token.
	if err := s.Client.CoreV1().Secrets("kube-system").Delete(t.Context(), "bootstrap-token-"+tokenID,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Bootstrap(t.Context(), c, kubeconfig, bootstrap); err != nil {
		t.Error("a second time: ", err)
	}
	node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"}}
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Metrics = prometheus.NewRegistry()
	m, err := NewServer(c, client, []string{"n1"}, []net.IP{net.ParseIP("192.0.2.7")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get(nil); err == nil {
		t.Error("a serving certificate exists before it was requested")
	}
	run(t, m)
	controllertest.Eventually(t, "serving certificate", func(context.Context) (any, bool) {
		cert, err := m.Get(nil)
		return err, err == nil && cert.Leaf.VerifyHostname("192.0.2.7") == nil && cert.Leaf.VerifyHostname("n1") == nil
	})
}

// TestRotation checks that a kubelet renews its client and serving certificates. They must be
// renewed immediately, because 10 of the 11 hours of their validity have passed. The kubeconfig
// does not change, and the server presents the renewed certificate without a restart.
func TestRotation(t *testing.T) {
	s := cluster(t, 11*time.Hour, 10*time.Hour)
	dir := t.TempDir()
	bootstrap, kubeconfig := writeBootstrap(t, s, dir), filepath.Join(dir, "kubelet.conf")
	c := Config{NodeName: "n1", Dir: filepath.Join(dir, "pki"), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
	if err := Bootstrap(t.Context(), c, kubeconfig, bootstrap); err != nil {
		t.Fatal(err)
	}
	// Delete the join token, because renewals must work without it.
	if err := s.Client.CoreV1().Secrets("kube-system").Delete(t.Context(), "bootstrap-token-"+tokenID,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	first, err := tls.LoadX509KeyPair(ClientFile(c.Dir), ClientFile(c.Dir))
	if err != nil {
		t.Fatal(err)
	}
	with := func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	clients, err := NewClient(c, with)
	if err != nil {
		t.Fatal(err)
	}
	run(t, clients)
	controllertest.Eventually(t, "the next client certificate", func(context.Context) (any, bool) {
		now, err := tls.LoadX509KeyPair(ClientFile(c.Dir), ClientFile(c.Dir))
		if err != nil {
			return err, false
		}
		return now.Leaf.SerialNumber, now.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) != 0 &&
			now.Leaf.Subject.CommonName == "system:node:n1"
	})
	rc, err := with()
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(rc)
	node, err := client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal("the node with its next certificate: ", err)
	}
	node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"}}
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	c.Metrics = registry
	m, err := NewServer(c, client, []string{"n1"}, []net.IP{net.ParseIP("192.0.2.7")})
	if err != nil {
		t.Fatal(err)
	}
	run(t, m)
	var serial *big.Int
	controllertest.Eventually(t, "the next serving certificate", func(context.Context) (any, bool) {
		cert, err := m.Get(nil)
		if err != nil {
			return err, false
		}
		if serial == nil {
			serial = cert.Leaf.SerialNumber
		}
		return cert.Leaf.SerialNumber, cert.Leaf.SerialNumber.Cmp(serial) != 0
	})
	controllertest.Eventually(t, "the metric of the replaced serving certificate", func(context.Context) (any, bool) {
		got := rotations(t, registry) // each replaced certificate was valid for 10 hours: more than 4 hours, less than a day
		return got, got.GetSampleCount() > 0 && got.GetBucket()[2].GetCumulativeCount() == 0 &&
			got.GetBucket()[3].GetCumulativeCount() == got.GetSampleCount()
	})
	requests, err := s.Client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]int{}
	for _, r := range requests.Items {
		by[r.Spec.SignerName+" for "+r.Spec.Username]++
	}
	if by["kubernetes.io/kube-apiserver-client-kubelet for system:bootstrap:"+tokenID] != 1 ||
		by["kubernetes.io/kube-apiserver-client-kubelet for system:node:n1"] < 1 ||
		by["kubernetes.io/kubelet-serving for system:node:n1"] < 2 {
		t.Errorf("requests: %v", by)
	}
}

// rotations returns the metric of the ages of replaced serving certificates.
func rotations(t *testing.T, r prometheus.Gatherer) *dto.Histogram {
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubelet_certificate_manager_server_rotation_seconds" {
			return f.GetMetric()[0].GetHistogram()
		}
	}
	t.Fatal("the metric of the ages of certificates does not exist")
	return nil
}

func run(t *testing.T, m *Manager) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		m.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// TestUsable checks which kubeconfigs are usable: those with a valid certificate or a token, but
// not those with an expired or missing certificate.
func TestUsable(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	dir := t.TempDir()
	write := func(user *clientcmdapi.AuthInfo) string {
		cfg := clientcmdapi.NewConfig()
		cfg.Clusters["c"], cfg.AuthInfos["u"] = &clientcmdapi.Cluster{Server: s.URL}, user
		cfg.Contexts["x"], cfg.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
		file := filepath.Join(dir, "kubeconfig")
		if err := clientcmd.WriteToFile(*cfg, file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	rc := s.UserConfig(t, "system:node:n1", "system:nodes")
	block, _ := pem.Decode(rc.CertData)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	file := write(&clientcmdapi.AuthInfo{ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData})
	if !usable(file, cert.NotAfter.Add(-time.Minute)) || usable(file, cert.NotAfter.Add(time.Minute)) {
		t.Error("an expired certificate is accepted, or a valid one is rejected")
	}
	if file := write(&clientcmdapi.AuthInfo{ClientCertificate: filepath.Join(dir, "none"),
		ClientKey: filepath.Join(dir, "none")}); usable(file, cert.NotBefore) {
		t.Error("missing files are accepted")
	}
	if file := write(&clientcmdapi.AuthInfo{Token: "t"}); !usable(file, cert.NotBefore) {
		t.Error("a token is rejected")
	}
	if usable(filepath.Join(dir, strings.Repeat("x", 9)), cert.NotBefore) {
		t.Error("a missing kubeconfig is accepted")
	}
}

// fixedManager is a certificate manager whose certificate never changes.
type fixedManager struct{ cert *tls.Certificate }

func (a fixedManager) Current() *tls.Certificate { return a.cert }
func (fixedManager) Start()                      {}
func (fixedManager) Stop()                       {}
func (fixedManager) ServerHealthy() bool         { return true }

// TestRenewedByOthers checks that the server presents a certificate that another program has
// written to the kubelet's certificate file, without a restart, and that an incomplete file is
// ignored.
func TestRenewedByOthers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		clk := clock.Real()
		file := currentFile(dir, serverStore)
		put := func(life time.Duration) *big.Int {
			t.Helper()
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			template := &x509.Certificate{
				SerialNumber: big.NewInt(clk.Now().UnixNano()), NotBefore: clk.Now().Add(-time.Hour),
				NotAfter: clk.Now().Add(life),
			}
			der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			private, err := x509.MarshalPKCS8PrivateKey(key)
			if err != nil {
				t.Fatal(err)
			}
			pair := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
				pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
			if err := os.WriteFile(file, pair, 0o600); err != nil {
				t.Fatal(err)
			}
			return template.SerialNumber
		}
		const year = 365 * 24 * time.Hour
		first := put(year)
		own, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			t.Fatal(err)
		}
		m := &Manager{inner: fixedManager{&own}, file: file, clock: clk}
		presents := func(when string, want *big.Int) {
			t.Helper()
			cert, err := m.Get(nil)
			if err != nil {
				t.Fatal(err)
			}
			if cert.Leaf.SerialNumber.Cmp(want) != 0 {
				t.Errorf("%s: presents number %v, want %v", when, cert.Leaf.SerialNumber, want)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.Run(ctx)
		}()
		clk.Sleep(reread * 3 / 2)
		presents("at first", first)
		second := put(year)
		clk.Sleep(reread)
		presents("renewed", second)
		second = put(time.Hour)
		clk.Sleep(reread)
		presents("renewed for a shorter time", second)
		if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		clk.Sleep(reread)
		presents("with half a file", second)
		stop()
		<-done
	})
}
