// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/pki"
	"keelson.dev/keelson/pkg/provision"
)

// line is the connection to the API server. It can fail at a certain request.
type line struct {
	http.RoundTripper
	left   int  // requests until the failure; negative means that there is none
	answer bool // whether the server processes the request, so that only the response is lost
	after  func()
}

var errCut = errors.New("connection lost")

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	defer l.after()
	l.left--
	if l.left != 0 {
		return l.RoundTripper.RoundTrip(r)
	}
	if l.answer {
		if resp, err := l.RoundTripper.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
	}
	return nil, errCut
}

// held is a file as programs hold it in memory: each version that a program may still have.
type held struct {
	path     string
	forever  bool // whether some programs never read the file again
	versions [][]byte
}

func (h *held) look(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(h.path)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(h.versions); n == 0 || !bytes.Equal(h.versions[n-1], data) {
		h.versions = append(h.versions, data)
	}
}

// reload makes all programs have the latest version.
func (h *held) reload() {
	if !h.forever {
		h.versions = h.versions[len(h.versions)-1:]
	}
}

// pair is a use of certificates: programs that present what is in a file, and programs that verify it by
// the authorities in another one.
type pair struct{ presents, trusts *held }

// site is a machine of the model.
type site struct {
	*Machine
	agent *Agent
	files []*held
}

// world is a cluster with a control plane m1 and a worker m2, with the programs that use their
// certificates.
type world struct {
	*testing.T
	api    *testserver.Server
	clk    *testclock.FakeClock
	line   *line
	client kubernetes.Interface
	sites  []*site
	pairs  []pair
}

var nodeNames = []string{"m1", "m2"}

// newWorld makes the world. Its API server has certificates of its own, so that a fault is found by the
// model only.
func newWorld(t *testing.T, api *testserver.Server, clk *testclock.FakeClock, life provision.Lifetimes) *world {
	t.Helper()
	w := &world{T: t, api: api, clk: clk, line: &line{after: func() {}}}
	rc := rest.CopyConfig(api.Config)
	rc.QPS = -1
	rc.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		w.line.RoundTripper = rt
		return w.line
	})
	var err error
	if w.client, err = kubernetes.NewForConfig(rc); err != nil {
		t.Fatal(err)
	}
	w.clean()
	cluster := &provision.Cluster{Name: "c", Domain: "cluster.local", Machines: true, Life: life,
		Families: []provision.Family{{Services: netip.MustParsePrefix("10.96.0.0/16")}}}
	for _, name := range nodeNames {
		root := t.TempDir()
		m := &Machine{Lock: filepath.Join(root, "lock"), request: w.request,
			Node: &provision.Node{Cluster: cluster, Name: name, Addresses: []string{"10.60.0.11"}, Root: root}}
		if name == nodeNames[0] {
			m.Control = &provision.ControlPlane{Cluster: cluster, Dir: provision.Dir(filepath.Join(root, "etc/kubernetes")),
				Local: "127.0.0.1", Advertise: "10.60.0.11", Server: "https://10.60.0.11:6443",
				AdminServer: "https://127.0.0.1:7443"}
			if err := errors.Join(m.Control.IssueCertificates(false, clk), m.Control.WriteKubeconfigs(clk)); err != nil {
				t.Fatal(err)
			}
		}
		m.EtcdFlags = filepath.Join(root, "etcd.env")
		s := &site{Machine: m}
		s.agent = &Agent{Machine: func() (*Machine, error) { return s.Machine, nil }, Client: w.client,
			Clock: clk, Log: slog.New(slog.DiscardHandler),
			Administrator: func() (kubernetes.Interface, error) { return w.client, nil }}
		w.sites = append(w.sites, s)
		w.join(m)
	}
	w.describe()
	w.look()
	return w
}

// clean removes what an earlier world has left in the API.
func (w *world) clean() {
	w.Helper()
	system := metav1.NamespaceSystem
	for _, err := range []error{
		w.api.Client.CoreV1().ConfigMaps(system).Delete(w.Context(), configMap, metav1.DeleteOptions{}),
		w.api.Client.CoreV1().Secrets(system).Delete(w.Context(), keysSecret, metav1.DeleteOptions{}),
		w.api.Client.CoreV1().Nodes().DeleteCollection(w.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			w.Fatal(err)
		}
	}
}

// join makes the Node and the certificates of a node.
func (w *world) join(m *Machine) {
	w.Helper()
	_, err := w.api.Client.CoreV1().Nodes().Create(w.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Node.Name}},
		metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	control := w.sites[0].Control.Dir
	ca, err := os.ReadFile(control.PKI("ca.crt"))
	if err != nil {
		w.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(m.Node.Root, "var/lib/kubelet/pki"), 0o700),
		m.Node.WriteKubeconfigs(ca), m.Node.IssueCertificates(control, true, w.clk)); err != nil {
		w.Fatal(err)
	}
	if err := w.issue("ca", filepath.Join(m.Node.Root, provision.AgentProxyPair)); err != nil {
		w.Fatal(err)
	}
}

// request issues a certificate as the controller manager of m1 does.
func (w *world) request(_ context.Context, _ kubernetes.Interface, path, kind string) error {
	if provision.IsServingPair(kind) {
		return w.issue(provision.ServingAuthority, path)
	}
	return w.issue("ca", path)
}

// issue issues a certificate of a node.
func (w *world) issue(authority, path string) error {
	by, err := pki.ReadAuthority(w.sites[0].Control.Dir.PKI(authority))
	if err != nil {
		return err
	}
	cert, key, err := by.Issue(pki.Leaf{Name: filepath.Base(path), Client: true, Hosts: []string{"host"},
		Life: w.sites[0].Node.Cluster.Life.Leaf}, w.clk)
	if err != nil {
		return err
	}
	if target, err := os.Readlink(path); err == nil {
		path = filepath.Join(filepath.Dir(path), target)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, append(cert, key...), 0o600)
}

// describe lists the programs and the files that they use.
func (w *world) describe() {
	control, all := w.sites[0], map[string]*held{}
	file := func(s *site, path string) *held {
		if all[path] == nil {
			all[path] = &held{path: path}
			s.files = append(s.files, all[path])
		}
		return all[path]
	}
	pki := func(name string) *held { return file(control, control.Control.Dir.PKI(name)) }
	// Pods have read the authorities when they started, and some never read them again.
	pods := &held{path: control.Control.Dir.PKI("ca.crt"), forever: true}
	control.files = append(control.files, pods)
	server, clients := pki("apiserver.crt"), pki("ca.crt")
	w.pairs = []pair{
		{server, pods},
		{pki("controller-manager-client.crt"), clients}, {pki("scheduler-client.crt"), clients},
		{pki("front-proxy-client.crt"), pki("front-proxy-ca.crt")},
	}
	for _, s := range w.sites {
		trusts := file(s, filepath.Join(s.Node.Root, provision.NodeAuthorityFile))
		w.pairs = append(w.pairs, pair{server, trusts}, pair{pki("apiserver-kubelet-client.crt"), trusts})
		for _, f := range s.Node.Cluster.NodeCertificateFiles() {
			verifier := clients
			if provision.IsServingPair(f) {
				verifier = pki(provision.ServingAuthority + ".crt")
			}
			w.pairs = append(w.pairs, pair{file(s, filepath.Join(s.Node.Root, f)), verifier})
		}
	}
}

// look reads all files, and checks that no program refuses what another one presents, whichever of the
// versions each has in memory.
func (w *world) look() {
	w.Helper()
	for _, s := range w.sites {
		for _, f := range s.files {
			f.look(w.T)
		}
	}
	for _, p := range w.pairs {
		for i, presented := range p.presents.versions {
			for j, trusted := range p.trusts.versions {
				if p.trusts.forever && i < len(p.presents.versions)-1 {
					continue // pods of the last generation do not meet a server with an old certificate
				}
				if err := verify(presented, trusted, w.clk.Now()); err != nil && !w.expired(trusted) {
					w.Fatalf("%s, version %d, is refused by %s, version %d: %v", p.presents.path, i, p.trusts.path, j, err)
				}
			}
		}
	}
}

// expired reports whether all authorities of a bundle have expired.
func (w *world) expired(bundle []byte) bool {
	certs, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		w.Fatal(err)
	}
	for _, c := range certs {
		if w.clk.Now().Before(c.NotAfter) {
			return false
		}
	}
	return true
}

// verify verifies a certificate, with those that follow it, by the authorities of a bundle.
func verify(presented, bundle []byte, now time.Time) error {
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("no authorities")
	}
	var first *x509.Certificate
	for block, rest := pem.Decode(presented); block != nil; block, rest = pem.Decode(rest) {
		if !strings.Contains(block.Type, "CERTIFICATE") {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		if first == nil {
			first = c
			continue
		}
		others.AddCert(c)
	}
	_, err := first.Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// agents lets each machine's agent do its work once. Programs read the files again before the agent
// reports.
func (w *world) agents() error {
	m, err := w.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(w.Context(), configMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	wanted, err := parse(m)
	if err != nil {
		return err
	}
	for _, s := range w.sites {
		if err := s.apply(w.Context(), wanted, s.agent.secrets, w.client, w.clk); err != nil {
			return err
		}
		w.look()
		if err := s.agent.step(w.Context(), m); err == nil && s.agent.reported != wanted.hash() {
			w.Fatalf("%s reports nothing", s.Node.Name)
		} else if err != nil && !errors.Is(err, errSettling) {
			return err
		}
	}
	w.clk.Step(settle)
	for _, s := range w.sites {
		for _, f := range s.files {
			f.reload()
		}
		if err := s.agent.step(w.Context(), m); err != nil {
			return err
		}
		w.look()
	}
	return nil
}

// rotation returns a new run of the command.
func (w *world) rotation() *Rotation {
	return &Rotation{Machine: w.sites[0].Machine, Clock: w.clk, Out: w.Output(),
		Client: func() (kubernetes.Interface, error) { return w.client, nil }}
}

// rotate runs the command until it is done. Each time that it fails, the agents do their work, and it is
// run again.
func (w *world) rotate() {
	w.Helper()
	for range 30 {
		err := w.rotation().Run(w.Context())
		w.look()
		if err == nil {
			return
		}
		if !errors.Is(err, errWaiting) && !errors.Is(err, errCut) {
			w.Fatal(err)
		}
		if err := w.agents(); err != nil && !errors.Is(err, errCut) {
			w.Fatal(err)
		}
	}
	w.Fatal("the rotation does not end")
}

// fakeClock returns a clock that begins at the present time, at which files are written.
func fakeClock() *testclock.FakeClock { return testclock.NewFakeClock(time.Now()) }
