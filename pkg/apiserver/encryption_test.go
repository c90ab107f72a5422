// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// encryptionConfig writes a configuration that encrypts secrets only.
func encryptionConfig(t *testing.T, providers ...string) string {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- " +
		"resources: [secrets]\n  providers:\n"
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestEncryption checks that secrets are encrypted, and that a write without changes encrypts an
// object with the current key.
func TestEncryption(t *testing.T) {
	const (
		a = "secretbox: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}"
		b = "aesgcm: {keys: [{name: b, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}"
	)
	store := memory.New(clock.Real())
	raw := func(key string) string {
		t.Helper()
		it, _, err := store.Get(t.Context(), key)
		if err != nil || it == nil {
			t.Fatalf("%s: %v, %v", key, it, err)
		}
		return string(it.Value)
	}
	serve := func(providers ...string) *testserver.Server {
		file := encryptionConfig(t, providers...)
		return testserver.Start(t,
			testserver.Options{KV: store, Configure: func(c *config.Config) { c.EncryptionConfig = file }})
	}
	ctx := t.Context()
	s := serve(a)
	if _, err := s.Client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "hush-hush"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if v := raw("/registry/secrets/default/s"); !strings.HasPrefix(v, "k8s:enc:secretbox:v1:a:") ||
		strings.Contains(v, "hush-hush") {
		t.Fatalf("secret: %q", v)
	}
	if v := raw("/registry/configmaps/default/c"); !strings.HasPrefix(v, "k8s\x00") {
		t.Fatalf("config map: %q", v)
	}
	s.Stop(t)

	s = serve(b, a)
	got, err := s.Client.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{})
	if err != nil || string(got.Data["k"]) != "hush-hush" {
		t.Fatal(got, err)
	}
	list, err := s.Client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	renewed, err := s.Client.CoreV1().Secrets("default").Update(ctx, got, metav1.UpdateOptions{})
	if err != nil || renewed.ResourceVersion == got.ResourceVersion {
		t.Fatalf("resource version %s, %v", renewed.ResourceVersion, err)
	}
	if v := raw("/registry/secrets/default/s"); !strings.HasPrefix(v, "k8s:enc:aesgcm:v1:b:") {
		t.Fatalf("after rotation: %q", v)
	}
	again, err := s.Client.CoreV1().Secrets("default").Update(ctx, renewed, metav1.UpdateOptions{})
	if err != nil || again.ResourceVersion != renewed.ResourceVersion {
		t.Fatalf("resource version %s, %v", again.ResourceVersion, err)
	}
	s.Stop(t)

	// Without the key, secrets cannot be read, but all other objects can.
	s = serve(a)
	if _, err := s.Client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for path, named := range map[string]bool{"/api/v1/namespaces/default/secrets/s": false,
		"/api/v1/namespaces/default/secrets": true} {
		poll(t, path, func(context.Context) bool {
			resp, body := answerTo(t, s.Config, path)
			return resp.StatusCode == http.StatusInternalServerError &&
				strings.Contains(body, `unable to transform key`) == named
		})
	}
}

// TestChecksOfEncryption checks which of readyz, healthz and livez list the checks of the key
// servers and of the reload of the encryption configuration. The lists must be those of Kubernetes.
func TestChecksOfEncryption(t *testing.T) {
	file := encryptionConfig(t, "identity: {}")
	s := testserver.Start(t,
		testserver.Options{Configure: func(c *config.Config) { c.EncryptionConfig, c.EncryptionReload = file, true }})
	const hook = "[+]poststarthook/start-encryption-provider-config-automatic-reload " +
		"ok\n[+]poststarthook/start-apiserver-admission-initializer ok\n"
	for path, want := range map[string]string{
		"/readyz":  "[+]etcd-readiness ok\n[+]kms-providers ok\n[+]informer-sync ok\n" + hook,
		"/healthz": "[+]etcd ok\n[+]kms-providers ok\n" + hook,
		"/livez":   "[+]etcd ok\n" + hook,
	} {
		got, err := s.Client.CoreV1().RESTClient().Get().AbsPath(path).Param("verbose", "").DoRaw(t.Context())
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s, error %v, want %s in it", path, got, err, want)
		}
	}
}
