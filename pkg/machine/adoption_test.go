// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/machine/adopt"
	"keelson.dev/keelson/pkg/provision"
)

// kubeadmPods returns the static pods of kubeadm 1.37.
func kubeadmPods(t *testing.T) *adopt.Pods {
	t.Helper()
	pods, err := adopt.Read("adopt/testdata")
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

// TestAdoptedConfiguration checks what "ctl backup" and others learn of an adopted machine.
func TestAdoptedConfiguration(t *testing.T) {
	pods := kubeadmPods(t)
	c, err := adoptedConfiguration(pods)
	if err != nil {
		t.Fatal(err)
	}
	if c.ClusterName != "kubernetes" || c.Node.Name != "m1" || apiAddress(c) != "10.60.0.11:6443" ||
		!slices.Equal(c.Network.PodCIDRs, []string{"10.244.0.0/16"}) ||
		!slices.Equal(c.Network.ServiceCIDRs, []string{"10.96.0.0/12"}) {
		t.Errorf("configuration %+v", c)
	}
	m := &adopter{pods: pods, programs: pods.Programs(nil), config: c}
	files, err := m.files()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
		if f.Name == "scheduler.env" && string(f.Data) != "ARGS=\"--bind-address=127.0.0.1 "+
			"--kubeconfig=/etc/kubernetes/scheduler.conf --leader-elect=true\"\n" {
			t.Errorf("%s: %s", f.Name, f.Data)
		}
	}
	if got := strings.Join(names, " "); got != "config.yaml etcd.env apiserver.env controller-manager.env scheduler.env" {
		t.Errorf("files %q", got)
	}
}

// TestAdoptAlone checks that neither command starts while one of them runs.
func TestAdoptAlone(t *testing.T) {
	before, state := adoptionLock, adoption
	defer func() { adoptionLock, adoption = before, state }()
	adoptionLock = filepath.Join(t.TempDir(), "lock")
	adoption.Parked = filepath.Join(t.TempDir(), "none")
	unlock, err := filelock.TryLock(adoptionLock)
	if err != nil {
		t.Fatal(err)
	}
	d := Deps{Out: t.Output()}
	if err := Adopt(t.Context(), &AdoptOptions{}, d); !errors.Is(err, errRunsAlready) {
		t.Errorf("adopt: %v", err)
	}
	if err := Unadopt(t.Context(), d); !errors.Is(err, errRunsAlready) {
		t.Errorf("unadopt: %v", err)
	}
	unlock()
	for range 2 { // the second checks that the first has unlocked it
		if err := Unadopt(t.Context(), d); err != nil {
			t.Errorf("unadopt afterwards: %v", err)
		}
	}
}

// TestDropped checks that flags which an interrupted adoption leaves out need not be named again.
func TestDropped(t *testing.T) {
	before := adoption
	defer func() { adoption = before }()
	adoption.Parked = t.TempDir()
	state := filepath.Join(adoption.Parked, "state.json")
	if err := os.WriteFile(state, []byte(`{"phase": "adopting", "drop": ["a", "b"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for now, want := range map[string]string{"": "a b", "b": "a b", "c": "a b c"} {
		if got, err := dropped(strings.Fields(now), adopt.Adopting); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v, want %q", now, got, err, want)
		}
	}
	if got, err := dropped([]string{"a"}, adopt.Adopted); err != nil || len(got) != 2 {
		t.Errorf("the same flag again: %q, %v", got, err)
	}
	if _, err := dropped([]string{"c"}, adopt.Adopted); !errors.Is(err, errDropLate) {
		t.Errorf("another flag of an adopted control plane: %v", err)
	}
}

// TestNotAdopted checks that commands which would destroy an adopted control plane refuse.
func TestNotAdopted(t *testing.T) {
	if err := NotAdopted(); err != nil {
		t.Fatal(err)
	}
	before := adoption
	defer func() { adoption = before }()
	adoption.Parked = t.TempDir()
	for name, run := range map[string]func() error{
		"reset":   func() error { return Reset(t.Context(), Deps{}) },
		"restore": func() error { return Restore(t.Context(), &RestoreOptions{}, Deps{}) },
		"token": func() error {
			_, err := InviteControlPlane(t.Context(), provision.TokenOptions{}, Deps{})
			return err
		},
	} {
		if err := run(); !errors.Is(err, errAdopted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := certificates(); !errors.Is(err, errForeignCertificates) {
		t.Errorf("certs: %v", err)
	}
}
