// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// attributesOf returns the tokenAttributes of a plugin, with its cache type and its required and
// optional annotations.
func attributesOf(cache, required, optional string) string {
	return fmt.Sprintf("  tokenAttributes: {serviceAccountTokenAudience: reg, cacheType: %s, "+
		"requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [%s], "+
		"optionalServiceAccountAnnotationKeys: [%s]}\n", cache, required, optional)
}

func accountPod(name, account string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: v1.PodSpec{ServiceAccountName: account}}
}

// TestAccountsWithoutAnnotations checks that the kubelet neither calls a plugin nor logs a failure
// for a service account that lacks a required annotation.
func TestAccountsWithoutAnnotations(t *testing.T) {
	dir, c := t.TempDir(), clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	answer := response("CredentialProviderResponse", "Image", "", `{"reg.example":{"username":"u","password":"p"}}`)
	program(t, dir, "required", answer)
	program(t, dir, "optional", answer)
	p, err := pluginsOf(t, dir,
		entryOf("required", "reg.example", attributesOf("ServiceAccount", "missing", ""))+
			entryOf("optional", "reg.example", attributesOf("ServiceAccount", "role", "missing")), c)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.ask(t.Context(), p.list[0], accountPod("a", "one"), "reg.example/app"); !errors.Is(err,
		errNotForPod) {
		t.Errorf("an account without what is required: %v", err)
	}
	if _, _, err := p.ask(t.Context(), p.list[0], accountPod("a", ""), "reg.example/app"); !errors.Is(err, errNotForPod) {
		t.Errorf("a pod without an account: %v", err)
	}
	if got := asked(t, dir, "required"); len(got) != 0 {
		t.Errorf("plugin called: %s", got)
	}
	if list := p.logins(t.Context(), accountPod("a", "one"), "reg.example/app"); len(list) != 1 ||
		!strings.Contains(asked(t, dir, "optional")[0], `"serviceAccountAnnotations":{"role":"r-one"}`) {
		t.Errorf("logins %v, asked %s", list, asked(t, dir, "optional"))
	}
}

// TestTokenAsPassword lets a plugin return a pod's token as the password. It checks that the
// response is accepted only with cacheType Token, because only this type prevents that pods with
// other tokens get the response from the cache.
func TestTokenAsPassword(t *testing.T) {
	for cache, want := range map[string]int{"ServiceAccount": 0, "Token": 1} {
		dir, c := t.TempDir(), clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
		program(t, dir, "echo",
			response("CredentialProviderResponse", "Image", "", `{"reg.example":{"username":"u","password":"a for reg"}}`))
		p, err := pluginsOf(t, dir, entryOf("echo", "reg.example", attributesOf(cache, "", "")), c)
		if err != nil {
			t.Fatal(err)
		}
		if list := p.logins(t.Context(), accountPod("a", "one"), "reg.example/app"); len(list) != want {
			t.Errorf("%s: logins %+v", cache, list)
		}
	}
}

// TestPluginsRunConcurrently checks that a plugin is called concurrently for different images, and
// that a caller returns without the response when its context ends.
func TestPluginsRunConcurrently(t *testing.T) {
	dir, c := t.TempDir(), clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	// The script answers only after it has been called for both images.
	script := fmt.Sprintf("#!/bin/sh\ncat >%[1]s/asked.$$\nuntil grep -qs one %[1]s/asked.* && grep -qs two "+
		"%[1]s/asked.*; do sleep 0.01; done\ncat <<END\n%[2]s\nEND\n",
		dir, response("CredentialProviderResponse", "Image", "", `{"reg.example":{"username":"u","password":"p"}}`))
	if err := os.WriteFile(filepath.Join(dir, "slow"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := pluginsOf(t, dir, entryOf("slow", "reg.example", ""), c)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if list := p.logins(gone, &v1.Pod{}, "reg.example/one"); len(list) != 0 {
		t.Errorf("logins of a cancelled call: %v", list)
	}
	var wg sync.WaitGroup
	for _, image := range []string{"one", "two", "one"} {
		wg.Go(func() {
			if list := p.logins(t.Context(), &v1.Pod{}, "reg.example/"+image); len(list) != 1 {
				t.Errorf("%s: %v", image, list)
			}
		})
	}
	wg.Wait()
	if n, _ := filepath.Glob(filepath.Join(dir, "asked.*")); len(n) != 2 {
		t.Errorf("%d calls for two images", len(n))
	}
}

// TestPluginConfigs checks that all versions of the configuration are read, that the files of a
// directory are read in the order of their names, and that a metric exports the hash of their
// content.
func TestPluginConfigs(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	program(t, bin, "one", "")
	program(t, bin, "two", "")
	hash := sha256.New()
	for _, file := range []struct{ name, text string }{
		{"a.json", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"CredentialProviderConfig",` +
			`"providers":[{"name":"two","matchImages":["a"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1alpha1"}]}`},
		{"b.yml", strings.Replace(pluginHead, "/v1\n", "/v1alpha1\n", 1) +
			strings.Replace(entryOf("one", "a", ""), "k8s.io/v1\n", "k8s.io/v1beta1\n", 1)},
	} {
		if err := os.WriteFile(filepath.Join(dir, file.name), []byte(file.text), 0o600); err != nil {
			t.Fatal(err)
		}
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(file.text))))
		hash.Write([]byte(file.text))
	}
	registry := prometheus.NewRegistry()
	p, err := NewPlugins(PluginsConfig{File: dir, BinDir: bin, Metrics: registry, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.list) != 2 || p.list[0].Name != "two" || p.list[1].Name != "one" {
		t.Errorf("plugins %v", p.list)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubelet_credential_provider_config_info" {
			if got, want := f.Metric[0].Label[0].GetValue(), fmt.Sprintf("sha256:%x", hash.Sum(nil)); got != want {
				t.Errorf("sum %s, want %s", got, want)
			}
			return
		}
	}
	t.Error("the sum is not shown")
}
