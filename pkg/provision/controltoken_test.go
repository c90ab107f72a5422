// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestAuthorities moves the authorities of a control plane to another one.
func TestAuthorities(t *testing.T) {
	from, _ := machine(t.TempDir())
	from.EtcdFiles = KubeadmEtcdFiles()
	if err := errors.Join(from.IssueCertificates(false, clock.Real()), from.WriteConfiguration()); err != nil {
		t.Fatal(err)
	}
	a, err := from.ReadAuthorities()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pki/ca.key", "pki/front-proxy-ca.key", "pki/kubelet-ca.key", "pki/etcd/ca.key",
		"pki/sa.key", "pki/sa.pub", "encryption.yaml"} {
		if len(a[name]) == 0 {
			t.Errorf("no %s", name)
		}
	}
	for name := range a {
		if strings.Contains(name, "server") || strings.Contains(name, "client") {
			t.Errorf("%s belongs to one machine", name)
		}
	}
	to, _ := machine(t.TempDir())
	to.EtcdFiles = KubeadmEtcdFiles()
	if err := to.WriteAuthorities(Authorities{"pki/ca.key": a["pki/ca.key"]}); !errors.Is(err, errIncomplete) {
		t.Errorf("incomplete authorities: %v", err)
	}
	if exists(string(to.Dir)) {
		t.Error("incomplete authorities were written")
	}
	if err := errors.Join(to.WriteAuthorities(a), to.IssueCertificates(true, clock.Real()),
		to.WriteConfiguration()); err != nil {
		t.Fatal(err)
	}
	for name, want := range a {
		data, err := os.ReadFile(to.Dir.file(name))
		if err != nil || !bytes.Equal(data, want) {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(to.Dir.file(name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if c := from.Trust().Check("", to.Dir.PKI("etcd/peer.crt"), time.Now()); c.Problem != "" {
		t.Error(c.Problem)
	}
	if err := os.Remove(from.Dir.PKI("ca.key")); err != nil {
		t.Fatal(err)
	}
	if a, err := from.ReadAuthorities(); err == nil {
		t.Errorf("without a key: %d files", len(a))
	}
}

// TestSeal checks that only the right key opens sealed authorities, and that changes are noticed.
func TestSeal(t *testing.T) {
	a, key := Authorities{"pki/ca.key": []byte("secret")}, bytes.Repeat([]byte{7}, keyLen)
	sealed, err := a.seal(key)
	if err != nil || bytes.Contains(sealed, []byte("pki")) {
		t.Fatalf("%q, %v", sealed, err)
	}
	if again, err := a.seal(key); err != nil || bytes.Equal(again, sealed) {
		t.Errorf("the same bytes twice: %v", err)
	}
	if got, err := openAuthorities(sealed, key); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("%v, %v", got, err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	other := bytes.Clone(key)
	other[0] ^= 1
	for name, tc := range map[string]struct{ sealed, key []byte }{
		"another key": {sealed, other}, "changed": {changed, key}, "truncated": {sealed[:20], key}, "empty": {nil, key},
	} {
		if got, err := openAuthorities(tc.sealed, tc.key); !errors.Is(err, errSealed) || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestParseControlPlaneToken(t *testing.T) {
	const join, key = "abc123.0123456789abcdef", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	got, ok := ParseControlPlaneToken(join + "." + key)
	if !ok || got.Join != join || fmt.Sprintf("%x", got.key) != key {
		t.Errorf("%v, %t", got, ok)
	}
	for _, text := range []string{"", join, join + ".", join + "." + key[1:], join + "." + key + "0", "." + key,
		join + "." + strings.ToUpper(key)} {
		if got, ok := ParseControlPlaneToken(text); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
	if id, err := TokenID(join + "." + key); err != nil || id != "abc123" {
		t.Errorf("%q, %v", id, err)
	}
}

// controlPlaneJoiner creates a control plane's token with authorities, and returns it and a client that
// authenticates with it. The server knows the token and its rights.
func controlPlaneJoiner(t *testing.T, s *testserver.Server, a Authorities) (ControlPlaneToken, kubernetes.Interface) {
	t.Helper()
	text, err := CreateControlPlaneToken(t.Context(), s.Client, TokenOptions{Life: time.Hour}, a, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	token, ok := ParseControlPlaneToken(text)
	if !ok {
		t.Fatal("malformed token")
	}
	client, err := kubernetes.NewForConfig(s.TokenConfig(token.Join))
	if err != nil {
		t.Fatal(err)
	}
	id, _ := TokenID(text)
	awaitRights(t, client, append(joinRights(), authorizationv1.ResourceAttributes{
		Verb: "get", Resource: "secrets", Namespace: "kube-system", Name: tokenPrefix + id}))
	return token, client
}

// TestControlPlaneToken checks that the authorities can be read with the token that they were stored for,
// that no object has the third part of the token, and that the rights end with the token.
func TestControlPlaneToken(t *testing.T) {
	s := machinesServer(t)
	a := Authorities{"pki/ca.key": []byte("secret")}
	token, client := controlPlaneJoiner(t, s, a)
	got, err := FetchAuthorities(t.Context(), client, token)
	if err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("%v, %v", got, err)
	}
	other, _ := controlPlaneJoiner(t, s, a)
	if _, err := FetchAuthorities(t.Context(), client, other); !apierrors.IsForbidden(err) {
		t.Errorf("the Secret of another token: %v, want forbidden", err)
	}
	mixed := ControlPlaneToken{Join: token.Join, key: other.key}
	if got, err := FetchAuthorities(t.Context(), client, mixed); !errors.Is(err, errSealed) || got != nil {
		t.Errorf("another third part: %v, %v", got, err)
	}
	id, _ := TokenID(token.Join)
	secret, err := s.Client.CoreV1().Secrets("kube-system").Get(t.Context(), tokenPrefix+id, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range secret.Data {
		if bytes.Contains(data, token.key) || strings.Contains(string(data), fmt.Sprintf("%x", token.key)) ||
			bytes.Contains(data, []byte("secret")) {
			t.Errorf("%s has the third part of the token, or text that is not encrypted", name)
		}
	}
	role, err := s.Client.RbacV1().Roles("kube-system").Get(t.Context(), controlPlaneRights+id, metav1.GetOptions{})
	if err != nil || len(role.OwnerReferences) != 1 || role.OwnerReferences[0].UID != secret.UID {
		t.Errorf("role %v, %v", role, err)
	}
	binding, err := s.Client.RbacV1().RoleBindings("kube-system").Get(t.Context(), controlPlaneRights+id,
		metav1.GetOptions{})
	if err != nil || len(binding.OwnerReferences) != 1 || binding.OwnerReferences[0].UID != secret.UID {
		t.Errorf("binding %v, %v", binding, err)
	}
}

// TestPlainTokenHasNoAuthorities checks that a token of a node does not give access to its own Secret.
func TestPlainTokenHasNoAuthorities(t *testing.T) {
	s := machinesServer(t)
	text, err := CreateToken(t.Context(), s.Client, TokenOptions{Life: time.Hour}, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(s.TokenConfig(text))
	if err != nil {
		t.Fatal(err)
	}
	awaitRights(t, client, joinRights())
	token := ControlPlaneToken{Join: text, key: make([]byte, keyLen)}
	if _, err := FetchAuthorities(t.Context(), client, token); !apierrors.IsForbidden(err) {
		t.Errorf("%v, want forbidden", err)
	}
	if _, err := FetchAuthorities(t.Context(), s.Client, token); !errors.Is(err, errNoAuthorities) {
		t.Errorf("%v", err)
	}
}
