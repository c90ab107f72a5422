// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstraptoken

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func token(id, secret, expiration string) *v1.Secret {
	s := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id},
		Type:       v1.SecretTypeBootstrapToken,
		Data:       map[string][]byte{keyID: []byte(id), keySecret: []byte(secret), keySigning: []byte("true")},
	}
	if expiration != "" {
		s.Data[keyExpiration] = []byte(expiration)
	}
	return s
}

func TestSigned(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	mute := token("cccccc", "0123456789abcdef", "")
	mute.Data[keySigning] = []byte("false")
	misnamed := token("dddddd", "0123456789abcdef", "")
	misnamed.Name = "bootstrap-token-other"
	tokens := []*v1.Secret{
		token("aaaaaa", "0123456789abcdef", ""),
		token("bbbbbb", "fedcba9876543210", "2026-01-01T13:00:00Z"),
		token("eeeeee", "0123456789abcdef", "2026-01-01T11:00:00Z"),
		token("ffffff", "0123456789abcdef", "soon"),
		mute, misnamed,
	}
	before := map[string]string{infoKey: "the cluster", "other": "kept", signaturePrefix +
		"gggggg": "of a token that is gone"}
	data, err := withSignatures(before, tokens, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != 4 || data["other"] != "kept" || data[infoKey] != "the cluster" {
		t.Errorf("%v", data)
	}
	// These signatures of the same content with the same tokens were created by other programs.
	for id, want := range map[string]string{
		"aaaaaa": "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFhYWFhYSJ9..3kM-VgQfl6EZofM-NDOtyU9P81dswmWboO3TXf7F_Ms",
		"bbbbbb": "eyJhbGciOiJIUzI1NiIsImtpZCI6ImJiYmJiYiJ9..0stVWcnKdm9g62XR1khu2unKfyKvkxdCBvj7G-UuFaU",
	} {
		if got := data[signaturePrefix+id]; got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
	if again, err := withSignatures(data, tokens, now); err != nil ||
		again[signaturePrefix+"aaaaaa"] != data[signaturePrefix+"aaaaaa"] {
		t.Errorf("signing again changes the signature: %v, %v", again, err)
	}
	if got := nextExpiry(tokens, now); got != time.Hour {
		t.Errorf("next expiry %v", got)
	}
	if data, err := withSignatures(map[string]string{signaturePrefix + "aaaaaa": "of nothing"}, tokens,
		now); err != nil || len(data) > 0 {
		t.Errorf("without content: %v, %v", data, err)
	}
}

func TestTokens(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx := t.Context()
	info := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: infoName}, Data: map[string]string{infoKey: "the cluster"}}
	if _, err := s.Client.CoreV1().ConfigMaps("kube-public").Create(ctx, info, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tok := range []*v1.Secret{token("aaaaaa", "0123456789abcdef", ""),
		token("bbbbbb", "0123456789abcdef", "2020-01-01T00:00:00Z")} {
		if _, err := s.Client.CoreV1().Secrets("kube-system").Create(ctx, tok, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	controllertest.Run(t, s, controller.Options{}, NewSigning, NewCleaning)
	signatures := func(want int) func(ctx context.Context) (any, bool) {
		return func(ctx context.Context) (any, bool) {
			got, err := s.Client.CoreV1().ConfigMaps("kube-public").Get(ctx, infoName, metav1.GetOptions{})
			return got, err == nil && len(got.Data) == 1+want
		}
	}
	controllertest.Eventually(t, "one signature", signatures(1))
	controllertest.Eventually(t, "the expired token is gone", func(ctx context.Context) (any, bool) {
		got, err := s.Client.CoreV1().Secrets("kube-system").Get(ctx, "bootstrap-token-bbbbbb", metav1.GetOptions{})
		return got, apierrors.IsNotFound(err)
	})
	if err := s.Client.CoreV1().Secrets("kube-system").Delete(ctx, "bootstrap-token-aaaaaa",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "no signature of a token that is gone", signatures(0))
}
