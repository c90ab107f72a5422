// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/provision"
)

// cutTransport cancels the caller's context when a given number of requests have been sent.
type cutTransport struct {
	inner http.RoundTripper
	left  *atomic.Int64
	cut   context.CancelFunc
}

func (c cutTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.left.Add(-1) < 0 {
		c.cut()
		return nil, context.Canceled
	}
	return c.inner.RoundTrip(r)
}

// TestRotation interrupts a rotation at its first request, then at its second, and so on, until a
// rotation completes. It checks that secrets are always readable, that an interruption adds no
// further key, and that at the end no secret is encrypted with the old key.
func TestRotation(t *testing.T) {
	controller.EncryptionConfigFileChangePollDuration = 10 * time.Millisecond
	const secrets = 3
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	e := &provision.EncryptionKeys{Plain: true}
	if err := e.Add(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Write(file); err != nil {
		t.Fatal(err)
	}
	kv := memory.New(clock.Real())
	plain := testserver.Start(t, testserver.Options{KV: kv})
	for i := range secrets {
		if _, err := plain.Client.CoreV1().Secrets("default").Create(t.Context(), &core.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i)}, StringData: map[string]string{"k": "hush"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	plain.Stop(t)
	s := testserver.Start(t, testserver.Options{KV: kv, Dir: plain.Dir, Configure: func(c *config.Config) {
		c.EncryptionConfig, c.EncryptionReload = file, true
	}})

	// rotate rotates the keys, and cancels the rotation after the given number of requests.
	rotate := func(requests int64) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		left := &atomic.Int64{}
		left.Store(requests)
		cfg := rest.CopyConfig(s.Config)
		cfg.QPS = -1
		cfg.Wrap(func(inner http.RoundTripper) http.RoundTripper { return cutTransport{inner, left, cancel} })
		r := &rotation{file: file, client: kubernetes.NewForConfigOrDie(cfg),
			p: newProgress(Deps{Clock: clock.Real(), Out: io.Discard}), poll: 10 * time.Millisecond}
		return r.run(ctx)
	}
	written := func() (names []string) {
		t.Helper()
		for i := range secrets {
			it, _, err := kv.Get(t.Context(), fmt.Sprintf("/registry/secrets/default/s-%d", i))
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(string(it.Value), "k8s:enc:secretbox:v1:"), ":")
			names = append(names, name)
		}
		return names
	}
	// The first rotation encrypts the unencrypted secrets with the existing key.
	first := e.Keys[0].Name
	if err := rotate(1 << 30); err != nil {
		t.Fatal(err)
	}
	for _, name := range written() {
		if name != first {
			t.Errorf("encrypted with %q, not %q", name, first)
		}
	}
	begun := ""
	for requests := int64(0); ; requests++ {
		err := rotate(requests)
		now, readErr := provision.ReadEncryptionKeys(file)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if begun == "" {
			begun = now.Keys[0].Name
		}
		if now.Keys[0].Name != begun {
			t.Fatalf("after %d requests the key is %s, not %s", requests, now.Keys[0].Name, begun)
		}
		list, listErr := s.Client.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		if listErr != nil || len(list.Items) != secrets || string(list.Items[0].Data["k"]) != "hush" {
			t.Fatalf("after %d requests: %v, %v", requests, list, listErr)
		}
		// If only the last wait was interrupted, the rotation is already complete.
		if err == nil || now.Settled() {
			break
		}
	}
	for _, name := range written() {
		if name != begun || name == first {
			t.Errorf("encrypted with %q, not %q", name, begun)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestKeysOfSnapshots checks that restoring a snapshot whose keys are missing fails before any file
// is replaced, and that a snapshot of an unencrypted cluster can be restored.
func TestKeysOfSnapshots(t *testing.T) {
	file, e := filepath.Join(t.TempDir(), "encryption.yaml"), &provision.EncryptionKeys{}
	if err := e.Add(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Write(file); err != nil {
		t.Fatal(err)
	}
	fresh := func(keys any) string {
		dir := t.TempDir()
		if keys != nil {
			if err := writeJSON(filepath.Join(dir, keysFile), keys); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	if err := acceptKeys(file, fresh(e.Names())); err != nil {
		t.Error(err)
	}
	if err := acceptKeys(file, fresh([]string{"gone"})); !errors.Is(err, errKeyGone) {
		t.Errorf("got %v", err)
	}
	if err := acceptKeys(file, fresh(nil)); err != nil {
		t.Error(err)
	}
	if e, err := provision.ReadEncryptionKeys(file); err != nil || !e.Plain {
		t.Errorf("unencrypted values cannot be read: %v", err)
	}
	if err := os.WriteFile(file,
		[]byte("resources: [{resources: ['*.*'], providers: [{identity: {}}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := provision.ReadEncryptionKeys(file); !errors.Is(err, provision.ErrForeignEncryption) {
		t.Errorf("got %v", err)
	}
}
