// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podPrefix is the prefix of those volume attributes that contain data about the pod.
const podPrefix = "csi.storage.k8s.io/"

const (
	tokens = podPrefix + "serviceAccount.tokens"
	// defaultExpiry is the lifetime of a token if the driver's request does not specify it.
	defaultExpiry = time.Hour
)

// podAttributes returns the volume attributes with data about the pod. They are passed to drivers
// that request them.
func podAttributes(pod *v1.Pod, mode storagev1.VolumeLifecycleMode) map[string]string {
	return map[string]string{
		podPrefix + "pod.name": pod.Name, podPrefix + "pod.namespace": pod.Namespace, podPrefix + "pod.uid": string(pod.UID),
		podPrefix + "serviceAccount.name": pod.Spec.ServiceAccountName,
		podPrefix + "ephemeral":           strconv.FormatBool(mode == storagev1.VolumeLifecycleEphemeral),
	}
}

func isPodAttribute(key string) bool {
	name, ok := strings.CutPrefix(key, podPrefix)
	return ok && (strings.HasPrefix(name, "pod.") || strings.HasPrefix(name, "serviceAccount.") || name == "ephemeral")
}

// complete adds secrets to a request and, if the driver requests them, attributes with data about
// the pod and service account tokens.
func (m *Manager) complete(ctx context.Context, pod *v1.Pod, v Volume, r *request) error {
	var err error
	if r.stageSecrets, r.publishSecrets, err = m.secrets(ctx, pod, v); err != nil {
		return err
	}
	if r.object == nil {
		return nil
	}
	r.attributes = maps.Clone(r.attributes)
	if r.attributes == nil {
		r.attributes = map[string]string{}
	}
	if info := r.object.Spec.PodInfoOnMount; info != nil && *info {
		maps.Copy(r.attributes, podAttributes(pod, r.mode))
	}
	if len(r.object.Spec.TokenRequests) == 0 {
		return nil
	}
	text, err := m.tokens(ctx, pod, r.object.Spec.TokenRequests)
	if err != nil {
		return err
	}
	if in := r.object.Spec.ServiceAccountTokenInSecrets; in == nil || !*in {
		r.attributes[tokens] = text
		return nil
	}
	if r.publishSecrets == nil {
		r.publishSecrets = map[string]string{}
	}
	r.publishSecrets[tokens] = text
	return nil
}

// tokens returns tokens of the pod's service account, one for each audience that the driver
// requests. The result is JSON.
func (m *Manager) tokens(ctx context.Context, pod *v1.Pod, requests []storagev1.TokenRequest) (string, error) {
	out := map[string]authenticationv1.TokenRequestStatus{}
	for _, t := range requests {
		var audiences []string
		if t.Audience != "" {
			audiences = []string{t.Audience}
		}
		expiry := defaultExpiry
		if t.ExpirationSeconds != nil {
			expiry = time.Duration(*t.ExpirationSeconds) * time.Second
		}
		status, err := m.cfg.Token(ctx, pod, pod.Spec.ServiceAccountName, audiences, expiry)
		if err != nil {
			return "", fmt.Errorf("token for the driver: %w", err)
		}
		out[t.Audience] = *status
	}
	b, err := json.Marshal(out)
	if err != nil {
		return "", fmt.Errorf("tokens for the driver: %w", err)
	}
	return string(b), nil
}

// secrets reads the Secrets that the volume refers to, for the calls that stage and publish it.
func (m *Manager) secrets(ctx context.Context, pod *v1.Pod, v Volume) (stage, publish map[string]string, err error) {
	if v.PV == nil {
		if ref := v.Inline.NodePublishSecretRef; ref != nil {
			publish, err = m.secret(ctx, "NodePublishSecretRef", &v1.SecretReference{Namespace: pod.Namespace, Name: ref.Name})
		}
		return nil, publish, err
	}
	if stage, err = m.secret(ctx, "NodeStageSecretRef", v.PV.Spec.CSI.NodeStageSecretRef); err != nil {
		return nil, nil, err
	}
	publish, err = m.secret(ctx, "NodePublishSecretRef", v.PV.Spec.CSI.NodePublishSecretRef)
	return stage, publish, err
}

func (m *Manager) secret(ctx context.Context, what string, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	s, err := m.cfg.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("fetching %s %s/%s failed: %w", what, ref.Namespace, ref.Name, err)
	}
	out := make(map[string]string, len(s.Data))
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out, nil
}
