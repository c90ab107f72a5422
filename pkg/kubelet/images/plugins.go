// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"keelson.dev/api/clock"
)

// maxAnswers is the maximum number of cached responses of one plugin.
const maxAnswers = 1000

// PluginsConfig holds the settings of Plugins.
type PluginsConfig struct {
	// File is the path of a CredentialProviderConfig, or of a directory with such files. BinDir is
	// the directory that contains the plugins' programs.
	File, BinDir string
	// Token returns a token of the pod's service account for an audience. account is the UID of
	// the service account.
	Token func(ctx context.Context, pod *v1.Pod, account types.UID, audience string) (string, error)
	// ServiceAccount returns a service account.
	ServiceAccount func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	Clock          clock.Clock
	Log            *slog.Logger
	Metrics        prometheus.Registerer
}

// Plugins are the node's credential provider plugins: programs that return logins for images. A
// response is cached for the duration and the scope that it specifies. Plugins are safe for
// concurrent use.
type Plugins struct {
	cfg      PluginsConfig
	list     []*plugin
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

type plugin struct {
	kubeletconfigv1.CredentialProvider
	asking singleflight.Group // lets concurrent requests with the same image and identity share one call

	mu      sync.Mutex
	answers map[answerKey]answer
}

// answerKey identifies the requests to which a cached response applies. The field scope is an
// image, a registry, or "" for all images. The other field, copied from identity.as, says for which
// identity the plugin was called.
type answerKey struct{ scope, as string }

type answer struct {
	until time.Time
	auth  map[string]pluginapi.AuthConfig
}

// NewPlugins reads the configuration of the plugins and returns them.
func NewPlugins(cfg PluginsConfig) (*Plugins, error) {
	list, sum, err := readPlugins(cfg.File, cfg.BinDir)
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
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_credential_provider_config_info",
		ConstLabels: prometheus.Labels{"hash": sum},
		Help:        "[ALPHA] Information about the last applied credential provider configuration with hash as label"})
	info.Set(1)
	cfg.Metrics.MustRegister(p.errors, p.duration, info)
	for _, one := range list {
		p.list = append(p.list, &plugin{CredentialProvider: one, answers: map[answerKey]answer{}})
	}
	return p, nil
}

// errNotForPod is returned if a plugin does not apply to a pod, for example because the pod's
// service account lacks a required annotation.
var errNotForPod = errors.New("the plugin does not apply to the pod")

// logins returns the logins of all plugins whose configuration matches the image, in the order of
// the configuration. It skips a plugin that fails.
func (p *Plugins) logins(ctx context.Context, pod *v1.Pod, image string) []login {
	if p == nil {
		return nil
	}
	var out []login
	for _, one := range p.list {
		if !slices.ContainsFunc(one.MatchImages, func(m string) bool { return matchesRegistry(m, image) }) {
			continue
		}
		auth, account, err := p.ask(ctx, one, pod, image)
		switch {
		case errors.Is(err, errNotForPod):
			p.cfg.Log.Debug("Skipped a credential provider", "plugin", one.Name, "image", image, "err", err)
		case err != nil:
			p.cfg.Log.Warn("Failed to run a credential provider", "plugin", one.Name, "image", image, "err", err)
		}
		for key, a := range auth {
			if matchesRegistry(key, image) {
				out = append(out, login{key,
					credential{auth: &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password}, account: account}})
			}
		}
	}
	return out
}

// identity is the service account for which a plugin is called, or the node.
type identity struct {
	account     *kubeletconfig.ImagePullServiceAccount // nil if the plugin is called for the node
	annotations map[string]string
	token       string
	as          string // part of the cache key: equal for identities that share cached responses
}

// ask returns a plugin's response, from the cache if possible, and the service account for which
// the plugin was called. The service account is nil if the plugin was called for the node.
func (p *Plugins) ask(ctx context.Context, one *plugin, pod *v1.Pod,
	image string) (map[string]pluginapi.AuthConfig, *kubeletconfig.ImagePullServiceAccount, error) {
	who, err := p.identify(ctx, one, pod)
	if err != nil {
		return nil, nil, err
	}
	if auth, ok := one.remembered(image, who.as, p.cfg.Clock.Now()); ok {
		return auth, who.account, nil
	}
	// Requests with different tokens do not share a call, because the response may be valid only
	// for the token in the request.
	flight := fmt.Sprintf("%s\x00%s\x00%x", image, who.as, sha256.Sum256([]byte(who.token)))
	asked := one.asking.DoChan(flight, func() (any, error) {
		return p.fresh(context.WithoutCancel(ctx), one, image, who)
	})
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case said := <-asked:
		auth, _ := said.Val.(map[string]pluginapi.AuthConfig)
		return auth, who.account, said.Err
	}
}

// fresh calls a plugin and caches its response.
func (p *Plugins) fresh(ctx context.Context, one *plugin, image string,
	who identity) (map[string]pluginapi.AuthConfig, error) {
	response, err := p.run(ctx, one, &pluginapi.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: one.APIVersion, Kind: "CredentialProviderRequest"}, Image: image,
		ServiceAccountToken: who.token, ServiceAccountAnnotations: who.annotations,
	})
	if err != nil {
		return nil, err
	}
	if t := one.TokenAttributes; who.token != "" && t.CacheType != kubeletconfigv1.TokenServiceAccountTokenCacheType {
		for _, a := range response.Auth {
			// With this cacheType, the response is cached for all pods of the service account, but
			// the token belongs to this pod alone. Other pods must not get it.
			if a.Password == who.token {
				return nil, errors.New(
					"the plugin returned the service account's token as the password, which requires cacheType Token")
			}
		}
	}
	life := one.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		life = response.CacheDuration.Duration
	}
	now := p.cfg.Clock.Now()
	one.remember(answerKey{scope(response.CacheKeyType, image), who.as}, answer{now.Add(life), response.Auth}, now)
	return response.Auth, nil
}

// scope returns the part of the cache key that says for which images a response is valid.
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
	for _, t := range []pluginapi.PluginCacheKeyType{pluginapi.ImagePluginCacheKeyType,
		pluginapi.RegistryPluginCacheKeyType, pluginapi.GlobalPluginCacheKeyType} {
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

// identify returns the identity for which to call a plugin about a pod's image. It is the pod's
// service account if the plugin's configuration requests service account tokens and the pod has a
// service account. Otherwise it is the node.
func (p *Plugins) identify(ctx context.Context, one *plugin, pod *v1.Pod) (identity, error) {
	t, name := one.TokenAttributes, pod.Spec.ServiceAccountName
	switch {
	case t == nil, name == "" && !*t.RequireServiceAccount:
		return identity{}, nil
	case name == "":
		return identity{}, fmt.Errorf("%w: it has no service account", errNotForPod)
	}
	sa, err := p.cfg.ServiceAccount(ctx, pod.Namespace, name)
	if err != nil {
		return identity{}, fmt.Errorf("service account %s/%s: %w", pod.Namespace, name, err)
	}
	who := identity{
		account:     &kubeletconfig.ImagePullServiceAccount{UID: string(sa.UID), Namespace: pod.Namespace, Name: name},
		annotations: map[string]string{},
	}
	// The plugin applies only to service accounts that have all of these annotations.
	for _, key := range t.RequiredServiceAccountAnnotationKeys {
		value, ok := sa.Annotations[key]
		if !ok {
			return identity{}, fmt.Errorf("%w: its service account lacks the annotation %s", errNotForPod, key)
		}
		who.annotations[key] = value
	}
	for _, key := range t.OptionalServiceAccountAnnotationKeys {
		if value, ok := sa.Annotations[key]; ok {
			who.annotations[key] = value
		}
	}
	if who.token, err = p.cfg.Token(ctx, pod, sa.UID, t.ServiceAccountTokenAudience); err != nil {
		return identity{}, fmt.Errorf("token of service account %s/%s: %w", pod.Namespace, name, err)
	}
	// Sprintf prints maps sorted by key, so equal annotations give equal strings.
	who.as = fmt.Sprintf("%s/%s %s %q", pod.Namespace, name, sa.UID, who.annotations)
	if t.CacheType == kubeletconfigv1.TokenServiceAccountTokenCacheType {
		who.as += fmt.Sprintf(" %x", sha256.Sum256([]byte(who.token)))
	}
	return who, nil
}
