// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"encoding/json"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/report"
)

func validateConfigMap(_ context.Context, cm *corev1.ConfigMap) field.ErrorList {
	var r report.Report
	size := 0
	for _, key := range report.Keys(cm.Data) {
		at := field.NewPath("data").Key(key)
		r.Each(at, key, naming.IsConfigMapKey(key))
		if _, twice := cm.BinaryData[key]; twice {
			r.Invalid(at, key, "duplicate of key present in binaryData")
		}
		size += len(cm.Data[key])
	}
	for _, key := range report.Keys(cm.BinaryData) {
		r.Each(field.NewPath("binaryData").Key(key), key, naming.IsConfigMapKey(key))
		size += len(cm.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		r.TooLong(field.NewPath(""), corev1.MaxSecretSize)
	}
	return r.Errors
}

func validateConfigMapUpdate(ctx context.Context, cm, old *corev1.ConfigMap) field.ErrorList {
	var r report.Report
	if frozen(&r, cm.Immutable, old.Immutable) {
		refuseChange(&r, field.NewPath("data"), cm.Data, old.Data)
		refuseChange(&r, field.NewPath("binaryData"), cm.BinaryData, old.BinaryData)
	}
	r.Add(validateConfigMap(ctx, cm)...)
	return r.Errors
}

const immutableText = "field is immutable when `immutable` is set"

// frozen is true of an object that was made immutable, which stays so.
func frozen(r *report.Report, is, was *bool) bool {
	if was == nil || !*was {
		return false
	}
	if is == nil || !*is {
		r.Forbidden(field.NewPath("immutable"), immutableText)
	}
	return true
}

func refuseChange(r *report.Report, path *field.Path, is, was any) {
	if !reflect.DeepEqual(is, was) {
		r.Forbidden(path, immutableText)
	}
}

func validateSecret(_ context.Context, s *corev1.Secret) field.ErrorList {
	var r report.Report
	path := field.NewPath("data")
	size := 0
	for _, key := range report.Keys(s.Data) {
		r.Each(path.Key(key), key, naming.IsConfigMapKey(key))
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		r.TooLong(path, corev1.MaxSecretSize)
	}
	checkSecretType(&r, s, path)
	return r.Errors
}

func checkSecretType(r *report.Report, s *corev1.Secret, path *field.Path) {
	require := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				r.Required(path.Key(key), "")
			}
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			r.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")
		}
	case corev1.SecretTypeDockercfg:
		require(corev1.DockerConfigKey)
		checkJSON(r, s.Data, corev1.DockerConfigKey, path)
	case corev1.SecretTypeDockerConfigJson:
		require(corev1.DockerConfigJsonKey)
		checkJSON(r, s.Data, corev1.DockerConfigJsonKey, path)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		if _, password := s.Data[corev1.BasicAuthPasswordKey]; !user && !password {
			require(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			r.Required(path.Key(corev1.SSHAuthPrivateKey), "")
		}
	case corev1.SecretTypeTLS:
		require(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
}

// checkJSON never shows what the secret holds.
func checkJSON(r *report.Report, data map[string][]byte, key string, path *field.Path) {
	content, ok := data[key]
	if !ok {
		return
	}
	if err := json.Unmarshal(content, &map[string]any{}); err != nil {
		r.Invalid(path.Key(key), "<secret contents redacted>", err.Error())
	}
}

func validateSecretUpdate(ctx context.Context, s, old *corev1.Secret) field.ErrorList {
	var r report.Report
	r.Immutable(field.NewPath("type"), s.Type, old.Type)
	if frozen(&r, s.Immutable, old.Immutable) {
		refuseChange(&r, field.NewPath("data"), s.Data, old.Data)
	}
	r.Add(resource.MetaHere())
	r.Add(validateSecret(ctx, s)...)
	return r.Errors
}
