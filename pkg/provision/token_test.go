// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestCreateToken checks the object of a token and the kubeconfig for it.
func TestCreateToken(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	clk := testclock.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	token, err := CreateToken(t.Context(), s.Client, time.Hour, clk)
	id, secret, ok := strings.Cut(token, ".")
	if err != nil || !ok {
		t.Fatal(token, err)
	}
	o, err := s.Client.CoreV1().Secrets("kube-system").Get(t.Context(), "bootstrap-token-"+id, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"token-secret": secret, "expiration": "2030-01-02T04:04:05Z",
		"auth-extra-groups": nodeGroup} {
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
