// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"keelson.dev/api/clock"
)

const (
	// pluginTimeout bounds one call of a plugin, maxAnswer what it may say.
	pluginTimeout = time.Minute
	maxAnswer     = 1 << 20
	// maxAnswers bounds the answers of one plugin that are remembered.
	maxAnswers = 1000
)

// PluginsConfig is what Plugins need.
type PluginsConfig struct {
	// File names the plugins, in a CredentialProviderConfig; their programs are in BinDir.
	File, BinDir string
	// Token is a token of the pod's service account for an audience.
	Token func(ctx context.Context, pod *v1.Pod, audience string) (string, error)
	// ServiceAccount is the pod's service account.
	ServiceAccount func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	Clock          clock.Clock
	Log            *slog.Logger
	Metrics        prometheus.Registerer
}

// Plugins are the credential providers of the node: programs that give logins for images. Each is asked once for
// what it then says its answer is good for, and as long as it says. They are safe for concurrent use.
type Plugins struct {
	cfg      PluginsConfig
	list     []*plugin
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

type plugin struct {
	kubeletconfigv1.CredentialProvider
	asking sync.Mutex // held while the program runs: what it answers may be for those who wait

	mu      sync.Mutex
	answers map[answerKey]answer
}

// answerKey is what an answer is good for: an image, a registry or everything, as somebody.
type answerKey struct{ scope, as string }

type answer struct {
	until time.Time
	auth  map[string]pluginapi.AuthConfig
}

// NewPlugins reads which plugins there are.
func NewPlugins(cfg PluginsConfig) (*Plugins, error) {
	list, err := readPlugins(cfg.File, cfg.BinDir)
	if err != nil {
		return nil, fmt.Errorf("credential providers: %w", err)
	}
	p := &Plugins{
		cfg: cfg,
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_credential_provider_plugin_errors_total",
			Help: "[ALPHA] Number of errors from credential provider plugin"}, []string{"plugin_name"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_credential_provider_plugin_duration",
			Help: "[ALPHA] Duration of execution in seconds for credential provider plugin"}, []string{"plugin_name"}),
	}
	cfg.Metrics.MustRegister(p.errors, p.duration)
	for _, one := range list {
		p.list = append(p.list, &plugin{CredentialProvider: one, answers: map[answerKey]answer{}})
	}
	return p, nil
}

// logins are those of all plugins that know the image, in the order of the configuration, by the registries that they are for. A plugin that fails
// has none.
func (p *Plugins) logins(ctx context.Context, pod *v1.Pod, image string) []login {
	if p == nil {
		return nil
	}
	var out []login
	for _, one := range p.list {
		if !slices.ContainsFunc(one.MatchImages, func(m string) bool { return matchesRegistry(m, image) }) {
			continue
		}
		begun := p.cfg.Clock.Now()
		auth, account, err := p.ask(ctx, one, pod, image)
		p.duration.WithLabelValues(one.Name).Observe(p.cfg.Clock.Since(begun).Seconds())
		if err != nil {
			p.errors.WithLabelValues(one.Name).Inc()
			p.cfg.Log.Warn("Credential provider gives no login", "plugin", one.Name, "image", image, "err", err)
			continue
		}
		for key, a := range auth {
			if matchesRegistry(key, image) {
				out = append(out, login{key, credential{auth: &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password}, account: account}})
			}
		}
	}
	return out
}

// ask gives what a plugin says, or said. The account is nil if what it says does not depend on it.
func (p *Plugins) ask(ctx context.Context, one *plugin, pod *v1.Pod, image string) (map[string]pluginapi.AuthConfig, *kubeletconfig.ImagePullServiceAccount, error) {
	request := &pluginapi.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: one.APIVersion, Kind: "CredentialProviderRequest"}, Image: image,
	}
	as, account, err := p.identify(ctx, one, pod, request)
	if err != nil {
		return nil, nil, err
	}
	if auth, ok := one.remembered(image, as, p.cfg.Clock.Now()); ok {
		return auth, account, nil
	}
	one.asking.Lock()
	defer one.asking.Unlock()
	if auth, ok := one.remembered(image, as, p.cfg.Clock.Now()); ok { // another pod asked meanwhile
		return auth, account, nil
	}
	response, err := p.run(ctx, one, request)
	if err != nil {
		return nil, nil, err
	}
	life := one.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		life = response.CacheDuration.Duration
	}
	one.remember(answerKey{scope(response.CacheKeyType, image), as}, answer{p.cfg.Clock.Now().Add(life), response.Auth}, p.cfg.Clock.Now())
	return response.Auth, account, nil
}

// scope is what an answer about an image is good for.
func scope(t pluginapi.PluginCacheKeyType, image string) string {
	switch t {
	case pluginapi.GlobalPluginCacheKeyType:
		return ""
	case pluginapi.RegistryPluginCacheKeyType:
		host, _, _ := strings.Cut(image, "/")
		return host
	}
	return image
}

func (one *plugin) remembered(image, as string, now time.Time) (map[string]pluginapi.AuthConfig, bool) {
	one.mu.Lock()
	defer one.mu.Unlock()
	for _, t := range []pluginapi.PluginCacheKeyType{pluginapi.ImagePluginCacheKeyType, pluginapi.RegistryPluginCacheKeyType, pluginapi.GlobalPluginCacheKeyType} {
		if a, ok := one.answers[answerKey{scope(t, image), as}]; ok && now.Before(a.until) {
			return a.auth, true
		}
	}
	return nil, false
}

func (one *plugin) remember(key answerKey, a answer, now time.Time) {
	one.mu.Lock()
	defer one.mu.Unlock()
	for k, old := range one.answers {
		if !now.Before(old.until) || len(one.answers) >= maxAnswers {
			delete(one.answers, k)
		}
	}
	if now.Before(a.until) {
		one.answers[key] = a
	}
}

// identify completes the request by who the pod is, if the plugin wants to know, and says for whom the answer is.
func (p *Plugins) identify(ctx context.Context, one *plugin, pod *v1.Pod, request *pluginapi.CredentialProviderRequest) (string, *kubeletconfig.ImagePullServiceAccount, error) {
	t := one.TokenAttributes
	if t == nil {
		return "", nil, nil
	}
	name := pod.Spec.ServiceAccountName
	if name == "" {
		if *t.RequireServiceAccount {
			return "", nil, errors.New("the pod has no service account, and the plugin wants one")
		}
		return "", nil, nil
	}
	sa, err := p.cfg.ServiceAccount(ctx, pod.Namespace, name)
	if err != nil {
		return "", nil, fmt.Errorf("service account %s/%s: %w", pod.Namespace, name, err)
	}
	request.ServiceAccountAnnotations = map[string]string{}
	for _, key := range t.RequiredServiceAccountAnnotationKeys {
		value, ok := sa.Annotations[key]
		if !ok {
			return "", nil, fmt.Errorf("service account %s/%s lacks the annotation %s", pod.Namespace, name, key)
		}
		request.ServiceAccountAnnotations[key] = value
	}
	for _, key := range t.OptionalServiceAccountAnnotationKeys {
		if value, ok := sa.Annotations[key]; ok {
			request.ServiceAccountAnnotations[key] = value
		}
	}
	if request.ServiceAccountToken, err = p.cfg.Token(ctx, pod, t.ServiceAccountTokenAudience); err != nil {
		return "", nil, fmt.Errorf("token of service account %s/%s: %w", pod.Namespace, name, err)
	}
	who := []any{pod.Namespace, name, sa.UID, request.ServiceAccountAnnotations}
	if t.CacheType == kubeletconfigv1.TokenServiceAccountTokenCacheType {
		who = append(who, request.ServiceAccountToken)
	}
	return fmt.Sprint(who...), &kubeletconfig.ImagePullServiceAccount{UID: string(sa.UID), Namespace: pod.Namespace, Name: name}, nil
}

// run runs a plugin's program.
func (p *Plugins) run(ctx context.Context, one *plugin, request *pluginapi.CredentialProviderRequest) (*pluginapi.CredentialProviderResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.cfg.BinDir, one.Name), one.Args...)
	cmd.Env = os.Environ()
	for _, e := range one.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	out, complaint := &bounded{left: maxAnswer}, &bounded{left: 4 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(body), out, complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	response := &pluginapi.CredentialProviderResponse{}
	if err := json.Unmarshal(out.Bytes(), response); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	switch {
	case response.APIVersion != one.APIVersion || response.Kind != "CredentialProviderResponse":
		return nil, fmt.Errorf("answer is %q %q, not %s CredentialProviderResponse", response.APIVersion, response.Kind, one.APIVersion)
	case !slices.Contains([]pluginapi.PluginCacheKeyType{pluginapi.ImagePluginCacheKeyType, pluginapi.RegistryPluginCacheKeyType, pluginapi.GlobalPluginCacheKeyType}, response.CacheKeyType):
		return nil, fmt.Errorf("answer has the cacheKeyType %q", response.CacheKeyType)
	}
	return response, nil
}

// bounded keeps the beginning of what is written.
type bounded struct {
	bytes.Buffer
	left int
}

// Write implements io.Writer.
func (b *bounded) Write(data []byte) (int, error) {
	n := min(len(data), b.left)
	b.left -= n
	b.Buffer.Write(data[:n])
	return len(data), nil
}
