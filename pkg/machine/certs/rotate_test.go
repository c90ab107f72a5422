// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/pki"
	"keelson.dev/keelson/pkg/provision"
)

// replaced checks that a new authority signs for all, that only it is trusted, and that it is of the
// given generation.
func (w *world) replaced(generation int, old []byte) {
	w.Helper()
	m := w.sites[0].Machine
	s, err := m.present()
	if err != nil {
		w.Fatal(err)
	}
	for name, g := range s {
		if suffix := fmt.Sprintf("-%d", generation); len(g.bundle) != 1 || !strings.HasSuffix(g.signer.Subject.CommonName,
			suffix) {
			w.Errorf("%s: %d authorities, %s signs", name, len(g.bundle), g.signer.Subject)
		}
	}
	bundle, err := os.ReadFile(m.Control.Dir.PKI("ca.crt"))
	if err != nil {
		w.Fatal(err)
	}
	if err := verify(old, bundle, w.clk.Now()); err == nil {
		w.Error("a certificate of the old authority is accepted")
	}
	if secret, err := readSecret(w.Context(), w.client); err != nil || secret != nil {
		w.Errorf("keys remain in the cluster: %v, %v", secret, err)
	}
	for _, site := range w.sites {
		list, err := site.List(w.clk.Now())
		if err != nil {
			w.Fatal(err)
		}
		for _, c := range list {
			if c.Problem != "" {
				w.Errorf("%s: %s", c.File, c.Problem)
			}
		}
	}
}

// read returns the content of the controller manager's client certificate.
func (w *world) read() []byte {
	w.Helper()
	data, err := os.ReadFile(w.sites[0].Control.Dir.PKI("controller-manager-client.crt"))
	if err != nil {
		w.Fatal(err)
	}
	return data
}

// TestRotate replaces the authorities, and interrupts the command and the agents at each request that
// they send, before and after the server has processed it. At no time is anything refused.
func TestRotate(t *testing.T) {
	api := testserver.Start(t, testserver.Options{})
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for _, answer := range []bool{false, true} {
		for at := 1; ; at += stride {
			interrupted := false
			if !t.Run(fmt.Sprintf("request %d, processed %t", at, answer), func(t *testing.T) {
				w := newWorld(t, api, fakeClock(), provision.Lifetimes{})
				old := w.read()
				w.line.left, w.line.answer, w.line.after = at, answer, w.look
				w.rotate()
				interrupted = w.line.left <= 0
				w.line.left = -1
				w.replaced(2, old)
			}) {
				return
			}
			if !interrupted {
				break
			}
		}
	}
}

// TestGenerations replaces the authorities ten times, while certificates and authorities expire.
func TestGenerations(t *testing.T) {
	clk := fakeClock()
	w := newWorld(t, testserver.Start(t, testserver.Options{}), clk,
		provision.Lifetimes{Leaf: 6 * time.Minute, Authority: 20 * time.Minute})
	w.line.left = -1
	for generation := 2; generation <= 10; generation++ {
		for range 3 { // the certificates are renewed several times in each generation
			clk.Step(2 * time.Minute)
			for _, s := range w.sites {
				if err := s.Renew(clk); err != nil {
					t.Fatal(err)
				}
				err := s.requestNode(t.Context(), nil, func(file string) bool {
					cert, err := pki.ReadCertificate(file)
					return err == nil && !pki.Due(cert, clk.Now())
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range s.files {
					f.look(t)
					f.reload()
				}
			}
			w.look()
		}
		old := w.read()
		w.rotate()
		w.replaced(generation, old)
	}
}

// TestKeepOld checks that a rotation can stop before it forgets, and continue later.
func TestKeepOld(t *testing.T) {
	w := newWorld(t, testserver.Start(t, testserver.Options{}), fakeClock(), provision.Lifetimes{})
	old := w.read()
	w.rotateKeepingOld()
	bundle, err := os.ReadFile(w.sites[0].Control.Dir.PKI("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, presented := range map[string][]byte{"old": old, "new": w.read()} {
		if err := verify(presented, bundle, w.clk.Now()); err != nil {
			t.Errorf("%s certificate: %v", name, err)
		}
	}
	if bytes.Equal(old, w.read()) {
		t.Error("the certificate was not issued again")
	}
	w.rotate()
	w.replaced(2, old)
}

// etcdAuthority is the name of the authority of a separate etcd.
var etcdAuthority = provision.KubeadmEtcdFiles().Authority

// separate gives m1 an etcd with an authority, as the first invitation of a control plane does.
func (w *world) separate() {
	w.Helper()
	w.setEtcd(provision.KubeadmEtcdFiles())
	m := w.sites[0].Machine
	if err := errors.Join(m.Control.IssueCertificates(false, w.clk), os.WriteFile(m.EtcdFlags, nil, 0o600)); err != nil {
		w.Fatal(err)
	}
}

// embed gives m1 an etcd in its API server, as a restore does. The files of etcd's authority remain.
func (w *world) embed() {
	w.Helper()
	w.setEtcd(provision.EtcdFiles{})
	if err := os.Remove(w.sites[0].EtcdFlags); err != nil {
		w.Fatal(err)
	}
}

// setEtcd replaces the description of m1 by one with other files of etcd.
func (w *world) setEtcd(files provision.EtcdFiles) {
	m, p := *w.sites[0].Machine, *w.sites[0].Control
	p.EtcdFiles, p.Hosts.Etcd = files, []string{"localhost"}
	m.Control = &p
	w.sites[0].Machine = &m
}

// rotateKeepingOld runs the command until it has stopped before it forgets.
func (w *world) rotateKeepingOld() {
	w.Helper()
	for range 10 {
		r := w.rotation()
		r.KeepOld = true
		if err := r.Run(w.Context()); err != nil && !errors.Is(err, errWaiting) {
			w.Fatal(err)
		}
		if err := w.agents(); err != nil {
			w.Fatal(err)
		}
	}
}

// TestSeparate replaces the authorities of clusters whose etcd is separated at different times, while the
// agents run.
func TestSeparate(t *testing.T) {
	api := testserver.Start(t, testserver.Options{})
	rotate, separate := (*world).rotate, (*world).separate
	for name, c := range map[string]struct {
		steps []func(*world)
		want  string // the authority of etcd at the end
	}{
		"before the first rotation": {[]func(*world){separate, rotate, rotate}, "etcd-ca-3"},
		"between rotations":         {[]func(*world){rotate, separate, rotate, rotate}, "etcd-ca-3"},
		"during a rotation":         {[]func(*world){(*world).rotateKeepingOld, separate, rotate, rotate}, "etcd-ca-2"},
		"until a restore":           {[]func(*world){separate, rotate, (*world).embed, rotate, rotate}, "etcd-ca-2"},
		"again after a restore": {[]func(*world){separate, rotate, (*world).embed, rotate, separate, rotate, rotate},
			"etcd-ca-4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, api, fakeClock(), provision.Lifetimes{})
			w.line.left = -1
			for _, step := range c.steps {
				step(w)
			}
			etcd, err := pki.ReadAuthority(w.sites[0].Control.Dir.PKI(etcdAuthority))
			if err != nil {
				t.Fatal(err)
			}
			if got := etcd.Cert.Subject.CommonName; got != c.want {
				t.Errorf("%s signs, want %s", got, c.want)
			}
		})
	}
}

// TestUnknownAuthority checks that a machine does not skip the authority of its etcd.
func TestUnknownAuthority(t *testing.T) {
	w := newWorld(t, testserver.Start(t, testserver.Options{}), fakeClock(), provision.Lifetimes{})
	w.line.left = -1
	old := w.sites[0].Machine
	w.separate()
	s, err := w.sites[0].present()
	if err != nil {
		t.Fatal(err)
	}
	apply := func(m *Machine) error { return m.apply(t.Context(), s, w.sites[0].agent.secrets, w.client, w.clk) }
	if err := apply(old); !errors.Is(err, errUnknown) {
		t.Errorf("error %v", err)
	}
	w.embed()
	if err := errors.Join(apply(old), apply(w.sites[0].Machine)); err != nil {
		t.Errorf("without a separate etcd: %v", err)
	}
}

// TestIncomplete checks that a machine whose control plane has no flags yet keeps its authorities, because
// they must fit the key.
func TestIncomplete(t *testing.T) {
	w := newWorld(t, testserver.Start(t, testserver.Options{}), fakeClock(), provision.Lifetimes{})
	w.line.left = -1
	m := *w.sites[0].Machine
	s, err := m.present()
	if err != nil {
		t.Fatal(err)
	}
	file := m.Control.Dir.PKI("ca.crt")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s["ca"].bundle = append(s["ca"].bundle, s["kubelet-ca"].signer)
	m.Control = nil
	if err := m.apply(t.Context(), s, w.sites[0].agent.secrets, w.client, w.clk); !errors.Is(err, errIncomplete) {
		t.Errorf("error %v", err)
	}
	m.Incomplete = errors.New("it joins a restored cluster")
	if err := m.apply(t.Context(), s, w.sites[0].agent.secrets, w.client, w.clk); !errors.Is(err, m.Incomplete) {
		t.Errorf("error %v", err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the authorities have changed: %v", err)
	}
}

// TestMissing checks which machines a rotation waits for.
func TestMissing(t *testing.T) {
	w := newWorld(t, testserver.Start(t, testserver.Options{}), fakeClock(), provision.Lifetimes{})
	if err := w.rotation().Run(t.Context()); !errors.Is(err, errWaiting) || !strings.Contains(err.Error(), "m1, m2") {
		t.Errorf("error %v", err)
	}
	m, err := w.client.CoreV1().Nodes().Get(t.Context(), "m1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r, out := w.rotation(), &bytes.Buffer{}
	r.Force, r.Out = true, out
	if err := r.Run(t.Context()); !errors.Is(err, errWaiting) || strings.Contains(err.Error(), "m2") {
		t.Errorf("error %v", err)
	}
	w.sites, w.pairs = w.sites[:1], nil // m2 is off, and will be refused
	for range 4 {
		if err := w.agents(); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err != nil && !errors.Is(err, errWaiting) {
			t.Fatal(err)
		}
	}
	if !strings.Contains(out.String(), "Not waiting for machines that are not ready: m2") ||
		!strings.Contains(out.String(), "The authorities are replaced.") {
		t.Errorf("output:\n%s", out)
	}
}

// TestSettle checks that an agent reports only when programs have had the time to read changed files.
func TestSettle(t *testing.T) {
	clk := fakeClock()
	w := newWorld(t, testserver.Start(t, testserver.Options{}), clk, provision.Lifetimes{})
	w.line.left = -1
	if err := w.rotation().Run(t.Context()); !errors.Is(err, errWaiting) {
		t.Fatal(err)
	}
	m, err := w.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), configMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		wait time.Duration
		want error
	}{{0, errSettling}, {settle - time.Second, errSettling}, {time.Second, nil}, {0, nil}} {
		clk.Step(c.wait)
		if err := w.sites[1].agent.step(t.Context(), m); !errors.Is(err, c.want) {
			t.Errorf("%v later: %v, want %v", c.wait, err, c.want)
		}
	}
}

// TestOldSigner checks that a machine does not report a state while the cluster signs its certificates
// with another authority.
func TestOldSigner(t *testing.T) {
	w := newWorld(t, testserver.Start(t, testserver.Options{}), fakeClock(), provision.Lifetimes{})
	w.line.left = -1
	m1, m2 := w.sites[0], w.sites[1]
	s, err := m1.present()
	if err != nil {
		t.Fatal(err)
	}
	next, err := pki.OpenAuthority(filepath.Join(t.TempDir(), "ca"), "other", 0, w.clk)
	if err != nil {
		t.Fatal(err)
	}
	s["ca"].bundle = append(s["ca"].bundle, next.Cert)
	s["ca"].signer = next.Cert
	if err := m2.apply(t.Context(), s, m2.agent.secrets, w.client, w.clk); !errors.Is(err, errOldSigner) {
		t.Errorf("error %v", err)
	}
	// A control plane that cannot get the key changes nothing.
	before, err := os.ReadFile(m1.Control.Dir.PKI("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m1.apply(t.Context(), s, m1.agent.secrets, w.client, w.clk); !errors.Is(err, errNoKey) {
		t.Errorf("error %v", err)
	}
	if after, err := os.ReadFile(m1.Control.Dir.PKI("ca.crt")); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the authorities have changed: %v", err)
	}
}

// TestKeys checks that only the holder of the old key can open the new one, for the same authority.
func TestKeys(t *testing.T) {
	w := newWorld(t, testserver.Start(t, testserver.Options{}), fakeClock(), provision.Lifetimes{})
	old := map[string]*pki.Authority{}
	for _, name := range w.sites[0].Control.AuthorityNames() {
		var err error
		if old[name], err = pki.ReadAuthority(w.sites[0].Control.Dir.PKI(name)); err != nil {
			t.Fatal(err)
		}
	}
	secret, err := successors(old, 0, w.clk)
	if err != nil {
		t.Fatal(err)
	}
	for name := range old {
		for by, authority := range old {
			next, err := open(secret, name, authority)
			if (err == nil) != (name == by) {
				t.Errorf("the key of %s opens that of %s: %v", by, name, err)
			}
			if err == nil && !next.Signed(next.Cert) {
				t.Errorf("%s: key and certificate do not fit", name)
			}
		}
		for key, data := range secret.Data {
			if bytes.Contains(data, []byte("PRIVATE KEY")) {
				t.Errorf("%s is not encrypted", key)
			}
		}
	}
	changed := secret.DeepCopy()
	for _, ending := range []string{bundleEnding, crossEnding} {
		changed.Data["ca"+ending] = secret.Data["kubelet-ca"+ending]
	}
	if _, err := open(changed, "ca", old["ca"]); err == nil {
		t.Error("the key of another certificate was opened")
	}
}

// TestExpiring checks which certificates the agent warns about.
func TestExpiring(t *testing.T) {
	day := 24 * time.Hour
	list := []provision.Certificate{
		{File: "new", Left: 300 * day, Life: 365 * day}, {File: "due", Left: 100 * day, Life: 365 * day},
		{File: "late", Left: 29 * day, Life: 365 * day, Renewal: "agent"}, {File: "short", Left: 20 * day, Life: 30 * day},
		{File: "short and late", Left: 9 * day, Life: 30 * day}, {File: "expired", Left: -day, Life: 30 * day},
		{File: "authority", Left: 29 * day, Life: 3650 * day, Authority: true}, {File: "unreadable", Problem: "x"},
	}
	for i := range list {
		if list[i].Problem == "" {
			list[i].Expires = time.Unix(1, 0)
		}
	}
	var got []string
	for _, c := range expiring(list) {
		got = append(got, c.File)
	}
	if want := []string{"late", "short and late", "expired", "authority"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for c, want := range map[provision.Certificate]string{
		list[2]: "expires in 29 days: its renewal by the agent has failed", list[5]: "has expired",
		list[6]: "ctl certs rotate-ca",
	} {
		if text := warning(c); !strings.Contains(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
	}
}

// TestWarn checks that the agent records events about a certificate that expires soon.
func TestWarn(t *testing.T) {
	clk := fakeClock()
	w := newWorld(t, testserver.Start(t, testserver.Options{}), clk, provision.Lifetimes{})
	w.line.left = -1
	events := func() []v1.Event {
		t.Helper()
		if err := w.sites[1].agent.warn(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := w.client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=CertificateExpiring"})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	if got := events(); len(got) > 0 {
		t.Errorf("new certificates: %v", got)
	}
	clk.Step(pki.LeafLife - 10*24*time.Hour)
	got := events()
	if len(got) != 3 || got[0].InvolvedObject.Name != "m2" || got[0].Type != v1.EventTypeWarning ||
		!strings.Contains(got[0].Message, "expires in 9 days") && !strings.Contains(got[0].Message, "expires in 10 days") {
		t.Errorf("events %+v", got)
	}
}

// TestParse checks that a state survives its form as a ConfigMap, and that broken ones are errors.
func TestParse(t *testing.T) {
	w := newWorld(t, testserver.Start(t, testserver.Options{}), fakeClock(), provision.Lifetimes{})
	s, err := w.sites[0].present()
	if err != nil {
		t.Fatal(err)
	}
	s["etcd/ca"] = s["ca"]
	got, err := parse(s.object())
	if err != nil || got.hash() != s.hash() || got["etcd/ca"] == nil {
		t.Errorf("%v, %v", got, err)
	}
	for name, change := range map[string]func(map[string]string){
		"no authority":   func(d map[string]string) { delete(d, "ca.crt") },
		"another signer": func(d map[string]string) { d["ca.signer"] = d["kubelet-ca.signer"] },
		"no PEM":         func(d map[string]string) { d["ca-cross.crt"] = "x" },
		"nothing":        func(d map[string]string) { clear(d) },
	} {
		m := s.object()
		change(m.Data)
		if got, err := parse(m); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if _, err := os.Stat(filepath.Join(w.sites[0].Node.Root, "lock")); err == nil {
		t.Error("reading takes the lock")
	}
}
