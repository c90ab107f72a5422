// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
)

// A token is renewed when only a fifth of its lifetime is left, or when it is one day old,
// whichever comes first. A random part of tokenJitter is subtracted from that time, so that the
// tokens of a node are not all renewed at once.
const (
	tokenMaxAge = 24 * time.Hour
	tokenJitter = 10 * time.Second
)

// tokenKey identifies a cached token by its pod, service account, audiences and lifetime.
type tokenKey struct {
	pod                    types.UID
	namespace, podName, sa string
	uid                    types.UID // required UID of the service account, or ""
	audiences              string    // the audiences, joined by NUL characters
	expiry                 time.Duration
}

type token struct {
	status authenticationv1.TokenRequestStatus
	renew  time.Time
}

// tokens caches the tokens of registered pods.
type tokens struct {
	client kubernetes.Interface
	clock  clock.Clock
	log    *slog.Logger
	random func() float64

	mu sync.Mutex
	m  map[tokenKey]token
}

func newTokens(client kubernetes.Interface, c clock.Clock, log *slog.Logger, random func() float64) *tokens {
	return &tokens{client: client, clock: c, log: log, random: random, m: map[tokenKey]token{}}
}

// ServiceAccountToken returns a token of the service account sa in pod's namespace. The token is
// bound to pod. Without audiences it is valid at the API server. expiry is the requested lifetime.
// If a cached token cannot be renewed, it is returned until it expires.
func (m *Manager) ServiceAccountToken(ctx context.Context, pod *v1.Pod, sa string, audiences []string,
	expiry time.Duration) (*authenticationv1.TokenRequestStatus, error) {
	return m.tokens.get(ctx, tokenKey{
		pod: pod.UID, namespace: pod.Namespace, podName: pod.Name, sa: sa,
		audiences: strings.Join(audiences, "\x00"), expiry: expiry,
	}, slices.Clone(audiences))
}

// TokenOfAccount returns a token of pod's service account for one audience. The token is bound to
// pod and has the server's default lifetime. If the service account does not have the UID account,
// the server rejects the request.
func (m *Manager) TokenOfAccount(ctx context.Context, pod *v1.Pod, account types.UID, audience string) (string, error) {
	status, err := m.tokens.get(ctx, tokenKey{
		pod: pod.UID, namespace: pod.Namespace, podName: pod.Name, sa: pod.Spec.ServiceAccountName,
		uid: account, audiences: audience,
	}, []string{audience})
	if err != nil {
		return "", err
	}
	return status.Token, nil
}

func (t *tokens) get(ctx context.Context, key tokenKey,
	audiences []string) (*authenticationv1.TokenRequestStatus, error) {
	t.mu.Lock()
	have, ok := t.m[key]
	t.mu.Unlock()
	now := t.clock.Now()
	if ok && now.Before(have.renew) {
		return &have.status, nil
	}
	fresh, err := t.request(ctx, key, audiences)
	switch {
	case err == nil:
	case !ok:
		return nil, fmt.Errorf("failed to fetch token: %w", err)
	case now.After(have.status.ExpirationTimestamp.Time):
		return nil, fmt.Errorf("token of service account %s/%s expired and refresh failed: %w", key.namespace, key.sa, err)
	default:
		t.log.Error("Failed to renew a token, the old one is still valid", "namespace", key.namespace, "pod",
			key.podName, "serviceAccount", key.sa, "err", err)
		return &have.status, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, old := range t.m { // also drops tokens that were requested after their pod was unregistered
		if now.After(old.status.ExpirationTimestamp.Time) {
			delete(t.m, k)
		}
	}
	t.m[key] = fresh
	return &fresh.status, nil
}

func (t *tokens) request(ctx context.Context, key tokenKey, audiences []string) (token, error) {
	request := &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: key.uid},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
				Name: key.podName, UID: key.pod},
		},
	}
	seconds := int64(key.expiry / time.Second)
	if seconds > 0 {
		request.Spec.ExpirationSeconds = &seconds
	}
	got, err := t.client.CoreV1().ServiceAccounts(key.namespace).CreateToken(ctx, key.sa, request, metav1.CreateOptions{})
	if err != nil {
		return token{}, err
	}
	if got.Spec.ExpirationSeconds != nil { // the server may have issued another lifetime
		seconds = *got.Spec.ExpirationSeconds
	}
	jitter := time.Duration(t.random() * float64(tokenJitter))
	return token{status: got.Status,
		renew: renewAt(got.Status.ExpirationTimestamp.Time, time.Duration(seconds)*time.Second, jitter)}, nil
}

// renewAt returns when to renew a token that has the lifetime life and expires at end.
func renewAt(end time.Time, life, jitter time.Duration) time.Time {
	made := end.Add(-life)
	at := end.Add(-life / 5)
	if day := made.Add(tokenMaxAge); day.Before(at) {
		at = day
	}
	return at.Add(-jitter)
}

func (t *tokens) forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.m {
		if k.pod == pod {
			delete(t.m, k)
		}
	}
}
