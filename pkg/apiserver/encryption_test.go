// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"

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
		return testserver.Start(t, testserver.Options{KV: store, Configure: func(c *config.Config) {
			c.EncryptionConfig, c.EtcdPrefix = file, "a/registry"
		}})
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
	if v := raw("/a/registry/secrets/default/s"); !strings.HasPrefix(v, "k8s:enc:secretbox:v1:a:") ||
		strings.Contains(v, "hush-hush") {
		t.Fatalf("secret: %q", v)
	}
	if v := raw("/a/registry/configmaps/default/c"); !strings.HasPrefix(v, "k8s\x00") {
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
	if v := raw("/a/registry/secrets/default/s"); !strings.HasPrefix(v, "k8s:enc:aesgcm:v1:b:") {
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
	checkUndecryptable(t, s, "no matching prefix found")
}

// checkUndecryptable checks the answers to requests for the secret default/s, which cannot be decrypted
// for the given reason. Then it deletes the secret.
func checkUndecryptable(t *testing.T, s *testserver.Server, reason string) {
	t.Helper()
	ctx, secrets := t.Context(), s.Client.CoreV1().Secrets("default")
	text := "data from the storage is not transformable revision=0: " + reason
	check := func(what string, err error, want metav1.StatusReason, message string) *metav1.Status {
		t.Helper()
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			t.Fatalf("%s: %v", what, err)
		}
		got := status.Status()
		if got.Code != http.StatusInternalServerError || got.Reason != want || got.Message != message {
			t.Errorf("%s: %d %s %q, want %s %q", what, got.Code, got.Reason, got.Message, want, message)
		}
		return &got
	}
	corrupt := "StorageError: corrupt object, Code: 7, Key: %s/secrets/default/s, ResourceVersion: 0, " +
		"AdditionalErrorMsg: " + text
	internal := "Internal error occurred: " + fmt.Sprintf(corrupt, "")
	_, err := secrets.Get(ctx, "s", metav1.GetOptions{})
	check("get", err, metav1.StatusReasonInternalError, internal)
	check("delete", secrets.Delete(ctx, "s", metav1.DeleteOptions{}), metav1.StatusReasonInternalError, internal)
	_, err = secrets.Patch(ctx, "s", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	check("patch", err, metav1.StatusReasonInternalError, "Internal error occurred: "+text)
	_, err = secrets.List(ctx, metav1.ListOptions{})
	listed := fmt.Sprintf(corrupt, "/a/registry")
	status := check("list", err, metav1.StatusReasonStoreReadError,
		"failed to read one or more secrets from the storage: "+listed)
	want := &metav1.StatusDetails{Name: "list", Kind: "secrets", Causes: []metav1.StatusCause{{
		Type: metav1.CauseTypeUnexpectedServerResponse, Field: "/a/registry/secrets/default/s", Message: listed}}}
	if !reflect.DeepEqual(status.Details, want) {
		t.Errorf("list: %+v, want %+v", status.Details, want)
	}
	ignore := true
	for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
		if err := secrets.Delete(ctx, "s", metav1.DeleteOptions{DryRun: dryRun,
			IgnoreStoreReadErrorWithClusterBreakingPotential: &ignore}); err != nil {
			t.Errorf("unsafe delete, dry run %s: %v", dryRun, err)
		}
	}
	if _, err := secrets.Get(ctx, "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the unsafe delete: %v", err)
	}
	if list, err := secrets.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("after the unsafe delete: %v, %v", list, err)
	}
}

// TestLostKey removes the key of an object while the server runs. As in Kubernetes, a client then cannot
// get or delete the object, but a list shows it. An unsafe deletion removes it, also from watches.
func TestLostKey(t *testing.T) {
	old := controller.EncryptionConfigFileChangePollDuration
	controller.EncryptionConfigFileChangePollDuration = 10 * time.Millisecond
	t.Cleanup(func() { controller.EncryptionConfigFileChangePollDuration = old })
	const (
		a = "aesgcm: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}"
		b = "aescbc: {keys: [{name: b, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}"
	)
	file := encryptionConfig(t, a)
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.EncryptionConfig, c.EncryptionReload = file, true
	}})
	ctx, secrets := t.Context(), s.Client.CoreV1().Secrets("default")
	made, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Finalizers: []string{"a.b/c"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := secrets.Watch(ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := os.Rename(encryptionConfig(t, b), file); err != nil {
		t.Fatal(err)
	}
	const reason = "data from the storage is not transformable revision=0: no matching prefix found"
	lost := func(err error) bool {
		return apierrors.IsInternalError(err) && strings.Contains(err.Error(), reason)
	}
	poll(t, "reload", func(ctx context.Context) bool {
		_, err := secrets.Get(ctx, "s", metav1.GetOptions{})
		return lost(err)
	})
	if list, err := secrets.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
	if err := secrets.Delete(ctx, "s", metav1.DeleteOptions{}); !lost(err) {
		t.Errorf("delete: %v", err)
	}
	ignore := true
	if err := secrets.Delete(ctx, "s",
		metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &ignore}); err != nil {
		t.Errorf("unsafe delete: %v", err)
	}
	if _, err := secrets.Get(ctx, "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the unsafe delete: %v", err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Deleted {
		t.Errorf("event %+v", e)
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
