// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
)

func TestComplete(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		ok     bool
	}{
		"defaults":          {Config{}, true},
		"short name":        {Config{Name: "a"}, true},
		"longest name":      {Config{Name: "a2345678901234567890"}, true},
		"too long a name":   {Config{Name: "a23456789012345678901"}, false},
		"capital":           {Config{Name: "A"}, false},
		"path in the name":  {Config{Name: "a/b"}, false},
		"dash at the end":   {Config{Name: "a-"}, false},
		"negative nodes":    {Config{Nodes: -1}, false},
		"too many nodes":    {Config{Nodes: maxNodes + 1}, false},
		"port out of range": {Config{Port: 65536}, false},
		"both families":     {Config{IPFamily: Dual}, true},
		"no family":         {Config{IPFamily: "ipv5"}, false},
		"release before":    {Config{EmulatedVersion: "1.36"}, true},
		"own release":       {Config{EmulatedVersion: "1.37"}, true},
		"unknown release":   {Config{EmulatedVersion: "1.35"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.config
			if err := c.Complete(); (err == nil) != tc.ok {
				t.Fatalf("error %v, want ok %t", err, tc.ok)
			}
		})
	}
	c := Config{Kubeconfig: "file", DataDir: "dir"}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(c.Kubeconfig) || !filepath.IsAbs(c.DataDir) {
		t.Errorf("relative paths stay: %q %q", c.Kubeconfig, c.DataDir)
	}
}

func TestNodeAddress(t *testing.T) {
	for index, want := range map[int]string{1: "10.50.0.11,fd50::11", 2: "10.50.0.12,fd50::12",
		maxNodes: "10.50.0.210,fd50::210"} {
		for family, of := range map[IPFamily]string{"": want[:strings.Index(want, ",")],
			IPv6: want[strings.Index(want, ",")+1:], Dual: want} {
			if got := strings.Join(Node{Index: index, IPFamily: family}.Addresses(), ","); got != of {
				t.Errorf("node %d has %s, want %s", index, got, of)
			}
		}
	}
}

// TestKubeconfigs checks that a cluster's credentials are added to a kubeconfig and removed from
// it, and that other entries of the file do not change.
func TestKubeconfigs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "person", "config")
	for _, name := range []string{"one", "two"} {
		c := &Config{Name: name, DataDir: t.TempDir(), Port: 7000}
		d := c.dirs()
		if err := errors.Join(makePKI(c, clock.Real()), makeKubeconfigs(d, c, clock.Real())); err != nil {
			t.Fatal(err)
		}
		if err := mergeKubeconfig(d.kubeconfig("admin"), file); err != nil {
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
	if err := unmergeKubeconfig("two", file); err != nil {
		t.Fatal(err)
	}
	if cfg, err = clientcmd.LoadFromFile(file); err != nil || len(cfg.Contexts) != 1 ||
		cfg.Contexts["one"] == nil || cfg.CurrentContext != "" {
		t.Errorf("one is left: %+v, error %v", cfg, err)
	}
	if err := unmergeKubeconfig("one", file); err != nil || exists(file) {
		t.Errorf("the empty file stays, error %v", err)
	}
}

// TestSettleFamily checks that a cluster keeps the IP family with which it was created, and that a
// different family is an error.
func TestSettleFamily(t *testing.T) {
	for _, tc := range []struct {
		has, want, get IPFamily
		ok             bool
	}{
		{"", "", "", true}, {"", IPv4, "", true}, {Dual, "", Dual, true}, {Dual, Dual, Dual, true},
		{"", Dual, Dual, false}, {Dual, IPv4, IPv4, false}, {IPv6, Dual, Dual, false},
	} {
		c := &Config{IPFamily: tc.want}
		if err := settleFamily(c, tc.has); (err == nil) != tc.ok || c.IPFamily != tc.get {
			t.Errorf("has %q, want %q: got %q, %v", tc.has, tc.want, c.IPFamily, err)
		}
	}
}

// TestPKI checks that certificates are created only once, and that they are valid for their
// purpose.
func TestPKI(t *testing.T) {
	c := &Config{Name: "one", DataDir: t.TempDir(), IPFamily: Dual, ControlPlanes: 2}
	d := c.dirs()
	if err := makePKI(c, clock.Real()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(d.pki("apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := makePKI(c, clock.Real()); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(d.pki("apiserver.crt"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a second time makes another certificate; error %v", err)
	}
	ca, err := os.ReadFile(d.pki("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	block, _ := pem.Decode(after)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"kubernetes.default.svc", "127.0.0.1", "10.50.0.1", "10.96.0.1", "::1",
		"fd50::1", "fd96::1", "10.50.0.2"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, key := range []string{"ca.key", "apiserver.key", "sa.key"} {
		info, err := os.Stat(d.pki(key))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, error %v", key, info, err)
		}
	}
}

// TestStoreArchive checks that a packed store unpacks to the same files, and that files which are
// no snapshots are rejected.
func TestStoreArchive(t *testing.T) {
	dir := t.TempDir()
	store, file, back := filepath.Join(dir, "store"), filepath.Join(dir, "file"), filepath.Join(dir, "back")
	if err := atomicfile.WriteDurably(filepath.Join(store, "member", "snap", "db"), []byte("objects"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(packStore(store, file, nil), unpackStore(file, back)); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(back, "member", "snap", "db")); err != nil || string(b) != "objects" {
		t.Errorf("came back: %q, error %v", b, err)
	}
	other := filepath.Join(dir, "other")
	if err := atomicfile.WriteDurably(other, []byte("not an archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unpackStore(other, filepath.Join(dir, "x")); !errors.Is(err, errSnapshot) {
		t.Errorf("a text: %v", err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "empty"), 0o755),
		packStore(filepath.Join(dir, "empty"), other, nil)); err != nil {
		t.Fatal(err)
	}
	if err := unpackStore(other, filepath.Join(dir, "y")); !errors.Is(err, errSnapshot) {
		t.Errorf("an empty archive: %v", err)
	}
}

// TestCopyTree checks that copyTree hard-links ordinary files, and copies databases and symbolic
// links.
func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	for _, f := range []string{"blobs/one", "meta.db"} {
		if err := atomicfile.WriteDurably(filepath.Join(from, f), []byte(f), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("one", filepath.Join(from, "blobs", "link")); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	for file, shared := range map[string]bool{"blobs/one": true, "meta.db": false} {
		a, errA := os.Stat(filepath.Join(from, file))
		b, errB := os.Stat(filepath.Join(to, file))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if os.SameFile(a, b) != shared || a.Mode() != b.Mode() {
			t.Errorf("%s: shared %t, mode %v and %v", file, os.SameFile(a, b), a.Mode(), b.Mode())
		}
	}
	if link, err := os.Readlink(filepath.Join(to, "blobs", "link")); err != nil || link != "one" {
		t.Errorf("link to %q, error %v", link, err)
	}
}

// TestManifests checks that the API resource of every kind in the manifests is known.
func TestManifests(t *testing.T) {
	for _, file := range []string{"manifests/rbac.yaml", "manifests/coredns.yaml"} {
		objects, err := readManifest(file, Dual)
		if err != nil || len(objects) == 0 {
			t.Fatalf("%s: %d objects, error %v", file, len(objects), err)
		}
		for _, o := range objects {
			if _, ok := addonResource(o.GroupVersionKind()); !ok || o.GetName() == "" {
				t.Errorf("%s: %s %q", file, o.GroupVersionKind(), o.GetName())
			}
		}
	}
}

// TestUpdateRights checks that updateRights makes the roles of the cluster's own components equal
// to the manifests. It must not change other roles, or roles with the annotation against updates.
func TestUpdateRights(t *testing.T) {
	object := func(kind, name, field, value, keep string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"kind": kind, field: []any{value}}}
		o.SetName(name)
		if keep != "" {
			o.SetAnnotations(map[string]string{rbacv1.AutoUpdateAnnotationKey: keep})
		}
		return o
	}
	for name, c := range map[string]struct {
		kind, name, field, present, keep string
		want                             bool
	}{
		"other rules":                  {"ClusterRole", "keelson:a", "rules", "wide", "", true},
		"the same rules":               {"ClusterRole", "keelson:a", "rules", "new", "", false},
		"other subjects":               {"ClusterRoleBinding", "keelson:a", "subjects", "shared", "true", true},
		"rules kept on purpose":        {"ClusterRole", "keelson:a", "rules", "wide", "false", false},
		"a role that is not ours":      {"ClusterRole", "system:coredns", "rules", "wide", "", false},
		"an object that is not a role": {"ConfigMap", "keelson:a", "data", "own", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			present, want := object(c.kind, c.name, c.field, c.present, c.keep), object(c.kind, c.name, c.field, "new", "")
			got := updateRights(present, want)
			if after := reflect.DeepEqual(present.Object[c.field], want.Object[c.field]); got != c.want ||
				after != (c.want || c.present == "new") {
				t.Errorf("updated: %t, to %v", got, present.Object[c.field])
			}
		})
	}
}

func TestTail(t *testing.T) {
	if got := tail([]byte(strings.Repeat("x\n", 3)+"a\nb\n"), 2); got != "a\nb" {
		t.Errorf("tail: %q", got)
	}
	if got := tail([]byte("a\n"), 2); got != "a" {
		t.Errorf("tail of little: %q", got)
	}
}
