// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// serviceAccountRow returns the row of the kind table for the resource serviceaccounts.
func serviceAccountRow(token *resource.Creator) *resource.Row {
	return resource.Of[corev1.ServiceAccountList](resource.Kind[*corev1.ServiceAccount]{
		Group: "", Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true,
		ShortNames: []string{"sa"},

		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            prepareServiceAccountCreate,
		PrepareUpdate:            prepareServiceAccountUpdate,
		Warnings:                 warnServiceAccount,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			column.Age(),
		},
		Cells: serviceAccountCells,

		Subresources: []resource.Sub[*corev1.ServiceAccount]{
			{Subresource: resource.Subresource{Name: "token", Verbs: []string{"create"},
				Kind: schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}, Create: token}},
		},
	})
}

// prepareServiceAccountCreate clears all fields of references to secrets except for the names.
func prepareServiceAccountCreate(_ context.Context, sa *corev1.ServiceAccount) {
	for i, secret := range sa.Secrets {
		sa.Secrets[i] = corev1.ObjectReference{Name: secret.Name}
	}
}

func prepareServiceAccountUpdate(ctx context.Context, sa, _ *corev1.ServiceAccount) {
	prepareServiceAccountCreate(ctx, sa)
}

func warnServiceAccount(_ context.Context, sa, old *corev1.ServiceAccount) []string {
	const key = "kubernetes.io/enforce-mountable-secrets"
	if old != nil {
		if _, had := old.Annotations[key]; had {
			return nil
		}
	}
	if _, has := sa.Annotations[key]; !has {
		return nil
	}
	return []string{"metadata.annotations[" + key +
		"]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}

func serviceAccountCells(o *corev1.ServiceAccount, env resource.CellEnv) []any {
	return []any{o.Name, env.Age(o.CreationTimestamp)}
}
