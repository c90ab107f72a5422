// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Secrets are encrypted in the store. The file encryption.yaml holds the keys, and also records the
// state of a key rotation:
//
//   - If the file has one key and does not permit unencrypted secrets, no rotation is in progress,
//     and all secrets are encrypted with this key.
//   - If it has several keys or permits unencrypted secrets, a rotation is in progress. New values are
//     encrypted with the first key. Older values may be encrypted with the other keys or unencrypted.
//
// A rotation that was interrupted can therefore be continued by a later call, any number of times.

const (
	// reloadPatience is how long to wait for the API server to reload a changed encryption.yaml.
	// The API server checks the file once a minute.
	reloadPatience = 3 * time.Minute
	reloadPoll     = time.Second
	// secretsPage is how many secrets one list request returns.
	secretsPage = 250
	keyLength   = 32
)

var (
	errForeignEncryption = errors.New(
		"the encryption configuration was not written by ctl (secretbox, for secrets); rotate its keys by hand")
	errNotTakenUp = errors.New("the API server has not reloaded the keys")
	errKeyGone    = errors.New("the snapshot's secrets are encrypted with keys that the cluster no longer has")
)

// encryption is the content of encryption.yaml: the keys, the current key first. plain is true if
// the store may still contain unencrypted secrets.
type encryption struct {
	keys  []apiserverv1.Key
	plain bool
}

// settled reports whether no rotation is in progress, so that all secrets are encrypted with one
// key.
func (e *encryption) settled() bool { return len(e.keys) == 1 && !e.plain }

func (e *encryption) names() []string {
	var out []string
	for _, k := range e.keys {
		out = append(out, k.Name)
	}
	return out
}

// add creates an encryption key and makes it the current key.
func (e *encryption) add() error {
	name, err := letters(8)
	if err != nil {
		return err
	}
	secret := make([]byte, keyLength)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("encryption key: %w", err)
	}
	e.keys = slices.Insert(e.keys, 0, apiserverv1.Key{Name: name, Secret: base64.StdEncoding.EncodeToString(secret)})
	return nil
}

// makeEncryption creates the first encryption key if there is no key yet. Secrets that an older
// version stored unencrypted remain readable.
func makeEncryption(d dirs) error {
	if exists(d.encryption()) {
		return os.Chmod(d.encryption(), 0o600)
	}
	e := &encryption{plain: exists(d.store())}
	if err := e.add(); err != nil {
		return err
	}
	_, err := e.write(d.encryption())
	return err
}

func readEncryption(file string) (*encryption, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("encryption keys: %w", err)
	}
	cfg := apiserverv1.EncryptionConfiguration{}
	if err := yaml.UnmarshalStrict(data, &cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(cfg.Resources) != 1 || !slices.Equal(cfg.Resources[0].Resources, []string{"secrets"}) {
		return nil, fmt.Errorf("%s: %w", file, errForeignEncryption)
	}
	e := &encryption{}
	for i, p := range cfg.Resources[0].Providers {
		switch {
		case i == 0 && p.Secretbox != nil:
			e.keys = p.Secretbox.Keys
		case i == 1 && p.Identity != nil:
			e.plain = true
		default:
			return nil, fmt.Errorf("%s: %w", file, errForeignEncryption)
		}
	}
	if len(e.keys) == 0 {
		return nil, fmt.Errorf("%s: %w", file, errForeignEncryption)
	}
	return e, nil
}

// write stores the keys in the file, and returns the hash that the API server will report for the
// file. The file is synced to disk before the API server can use a new key, because losing a key
// would lose all secrets that are encrypted with it.
func (e *encryption) write(file string) (hash string, err error) {
	providers := []apiserverv1.ProviderConfiguration{{Secretbox: &apiserverv1.SecretboxConfiguration{Keys: e.keys}}}
	if e.plain {
		providers = append(providers, apiserverv1.ProviderConfiguration{Identity: &apiserverv1.IdentityConfiguration{}})
	}
	data, err := yaml.Marshal(apiserverv1.EncryptionConfiguration{
		TypeMeta:  metav1.TypeMeta{APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration"},
		Resources: []apiserverv1.ResourceConfiguration{{Resources: []string{"secrets"}, Providers: providers}},
	})
	if err != nil {
		return "", fmt.Errorf("encode encryption keys: %w", err)
	}
	if err := atomicfile.WriteDurably(file, data, 0o600); err != nil {
		return "", fmt.Errorf("encryption keys: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data)), nil
}

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
	r := &rotation{file: c.dirs().encryption(), client: client, p: newProgress(deps), poll: reloadPoll}
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
	e, err := readEncryption(r.file)
	if err != nil {
		return err
	}
	if e.settled() {
		if err := e.add(); err != nil {
			return err
		}
	} else {
		r.p.sayf("an earlier rotation was interrupted, continuing it with key %s", e.keys[0].Name)
	}
	if err := r.apply(ctx, e); err != nil {
		return err
	}
	r.p.sayf("new secrets are encrypted with key %s", e.keys[0].Name)
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
	e.keys, e.plain = e.keys[:1], false
	if err := r.apply(ctx, e); err != nil {
		return err
	}
	r.p.sayf("all secrets are encrypted with key %s, and the old keys are deleted", e.keys[0].Name)
	return nil
}

// apply stores the encryption keys and waits until the API server uses them.
func (r *rotation) apply(ctx context.Context, e *encryption) error {
	hash, err := e.write(r.file)
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
