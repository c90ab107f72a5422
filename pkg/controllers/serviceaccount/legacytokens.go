// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// LegacyTokensName is the name of the controller that deletes unused generated token Secrets.
const LegacyTokensName = "legacy-serviceaccount-token-cleaner-controller"

const (
	// lastUsed and invalidSince are labels of token Secrets. Their values are dates.
	lastUsed     = "kubernetes.io/legacy-token-last-used"
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
	// tracking is the ConfigMap with the date since which the API server records uses.
	tracking    = "kube-apiserver-legacy-service-account-token-tracking"
	sweepPeriod = 24 * time.Hour
	day         = 24 * time.Hour
)

type legacyTokens struct {
	controller.Deps
	secrets  corelisters.SecretLister
	accounts corelisters.ServiceAccountLister
	pods     corelisters.PodLister
}

// NewLegacyTokens returns the controller that marks and then deletes unused token Secrets that were
// generated automatically.
func NewLegacyTokens(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	// Request the informers here, because a lister alone does not make the factory start its
	// informer.
	core.Secrets().Informer()
	core.ServiceAccounts().Informer()
	core.Pods().Informer()
	return &legacyTokens{Deps: d, secrets: core.Secrets().Lister(), accounts: core.ServiceAccounts().Lister(),
		pods: core.Pods().Lister()}, nil
}

// Run implements controller.Controller.
func (c *legacyTokens) Run(ctx context.Context) error {
	c.sweep(ctx)
	controller.RunEvery(ctx, c.Clock, sweepPeriod, c.sweep)
	return nil
}

// sweep checks all Secrets with service account tokens. It runs once a day. If a write fails, the
// next sweep retries it.
func (c *legacyTokens) sweep(ctx context.Context) {
	if err := c.clean(ctx); err != nil && ctx.Err() == nil {
		c.Log.Error("Failed to clean up legacy tokens", "err", err)
	}
}

func (c *legacyTokens) clean(ctx context.Context) error {
	now, period := c.Clock.Now().UTC(), c.Options.Periods.LegacyTokens
	cm, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, tracking, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("date of tracking: %w", err)
	}
	since, err := time.Parse(time.DateOnly, cm.Data["since"])
	if err != nil {
		return fmt.Errorf("date of tracking: %w", err)
	}
	if endOf(since, period).After(now) {
		return nil // uses have not been recorded for long enough
	}
	secrets, err := c.secrets.List(labels.Everything())
	if err != nil {
		return err
	}
	mounted, err := c.mounted()
	if err != nil {
		return err
	}
	for _, s := range secrets {
		if s.Type != v1.SecretTypeServiceAccountToken || mounted.Has(controller.Key(s)) || !c.generated(s) {
			continue
		}
		switch plan(s, since, now, period) {
		case mark:
			err = errors.Join(err, c.mark(ctx, s, now))
		case remove:
			err = errors.Join(err, c.remove(ctx, s))
		case keep:
		}
	}
	return err
}

// mounted returns the keys of all Secrets that pods mount.
func (c *legacyTokens) mounted() (sets.Set[string], error) {
	pods, err := c.pods.List(labels.Everything())
	out := sets.New[string]()
	for _, p := range pods {
		for _, v := range p.Spec.Volumes {
			if v.Secret != nil {
				out.Insert(p.Namespace + "/" + v.Secret.SecretName)
			}
		}
	}
	return out, err
}

// generated reports whether a token was generated automatically for its service account. The
// account's list of secrets contains such tokens.
func (c *legacyTokens) generated(s *v1.Secret) bool {
	account, err := c.accounts.ServiceAccounts(s.Namespace).Get(s.Annotations[v1.ServiceAccountNameKey])
	if err != nil || string(account.UID) != s.Annotations[v1.ServiceAccountUIDKey] {
		return false // another controller deletes the tokens of deleted service accounts
	}
	return slices.ContainsFunc(account.Secrets, func(r v1.ObjectReference) bool { return r.Name == s.Name })
}

// action is what to do with a token: keep it, mark it as invalid, or remove it.
type action int

const (
	keep action = iota
	mark
	remove
)

// plan decides what to do with a generated token that no pod mounts. The argument since is the date
// since which uses are recorded.
func plan(s *v1.Secret, since, now time.Time, period time.Duration) action {
	used := since
	if at, err := time.Parse(time.DateOnly, s.Labels[lastUsed]); err == nil && at.After(used) {
		used = at
	}
	if s.CreationTimestamp.Add(period).After(now) || endOf(used, period).After(now) {
		return keep
	}
	invalid, err := time.Parse(time.DateOnly, s.Labels[invalidSince])
	switch {
	case err != nil:
		return mark
	case endOf(invalid, period).After(now):
		return keep
	}
	return remove
}

// endOf returns the end of a period that began on the given day. The time of day is unknown, so
// endOf assumes the end of that day.
func endOf(from time.Time, period time.Duration) time.Time { return from.Add(day).Add(period) }

func (c *legacyTokens) mark(ctx context.Context, s *v1.Secret, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.UID, "resourceVersion": s.ResourceVersion,
		"labels": map[string]string{invalidSince: now.Format(time.DateOnly)},
	}})
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Secrets(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return ignoreChanged("mark token", err)
}

func (c *legacyTokens) remove(ctx context.Context, s *v1.Secret) error {
	err := c.Client.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
	})
	return ignoreChanged("remove token", err)
}
