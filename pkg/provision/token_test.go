// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"reflect"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestCreateToken checks the object of a token and the kubeconfig for it.
func TestCreateToken(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	clk := testclock.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	token, err := CreateToken(t.Context(), s.Client, TokenOptions{Life: time.Hour, Description: "for m2"}, clk)
	id, secret, ok := strings.Cut(token, ".")
	if err != nil || !ok {
		t.Fatal(token, err)
	}
	o, err := s.Client.CoreV1().Secrets("kube-system").Get(t.Context(), "bootstrap-token-"+id, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"token-secret": secret, "expiration": "2030-01-02T04:04:05Z",
		"auth-extra-groups": nodeGroup, "description": "for m2"} {
		if got := string(o.Data[key]); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	c := exampleCluster()
	data, err := c.BootstrapKubeconfig("https://10.60.0.11:6443", []byte("authority"), token)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil || cfg.Host != "https://10.60.0.11:6443" ||
		cfg.BearerToken != token || string(cfg.CAData) != "authority" {
		t.Errorf("%v, %v", cfg, err)
	}
}

// TestTokenLife checks that there are no tokens that never expire, or that have expired already.
func TestTokenLife(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	for _, life := range []time.Duration{0, -time.Hour} {
		if token, err := CreateToken(t.Context(), s.Client, TokenOptions{Life: life}, clock.Real()); err == nil ||
			token != "" {
			t.Errorf("token with the lifetime %s: %q, %v", life, token, err)
		}
	}
}

// TestTokens lists and deletes tokens. One of them looks like a token of kubeadm that never expires.
func TestTokens(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	clk := testclock.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	token, err := CreateToken(t.Context(), s.Client, TokenOptions{Life: time.Hour, Description: "for m2"}, clk)
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]core.SecretType{
		"bootstrap-token-000000": tokenType, "other": core.SecretTypeOpaque,
	} {
		_, err = s.Client.CoreV1().Secrets("kube-system").Create(t.Context(), &core.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind, StringData: map[string]string{
				"token-id": "000000", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
				"usage-bootstrap-authentication": "false",
			}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	list, err := ListTokens(t.Context(), s.Client)
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(token, ".")
	want := []Token{
		{ID: "000000", Usages: []string{"signing"}},
		{ID: id, Expires: "2030-01-02T04:04:05Z", Usages: []string{"authentication"}, Groups: []string{nodeGroup},
			Description: "for m2"},
	}
	if !reflect.DeepEqual(list, want) {
		t.Errorf("tokens %+v, want %+v", list, want)
	}
	if err := DeleteToken(t.Context(), s.Client, id); err != nil {
		t.Error(err)
	}
	if err := DeleteToken(t.Context(), s.Client, id); !apierrors.IsNotFound(err) {
		t.Errorf("delete again: %v", err)
	}
	if list, err = ListTokens(t.Context(), s.Client); err != nil || len(list) != 1 {
		t.Errorf("tokens %v, %v", list, err)
	}
}

func TestTokenID(t *testing.T) {
	for text, want := range map[string]string{
		"abc123": "abc123", "abc123.0123456789abcdef": "abc123", "abc12": "", "abc123.0123456789abcde": "",
		"abc123.0123456789abcdef0": "", "ABC123": "", "../../x": "", "": "", "abc123.": "",
	} {
		got, err := TokenID(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if err != nil && text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("the error shows what may be a token: %v", err)
		}
	}
}

// TestLetters checks that random tokens consist of lowercase letters and digits.
func TestLetters(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s, err := letters(16)
		if err != nil || len(s) != 16 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || seen[s] {
			t.Fatalf("%q, %v", s, err)
		}
		seen[s] = true
	}
}
