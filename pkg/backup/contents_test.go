// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/secretbox"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
)

// protobuf returns the stored form of an object of the core group.
func protobuf(t *testing.T, kind string, object interface{ Marshal() ([]byte, error) }) string {
	t.Helper()
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	out, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(protobufPrefix) + string(out)
}

// encrypted returns a value that an API server has encrypted with a key.
func encrypted(t *testing.T, k apiserverv1.Key, plain string) string {
	t.Helper()
	secret, err := base64.StdEncoding.DecodeString(k.Secret)
	if err != nil {
		t.Fatal(err)
	}
	var nonce [nonceLength]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		t.Fatal(err)
	}
	key := [32]byte(secret)
	return ownPrefix + k.Name + ":" + string(nonce[:]) + string(secretbox.Seal(nil, []byte(plain), &nonce, &key))
}

func newKey(name string) apiserverv1.Key {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // cannot fail
	return apiserverv1.Key{Name: name, Secret: base64.StdEncoding.EncodeToString(secret)}
}

// snapshot returns the file with a snapshot of a store after changes. A change without a value deletes.
func snapshot(t *testing.T, changes [][2]string) string {
	t.Helper()
	s, err := embedded.Start(t.Context(), etcd.Embedded{Dir: t.TempDir(), UnsafeNoFsync: true, Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	revisions := map[string]int64{}
	for _, c := range changes {
		if c[1] == "" {
			if r, err := s.Delete(t.Context(), c[0], revisions[c[0]]); err != nil || !r.OK {
				t.Fatal(r, err)
			}
			continue
		}
		r, err := s.Put(t.Context(), c[0], []byte(c[1]), revisions[c[0]], 0)
		if err != nil || !r.OK {
			t.Fatal(r, err)
		}
		revisions[c[0]] = r.Revision
	}
	file := filepath.Join(t.TempDir(), "store.db")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Snapshot(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestInspect checks what is found in a store with objects of all stored forms.
func TestInspect(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "a", Name: "x"}
	first, second, lost := newKey("first"), newKey("second"), newKey("lost")
	pod, secret := protobuf(t, "Pod", &v1.Pod{ObjectMeta: meta}), protobuf(t, "Secret", &v1.Secret{ObjectMeta: meta})
	changes := [][2]string{
		{"/registry/pods/a/x", protobuf(t, "Node", &v1.Node{})}, // overwritten
		{"/registry/pods/a/x", pod},
		{"/registry/pods/a/y", pod},
		{"/registry/pods/a/gone", pod},
		{"/registry/pods/a/gone", ""},
		{"/registry/minions/m1", protobuf(t, "Node", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m1"}})},
		{"/registry/example.org/toys/b/t", `{"apiVersion":"example.org/v1","kind":"Toy","metadata":{"namespace":"b"}}`},
		{"/registry/secrets/a/1", encrypted(t, first, secret)},
		{"/registry/secrets/a/2", encrypted(t, second, secret)},
		{"/registry/configmaps/a/kms", "k8s:enc:kms:v2:name:xxx"},
		{"/registry/keelson.dev/store", `{"minCompatibilityVersion":"1.36"}`},
		{"/registry/machines.keelson.dev/epoch", "5"},
		{"compact_rev_key", "0"},
	}
	c, err := Inspect(t.Context(), snapshot(t, changes), []apiserverv1.Key{second, first})
	if err != nil {
		t.Fatal(err)
	}
	want := &Contents{Revision: int64(len(changes)) + 1, Epoch: 5, Sealed: 2, Foreign: 1, Other: 2, Objects: []Count{
		{"Node", "", 1}, {"Pod", "a", 2}, {"Secret", "a", 2}, {"Toy.example.org", "b", 1},
	}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	lostSecret := [][2]string{{"/registry/secrets/a/1", encrypted(t, lost, secret)}}
	_, err = Inspect(t.Context(), snapshot(t, lostSecret), []apiserverv1.Key{first, {Name: "lost", Secret: first.Secret}})
	if !errors.Is(err, errLost) || !strings.Contains(err.Error(), "/registry/secrets/a/1") {
		t.Error(err)
	}
}

// TestInspectDamage checks that a file that is no store, and stores with a changed page, are recognized.
func TestInspectDamage(t *testing.T) {
	data, err := os.ReadFile(snapshot(t, [][2]string{{"/registry/a", strings.Repeat("x", 20_000)}}))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "db")
	for name, change := range map[string]func([]byte) []byte{
		"text":      func([]byte) []byte { return []byte("no store") },
		"empty":     func([]byte) []byte { return make([]byte, 32<<10) },
		"cut off":   func(d []byte) []byte { return d[:12<<10] },
		"no header": func(d []byte) []byte { clear(d[:8<<10]); return d },
		"no pages":  func(d []byte) []byte { clear(d[8<<10:]); return d },
	} {
		changed := change(slices.Clone(data[:len(data)-sha256.Size]))
		right := sha256.Sum256(changed) // as if etcd had written it
		for _, hash := range [][]byte{data[len(data)-sha256.Size:], right[:]} {
			if err := os.WriteFile(file, slices.Concat(changed, hash), 0o600); err != nil {
				t.Fatal(err)
			}
			if c, err := Inspect(t.Context(), file, nil); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v, %v", name, c, err)
			}
		}
	}
}
