// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"
)

const pluginHead = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

// program writes a shell script that acts as a plugin. It appends its input to NAME.asked and
// prints body, in which shell variables are expanded.
func program(t *testing.T, dir, name, body string) {
	t.Helper()
	script := fmt.Sprintf("#!/bin/sh\ncat >>%s/%s.asked\necho >>%s/%s.asked\ncat <<END\n%s\nEND\n", dir, name,
		dir, name, body)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
}

func response(kind, scope, duration, auth string) string {
	return fmt.Sprintf(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"%s",`+
		`"cacheKeyType":"%s"%s,"auth":%s}`, kind, scope, duration, auth)
}

func pluginsOf(t *testing.T, dir, list string, c *clocktesting.FakeClock) (*Plugins, error) {
	t.Helper()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(pluginHead+list), 0o600); err != nil {
		t.Fatal(err)
	}
	return NewPlugins(PluginsConfig{
		File: file, BinDir: dir, Clock: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Token: func(_ context.Context, pod *v1.Pod, account types.UID, audience string) (string, error) {
			if account != types.UID("u-"+pod.Spec.ServiceAccountName) {
				return "", fmt.Errorf("token of the account %s", account)
			}
			return pod.Name + " for " + audience, nil
		},
		ServiceAccount: func(_ context.Context, ns, name string) (*v1.ServiceAccount, error) {
			return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name,
				UID: types.UID("u-" + name), Annotations: map[string]string{"role": "r-" + name}}}, nil
		},
	})
}

func asked(t *testing.T, dir, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name+".asked"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func entryOf(name, match, more string) string {
	return fmt.Sprintf("- name: %s\n  matchImages: [%q]\n  defaultCacheDuration: 1h\n  apiVersion: "+
		"credentialprovider.kubelet.k8s.io/v1\n%s", name, match, more)
}

func users(p *Puller, t *testing.T, pod *v1.Pod, image string) string {
	t.Helper()
	var out []string
	for _, c := range p.credentials(t.Context(), pod, image) {
		out = append(out, c.auth.Username+":"+c.auth.Password)
	}
	return strings.Join(out, " ")
}

func TestPlugins(t *testing.T) {
	dir, c := t.TempDir(), clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	program(t, dir, "registry", response("CredentialProviderResponse", "Registry", `,"cacheDuration":"5m"`,
		`{"reg.example":{"username":"wide","password":"$WORD"},"reg.example/team":{"username":"narrow","password":"p"}}`))
	program(t, dir, "image", response("CredentialProviderResponse", "Image", `,"cacheDuration":"0s"`,
		`{"*.example":{"username":"second","password":"q"}}`))
	program(t, dir, "wrong", response("Other", "Image", "", `{"reg.example":{"username":"no"}}`))
	p, err := pluginsOf(t, dir, entryOf("registry", "reg.example", "  env: [{name: WORD, value: secret}]\n")+
		entryOf("image", "*.example", "")+entryOf("wrong", "reg.example", ""), c)
	if err != nil {
		t.Fatal(err)
	}
	puller := New(Config{Plugins: p, Secrets: secrets{}})
	pod := &v1.Pod{}
	for image, want := range map[string]string{"reg.example/team/app:1": "narrow:p wide:secret second:q",
		"reg.example/app": "wide:secret second:q", "other.example/app": "second:q", "busybox": ""} {
		if got := users(puller, t, pod, image); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
	if n := len(asked(t, dir, "registry")); n != 1 {
		t.Errorf("%d calls of a plugin whose answer is valid for the registry", n)
	}
	if n := len(asked(t, dir, "image")); n != 3 {
		t.Errorf("%d calls of a plugin whose answer is not cached", n)
	}
	if got, want := asked(t, dir, "image")[0],
		`"apiVersion":"credentialprovider.kubelet.k8s.io/v1"`; !strings.Contains(got, want) {
		t.Errorf("asked %s", got)
	}
	c.Step(5 * time.Minute)
	users(puller, t, pod, "reg.example/app")
	if n := len(asked(t, dir, "registry")); n != 2 {
		t.Errorf("%d calls after the answer has expired", n)
	}
	if got := p.credentialsOfNode(t, "reg.example/app"); got {
		t.Error("a login for the node belongs to an account or a secret")
	}
}

// credentialsOfNode reports whether any login for the image comes from a service account or a
// secret.
func (p *Plugins) credentialsOfNode(t *testing.T, image string) bool {
	t.Helper()
	for _, l := range p.logins(t.Context(), &v1.Pod{}, image) {
		if l.account != nil || l.secret != nil {
			return true
		}
	}
	return false
}

func TestPluginsWithServiceAccounts(t *testing.T) {
	dir, c := t.TempDir(), clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	answer := response("CredentialProviderResponse", "Image", "", `{"reg.example":{"username":"u","password":"p"}}`)
	program(t, dir, "account", answer)
	program(t, dir, "token", answer)
	attributes := "  tokenAttributes: {serviceAccountTokenAudience: reg, cacheType: %s, " +
		"requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [%s]}\n"
	p, err := pluginsOf(t, dir,
		entryOf("account", "reg.example", fmt.Sprintf(attributes, "ServiceAccount", "role"))+
			entryOf("token", "reg.example", fmt.Sprintf(attributes, "Token", "role")), c)
	if err != nil {
		t.Fatal(err)
	}
	podOf := func(name, account string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec: v1.PodSpec{ServiceAccountName: account}}
	}
	for _, pod := range []*v1.Pod{podOf("a", "one"), podOf("b", "one"), podOf("c", "two")} {
		list := p.logins(t.Context(), pod, "reg.example/app")
		if len(list) != 2 || list[0].account == nil || list[0].account.Name != pod.Spec.ServiceAccountName {
			t.Errorf("%s: %+v", pod.Name, list)
		}
	}
	if n := len(asked(t, dir, "account")); n != 2 {
		t.Errorf("of two service accounts %d times", n)
	}
	if n := len(asked(t, dir, "token")); n != 3 {
		t.Errorf("of three tokens %d times", n)
	}
	for _, want := range []string{`"serviceAccountToken":"a for reg"`, `"serviceAccountAnnotations":{"role":"r-one"}`} {
		if got := asked(t, dir, "account")[0]; !strings.Contains(got, want) {
			t.Errorf("asked %s, without %s", got, want)
		}
	}
	if list := p.logins(t.Context(), podOf("d", ""), "reg.example/app"); len(list) != 0 {
		t.Errorf("a pod without a service account has %v", list)
	}
	if _, err := pluginsOf(t, dir,
		entryOf("account", "reg.example", fmt.Sprintf(attributes, "ServiceAccount", "missing")), c); err != nil {
		t.Error(err)
	}
}

// TestPulledForAnAccount checks that an image that was pulled with the login of a service account
// can be used only by pods with that service account.
func TestPulledForAnAccount(t *testing.T) {
	dir, c := t.TempDir(), clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	program(t, dir, "account",
		response("CredentialProviderResponse", "Image", "", `{"reg.example":{"username":"u","password":"p"}}`))
	p, err := pluginsOf(t, dir, entryOf("account", "reg.example", "  tokenAttributes: "+
		"{serviceAccountTokenAudience: reg, cacheType: ServiceAccount, requireServiceAccount: true}\n"), c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRecords(t.TempDir(), &kubeletconfig.KubeletConfiguration{}, c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const image, id = "reg.example/app:1", "sha256:1"
	puller := New(Config{Plugins: p, Secrets: secrets{}, Records: r})
	may := func(account string) bool {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{ServiceAccountName: account}}
		return r.MayUse(image, id, func() []credential { return puller.credentials(t.Context(), pod, image) })
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{ServiceAccountName: "one"}}
	if err := r.Begin(image); err != nil {
		t.Fatal(err)
	}
	r.Pulled(image, id, puller.credentials(t.Context(), pod, image)[0])
	if !may("one") || may("two") || may("") {
		t.Errorf("its own account %t, another %t, none %t", may("one"), may("two"), may(""))
	}
}

func TestInvalidPlugins(t *testing.T) {
	dir, c := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	program(t, dir, "good", "")
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string]string{
		"none":                 "",
		"no program":           entryOf("missing", "a", ""),
		"invalid program name": entryOf("data", "a", ""),
		"a path":               entryOf("../good", "a", ""),
		"twice":                entryOf("good", "a", "") + entryOf("good", "b", ""),
		"no matchImages": "- name: good\n  defaultCacheDuration: 1h\n  apiVersion: " +
			"credentialprovider.kubelet.k8s.io/v1\n",
		"no defaultCacheDuration": "- name: good\n  matchImages: [a]\n  apiVersion: " +
			"credentialprovider.kubelet.k8s.io/v1\n",
		"another version": "- name: good\n  matchImages: [a]\n  defaultCacheDuration: " +
			"1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v9\n",
		"unknown field": entryOf("good", "a", "  other: 1\n"),
		"token without audience": entryOf("good", "a",
			"  tokenAttributes: {cacheType: Token, requireServiceAccount: true}\n"),
		"invalid pattern": entryOf("good", "a b%zz", ""),
		"token in an old version": "- name: good\n  matchImages: [a]\n  defaultCacheDuration: " +
			"1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1beta1\n  tokenAttributes: " +
			"{serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}\n",
		"duplicate annotation": entryOf("good", "a", "  tokenAttributes: "+
			"{serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, "+
			"optionalServiceAccountAnnotationKeys: [b, b]}\n"),
		"annotation required and optional": entryOf("good", "a", "  tokenAttributes: "+
			"{serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, "+
			"requiredServiceAccountAnnotationKeys: [b], optionalServiceAccountAnnotationKeys: [b]}\n"),
		"invalid annotation": entryOf("good", "a", "  tokenAttributes: "+
			"{serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, "+
			"optionalServiceAccountAnnotationKeys: [b c]}\n"),
		"annotations without service account": entryOf("good", "a", "  tokenAttributes: "+
			"{serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: false, "+
			"requiredServiceAccountAnnotationKeys: [b]}\n"),
	} {
		if _, err := pluginsOf(t, dir, list, c); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
