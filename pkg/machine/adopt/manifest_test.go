// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// changed returns a directory with kubeadm's manifests. In that of the component, it has replaced a text.
func changed(t *testing.T, component, old, replacement string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	if component == "" {
		return dir
	}
	file := filepath.Join(dir, manifest(component))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(data), old, replacement)), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPrograms checks the flags that Keelson's programs get for the manifests of kubeadm 1.37.
func TestPrograms(t *testing.T) {
	pods, err := Read(t.TempDir(), "testdata")
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(pods.Programs(nil), units(t)); err != nil {
		t.Error(err)
	}
	if got := pods.Value(Etcd, "name"); got != "m1" {
		t.Errorf("name %q", got)
	}
	var names []string
	for _, p := range pods.Programs([]string{"allow-privileged"}) {
		names = append(names, p.Name)
		args := p.Args()
		for flag, of := range map[string]string{
			"--data-dir=/var/lib/etcd": "etcd", "--advertise-address=10.60.0.11": "apiserver",
			"--serve-store-snapshots=true": "apiserver", "--controllers=*,bootstrapsigner,tokencleaner": "controller-manager",
			"--kubeconfig=/etc/kubernetes/scheduler.conf": "scheduler",
		} {
			if slices.Contains(args, flag) != (of == p.Name) {
				t.Errorf("%s has %s: %t", p.Name, flag, slices.Contains(args, flag))
			}
		}
		want := map[string]int{"etcd": 0, "apiserver": 1, "controller-manager": 4, "scheduler": 2}[p.Name]
		if len(p.Dropped) != want {
			t.Errorf("%s does not get %v, want %d flags", p.Name, p.Dropped, want)
		}
	}
	if want := []string{"etcd", "apiserver", "controller-manager", "scheduler"}; !slices.Equal(names, want) {
		t.Errorf("programs %q, want %q", names, want)
	}
}

// TestRefused checks control planes that cannot be adopted.
func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		component, old, replacement string
		want                        error
	}{
		"not a pod":   {Etcd, "kind: Pod", "kind: Job", errForm},
		"other pod":   {Scheduler, "component: kube-scheduler", "component: other", errForm},
		"own network": {Scheduler, "hostNetwork: true", "hostNetwork: false", errForm},
		"shell":       {APIServer, "    - kube-apiserver\n", "    - sh\n", errContainer},
		"short flag":  {APIServer, "--allow-privileged=true", "--allow-privileged", errFlagForm},
		"not root":    {Etcd, "  securityContext:\n", "  securityContext:\n    runAsUser: 65532\n", errUser},
		"other path":  {Etcd, "path: /var/lib/etcd", "path: /srv/etcd", errMount},
		"other volume": {Etcd, "  - hostPath:\n      path: /var/lib/etcd\n      type: DirectoryOrCreate\n",
			"  - emptyDir: {}\n", errVolume},
		"external etcd": {APIServer, "https://127.0.0.1:2379", "https://10.60.0.12:2379", errExternal},
		"two etcds": {APIServer, "https://127.0.0.1:2379", "https://127.0.0.1:2379,https://10.60.0.12:2379",
			errExternal},
		"members": {Etcd, "m1=https://10.60.0.11:2380", "m1=https://10.60.0.11:2380,m2=https://10.60.0.12:2380",
			errMembers},
		"data elsewhere": {Etcd, "--data-dir=/var/lib/etcd", "--data-dir=/srv/etcd", errDirectory},
		"hidden file":    {APIServer, "--secure-port=6443", "--audit-policy-file=/root/policy.yaml", errHidden},
		"second of two files": {APIServer, "--secure-port=6443", "--tls-sni-cert-key=/etc/a.crt,/root/a.key:a.example.com",
			errHidden},
		"socket":     {APIServer, "--secure-port=6443", "--x=unix:///run/x.sock", errHidden},
		"below etcd": {Scheduler, "--leader-elect=true", "--config=/var/lib/etcd/scheduler.yaml", errHidden},
		"log elsewhere": {Etcd, "--data-dir=/var/lib/etcd", "--data-dir=/var/lib/etcd\n    - --wal-dir=/srv/wal",
			errDirectory},
		"audit log": {APIServer, "--secure-port=6443", "--audit-log-path=/var/log/audit.log", errLog},
		"environment": {Scheduler, "    name: kube-scheduler\n", "    name: kube-scheduler\n    env:\n    - name: A\n" +
			"      valueFrom: {fieldRef: {fieldPath: metadata.name}}\n", errEnvironment},
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := Read(changed(t, tc.component, tc.old, tc.replacement))
			if err == nil {
				err = Check(pods.Programs(nil), units(t))
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
	dir := changed(t, "", "", "")
	if err := os.Remove(filepath.Join(dir, "etcd.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); !errors.Is(err, errNoManifest) || !strings.Contains(err.Error(), "etcd.yaml") {
		t.Errorf("without etcd: %v", err)
	}
}

// TestAccepted checks flags that look like those that are refused, and such that no program gets.
func TestAccepted(t *testing.T) {
	for name, tc := range map[string]struct {
		component, old, replacement string
		drop                        []string
	}{
		"below etcd": {APIServer, "--secure-port=6443", "--encryption-provider-config=/var/lib/etcd/keys.yaml", nil},
		"log of etcd": {Etcd, "--data-dir=/var/lib/etcd", "--data-dir=/var/lib/etcd\n    - --wal-dir=/var/lib/etcd/wal",
			nil},
		"data directory with a slash": {Etcd, "--data-dir=/var/lib/etcd", "--data-dir=/var/lib/etcd/", nil},
		"dropped file": {APIServer, "--secure-port=6443", "--audit-policy-file=/root/policy.yaml",
			[]string{"audit-policy-file"}},
		"dropped log": {APIServer, "--secure-port=6443", "--audit-log-path=/srv/audit.log",
			[]string{"audit-log-path"}},
		"dropped log of etcd": {Etcd, "--data-dir=/var/lib/etcd", "--data-dir=/var/lib/etcd\n    - --wal-dir=/srv/wal",
			[]string{"wal-dir"}},
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := Read(changed(t, tc.component, tc.old, tc.replacement))
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(pods.Programs(tc.drop), units(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCheckFlags checks that all flags that a program does not know are named.
func TestCheckFlags(t *testing.T) {
	pods, err := Read(changed(t, APIServer, "--secure-port=6443", "--bad=1\n    - --worse=2"))
	if err != nil {
		t.Fatal(err)
	}
	accepts := func(_ context.Context, _ string, args ...string) error {
		for _, a := range args {
			if strings.HasPrefix(a, "--bad") || strings.HasPrefix(a, "--worse") {
				return errBroken
			}
		}
		return nil
	}
	err = CheckFlags(t.Context(), pods.Programs(nil), accepts)
	if !errors.Is(err, errFlags) || !strings.Contains(err.Error(), "--bad=1 of apiserver: ") ||
		!strings.Contains(err.Error(), "--worse=2 of apiserver: ") || strings.Contains(err.Error(), "--etcd-servers") {
		t.Error(err)
	}
	if err := CheckFlags(t.Context(), pods.Programs([]string{"bad", "worse"}), accepts); err != nil {
		t.Error(err)
	}
}
