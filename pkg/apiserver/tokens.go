// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/satoken"
)

// loadSigningKey reads the key that signs service account tokens, unless an external signer is
// configured.
func (s *Server) loadSigningKey() (err error) {
	if s.cfg.ServiceAccountSigner == "" {
		s.issuer, err = satoken.LoadIssuer(s.cfg.ServiceAccountIssuers[0], s.cfg.ServiceAccountSignKey)
	}
	return err
}

// loadVerifyingKeys reads the keys that verify tokens, unless an external signer has them.
func (s *Server) loadVerifyingKeys() error {
	if s.cfg.ServiceAccountSigner != "" {
		return nil
	}
	keys, err := satoken.LoadKeyFiles(s.cfg.ServiceAccountKeyFiles...)
	s.keys = keys
	return err
}

// startTokens starts the client of the external signer. Without an external signer, it starts the
// reload of the key files.
func (s *Server) startTokens(ctx context.Context, background *sync.WaitGroup) error {
	if files, ok := s.keys.(*satoken.KeyFiles); ok {
		background.Go(func() { files.Run(ctx, s.deps.Clock, s.log) })
		return nil
	}
	signer, err := satoken.DialExternal(ctx, s.cfg.ServiceAccountSigner, s.deps.Clock, s.log,
		satoken.NewExternalMetrics(s.deps.Metrics))
	if err != nil {
		return err
	}
	background.Go(func() { signer.Run(ctx) })
	if m := s.cfg.ServiceAccountMaxExpiry; m > signer.MaxExpiry {
		return fmt.Errorf("service-account-max-token-expiration cannot be set longer than the token "+
			"expiration supported by service-account-signing-endpoint: %s > %s", m, signer.MaxExpiry)
	}
	s.signer, s.keys, s.issuer = signer, signer, signer.Issuer(s.cfg.ServiceAccountIssuers[0])
	return nil
}

// signerMax returns the maximum lifetime of tokens of the external signer, or 0 if there is no
// external signer.
func (s *Server) signerMax() time.Duration {
	if s.signer == nil {
		return 0
	}
	return s.signer.MaxExpiry
}

// maxExpiry returns the maximum lifetime of a requested token, or 0 if it is not limited.
func (s *Server) maxExpiry() time.Duration {
	if m := s.cfg.ServiceAccountMaxExpiry; m != 0 {
		return m
	}
	return s.signerMax()
}

// noteUse labels the secret of a legacy token with the date of its last use, at most once a day.
func (a *assembly) noteUse(ctx context.Context, secret *corev1.Secret) {
	now := a.server.deps.Clock.Now().UTC()
	today, tomorrow := now.Format(time.DateOnly), now.AddDate(0, 0, 1).Format(time.DateOnly)
	if last := secret.Labels[satoken.LastUsedLabel]; last == today || last == tomorrow {
		return // already recorded; tomorrow's date is possible if another server's clock is ahead
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": secret.UID, "labels": map[string]string{satoken.LastUsedLabel: today},
	}})
	if err == nil {
		_, err = a.self.client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType,
			patch, metav1.PatchOptions{})
	}
	if err != nil {
		a.server.log.Error("Failed to record use of a token", "namespace", secret.Namespace, "secret",
			secret.Name, "err", err)
	}
}
