// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/follow"
)

const (
	// retry is how long the agent waits after a failure, and until it looks again whether programs have
	// had the time to read changed files.
	retry = 5 * time.Second
	// recheck is how often the agent compares the files with the state even if nothing has changed.
	recheck = 10 * time.Minute
	// settle is how long after a state was applied the agent reports that. Programs read certificates
	// again every ten seconds or more often.
	settle = 30 * time.Second
)

// Agent keeps a machine's certificates as the cluster wants them.
type Agent struct {
	// Machine describes the machine. It is called for each state, because the machine may get a control
	// plane or an etcd of its own while the agent runs.
	Machine func() (*Machine, error)
	// Client has the kubelet's credentials.
	Client kubernetes.Interface
	// Administrator returns a client with the rights of an administrator. It is called only on control
	// planes, and for each request, because the administrator's certificate changes.
	Administrator func() (kubernetes.Interface, error)
	Clock         clock.Clock
	Log           *slog.Logger

	wanted atomic.Pointer[v1.ConfigMap]
	wake   chan struct{}
	// Used by one goroutine only:
	applied  string    // hash of the state that was applied last
	since    time.Time // when it was applied
	reported string    // hash of the state that was reported last
	last     string    // the error that was logged last, which is not repeated
}

// Run follows the cluster's authorities, and warns about certificates that expire soon, until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	a.wake = make(chan struct{}, 1)
	maps := follow.NewCache(follow.Config[v1.ConfigMap, v1.ConfigMap]{
		Source: follow.Source(a.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem), follow.Named(configMap)),
		Keep:   func(m *v1.ConfigMap) *v1.ConfigMap { return m },
		Changed: func(_ types.NamespacedName, _, now *v1.ConfigMap) {
			a.wanted.Store(now)
			select {
			case a.wake <- struct{}{}:
			default:
			}
		},
		Clock: a.Clock, Log: a.Log,
	})
	var all sync.WaitGroup
	all.Go(func() { a.keep(ctx) })
	all.Go(func() { a.keepWarning(ctx) })
	maps.Run(ctx)
	all.Wait()
}

// keep applies the wanted state until ctx ends.
func (a *Agent) keep(ctx context.Context) {
	for {
		wait := recheck
		if m := a.wanted.Load(); m != nil && !a.logged(a.step(ctx, m)) {
			wait = retry
		}
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-a.Clock.After(wait):
		}
	}
}

// logged logs an error unless it is nil or the previous one, and reports whether it is nil.
func (a *Agent) logged(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != a.last {
		a.Log.Warn("The cluster's authorities are not applied yet", "err", err)
	}
	a.last = text
	return err == nil
}

// errSettling is the error of step while programs have not had the time to read changed files.
var errSettling = fmt.Errorf("programs are given %s to read the changed files", settle)

// step applies a state, and reports it when programs have read the files.
func (a *Agent) step(ctx context.Context, m *v1.ConfigMap) error {
	s, err := parse(m)
	if err != nil {
		return err
	}
	machine, err := a.Machine()
	if err != nil {
		return err
	}
	if err := machine.apply(ctx, s, a.secrets, a.Client, a.Clock); err != nil {
		return err
	}
	hash := s.hash()
	if a.reported == hash {
		return nil
	}
	if a.applied != hash { // perhaps also before this agent was started
		a.applied, a.since = hash, a.Clock.Now()
	}
	if a.Clock.Since(a.since) < settle {
		return errSettling
	}
	if err := a.report(ctx, machine.Node.Name, hash); err != nil {
		return err
	}
	a.Log.Info("The cluster's authorities are applied", "hash", hash)
	a.reported = hash
	return nil
}

// report writes the hash of the applied state into a Node.
func (a *Agent) report(ctx context.Context, node, hash string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{Annotation: hash}}})
	if err != nil {
		return err
	}
	_, err = a.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// secrets reads the Secret of new authorities as administrator.
func (a *Agent) secrets(ctx context.Context) (*v1.Secret, error) {
	client, err := a.Administrator()
	if err != nil {
		return nil, err
	}
	return readSecret(ctx, client)
}

// readSecret reads the Secret of new authorities. It returns nil if there is none.
func readSecret(ctx context.Context, client kubernetes.Interface) (*v1.Secret, error) {
	s, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, keysSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keys of new authorities: %w", err)
	}
	return s, nil
}
