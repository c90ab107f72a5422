// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"crypto/tls"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/unset"
)

// secretRow returns the row of the kind table for the resource secrets.
func secretRow() *resource.Row {
	return resource.Of[corev1.SecretList](resource.Kind[*corev1.Secret]{
		Group: "", Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true,

		Default:                  defaultSecret,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		Validate:                 validateSecret,
		PrepareUpdate:            prepareSecretUpdate,
		ValidateUpdate:           validateSecretUpdate,
		Warnings:                 warnSecret,
		Fields:                   secretFields,
		FieldPaths:               []string{"type"},
		SelectableFields:         []string{"type"},
		AllowUnconditionalUpdate: true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Type", Type: "string", Description: corev1.Secret{}.SwaggerDoc()["type"]},
			{Name: "Data", Type: "string", Description: corev1.Secret{}.SwaggerDoc()["data"]},
			column.Age(),
		},
		Cells: secretCells,
	})
}

func defaultSecret(s *corev1.Secret) {
	unset.Fill(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) == 0 {
		return
	}
	// Clients can write stringData but not read it: its values are moved into data, where they
	// overwrite other values.
	if s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

// prepareSecretUpdate keeps the old type if the client sends no type.
func prepareSecretUpdate(_ context.Context, s, old *corev1.Secret) {
	if s.Type == "" {
		s.Type = old.Type
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

// checkJSON reports a value that is not a JSON object. The error does not contain the value,
// because it is secret.
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
	r.Add(validateSecret(ctx, s)...)
	return r.Errors
}

// warnSecret warns about a TLS secret whose certificate and key do not match or cannot be read.
func warnSecret(_ context.Context, s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func secretCells(s *corev1.Secret, env resource.CellEnv) []any {
	return []any{s.Name, string(s.Type), int64(len(s.Data)), env.Age(s.CreationTimestamp)}
}

func secretFields(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} }
