// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/provision"
)

// A rotation of the encryption keys that was interrupted can be continued by a later call, any number
// of times, because the file of the keys records its state (see [provision.EncryptionKeys]).

const (
	// reloadPatience is how long to wait for the API server to reload a changed encryption.yaml.
	// The API server checks the file once a minute.
	reloadPatience = 3 * time.Minute
	reloadPoll     = time.Second
	// secretsPage is how many secrets one list request returns.
	secretsPage = 250
)

var (
	errNotTakenUp = errors.New("the API server has not reloaded the keys")
	errKeyGone    = errors.New("the snapshot's secrets are encrypted with keys that the cluster no longer has")
)

// RotateEncryption creates a new key, encrypts all secrets of a running cluster with it, and
// deletes the old key. If an earlier rotation was interrupted, it completes that rotation. It may
// itself be interrupted at any point.
func RotateEncryption(ctx context.Context, c *Config, deps Deps) error {
	if c.replicated() {
		return fmt.Errorf("%w: keys cannot be rotated, because the load balancer hides which API servers "+
			"use a new key", errOwnEtcd)
	}
	unlock, err := lockFile(filepath.Join(runRoot, c.Name+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	client, err := machineClient(c)
	if err != nil {
		return err
	}
	r := &rotation{file: c.dirs().control().EncryptionKeys(), client: client, p: newProgress(deps), poll: reloadPoll}
	return r.run(ctx)
}

// rotation is one rotation of the encryption key, with what it needs.
type rotation struct {
	file   string
	client kubernetes.Interface
	p      *progress
	poll   time.Duration // interval between checks of whether the API server uses the new version of the file
}

func (r *rotation) run(ctx context.Context) error {
	e, err := provision.ReadEncryptionKeys(r.file)
	if err != nil {
		return err
	}
	if e.Settled() {
		if err := e.Add(); err != nil {
			return err
		}
	} else {
		r.p.sayf("an earlier rotation was interrupted, continuing it with key %s", e.Keys[0].Name)
	}
	if err := r.apply(ctx, e); err != nil {
		return err
	}
	r.p.sayf("new secrets are encrypted with key %s", e.Keys[0].Name)
	// Repeat until no secret changes, because clients may have written secrets with the old key
	// during the first pass.
	for {
		changed, err := r.rewrite(ctx)
		if err != nil {
			return err
		}
		if changed == 0 {
			break
		}
		r.p.sayf("encrypted %d secrets again with the new key", changed)
	}
	e.Keys, e.Plain = e.Keys[:1], false
	if err := r.apply(ctx, e); err != nil {
		return err
	}
	r.p.sayf("all secrets are encrypted with key %s, and the old keys are deleted", e.Keys[0].Name)
	return nil
}

// apply stores the encryption keys and waits until the API server uses them.
func (r *rotation) apply(ctx context.Context, e *provision.EncryptionKeys) error {
	hash, err := e.Write(r.file)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reloadPatience)
	defer cancel()
	for {
		err := r.takenUp(ctx, hash)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("encryption keys: %w", err)
		case <-r.p.deps.Clock.After(r.poll):
		}
	}
}

// takenUp returns nil if the API server uses the version of the encryption configuration with the
// given hash, and otherwise an error.
func (r *rotation) takenUp(ctx context.Context, hash string) error {
	metrics, err := r.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "apiserver_encryption_config_controller_last_config_info{") &&
			strings.Contains(line, hash) {
			return nil
		}
	}
	return errNotTakenUp
}

// rewrite updates every secret with its own content, and returns how many of them changed in the
// store. The API server encrypts a secret again on such an update if it was stored with another
// key.
func (r *rotation) rewrite(ctx context.Context) (changed int, err error) {
	api := r.client.CoreV1()
	for next := ""; ; {
		page, err := api.Secrets("").List(ctx, metav1.ListOptions{Limit: secretsPage, Continue: next})
		if apierrors.IsResourceExpired(err) {
			return changed + 1, nil // not 0, so that the caller starts again at the first page
		}
		if err != nil {
			return changed, fmt.Errorf("secrets: %w", err)
		}
		for i := range page.Items {
			s := &page.Items[i]
			got, err := api.Secrets(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
			switch {
			// The secret was deleted or written meanwhile. A write has encrypted it with the
			// current key.
			case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			case err != nil:
				return changed, fmt.Errorf("secret %s/%s: %w", s.Namespace, s.Name, err)
			case got.ResourceVersion != s.ResourceVersion:
				changed++
			}
		}
		if next = page.Continue; next == "" {
			return changed, nil
		}
	}
}
