// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/machine/discovery"
	"keelson.dev/keelson/pkg/pki"
)

// TestInvite checks the address of the API server and the hash of the authority, from the client's
// configuration and from the cluster.
func TestInvite(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	slice, err := s.Client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || len(slice.Ports) != 1 {
		t.Fatal(slice, err)
	}
	authority, err := pki.ReadCertificate(filepath.Join(s.Dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	hash := discovery.Hash(authority)
	pem := s.Config.CAData

	if i, err := Invite(t.Context(), s.Client, nil); err == nil {
		t.Errorf("without any authority: %+v", i)
	}
	_, err = s.Client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(pem)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string][]byte{"cluster": nil, "client": pem, "twice": append(pem, pem...)} {
		i, err := Invite(t.Context(), s.Client, from)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasPrefix(i.Server, "192.0.2.1:") || len(i.Hashes) != 1 || i.Hashes[0] != hash || i.Token != "" {
			t.Errorf("%s: %+v, want the hash %s", name, i, hash)
		}
	}
	if i, err := Invite(t.Context(), s.Client, []byte("nonsense")); err == nil {
		t.Errorf("from nonsense: %+v", i)
	}
}

// TestAuthorityHashes checks that an invitation has the hashes of all authorities while they are replaced.
func TestAuthorityHashes(t *testing.T) {
	first, err := pki.OpenAuthority(filepath.Join(t.TempDir(), "ca"), "first", 0, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	second, err := first.Succeed(0, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	leaf, _, err := second.Issue(pki.Leaf{Name: "leaf", Client: true}, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	got, err := authorityHashes(append(leaf, pki.Encode(first.Cert, second.Cert)...))
	if want := []string{discovery.Hash(second.Cert), discovery.Hash(first.Cert)}; err != nil ||
		len(got) != len(want) || !slices.Contains(got, want[0]) || !slices.Contains(got, want[1]) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := authorityHashes(nil); err == nil {
		t.Errorf("from nothing: %v", got)
	}
}

func TestInvitationCommand(t *testing.T) {
	i := &Invitation{Server: "[2001:db8::1]:6443", Token: "a.b", Hashes: []string{"sha256:1", "sha256:2"}}
	const want = "ctl join [2001:db8::1]:6443 --token a.b --ca-cert-hash sha256:1,sha256:2"
	if got := i.Command(); got != want {
		t.Error(got)
	}
}
