// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
)

// configMapRow returns the row of the kind table for the resource configmaps.
func configMapRow() *resource.Row {
	return resource.Of[corev1.ConfigMapList](resource.Kind[*corev1.ConfigMap]{
		Group: "", Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true,
		ShortNames: []string{"cm"},

		Default:                  defaultConfigMap,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		Validate:                 validateConfigMap,
		ValidateUpdate:           validateConfigMapUpdate,
		AllowUnconditionalUpdate: true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Data", Type: "string", Description: corev1.ConfigMap{}.SwaggerDoc()["data"]},
			column.Age(),
		},
		Cells: configMapCells,
	})
}

// defaultConfigMap sets data to an empty map if it is missing, as Kubernetes does.
func defaultConfigMap(cm *corev1.ConfigMap) {
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
}

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

// frozen reports whether the stored object is immutable. The last argument is the field immutable
// of the stored object, and the argument before it is that of the updated one. If the update makes
// the object mutable, frozen also reports an error.
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

func configMapCells(cm *corev1.ConfigMap, env resource.CellEnv) []any {
	return []any{cm.Name, int64(len(cm.Data) + len(cm.BinaryData)), env.Age(cm.CreationTimestamp)}
}
