// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Of returns the row of the kind table for a kind whose objects have the Go type T (*T is an
// Object) and whose lists have the Go type L. It fills in what k leaves to defaults.
func Of[L, T any](k Kind[*T]) *Row {
	row := named(&k)
	row.New = func() Object { return any(new(T)).(Object) }
	row.NewList = func() runtime.Object { return any(new(L)).(runtime.Object) }
	row.TTL = eraseRead(k.TTL)

	row.Default, row.Restore = erase(k.Default), erase(k.Restore)
	row.Readable = eraseRead(k.Readable)
	row.PrepareCreate, row.Validate = eraseCtx(k.PrepareCreate), eraseValidate(k.Validate)
	row.PrepareUpdate, row.ValidateUpdate = eraseUpdate(k.PrepareUpdate), eraseValidateUpdate(k.ValidateUpdate)
	row.Warnings = eraseWarnings(k.Warnings)
	row.Canonicalize, row.FillEmpty = erase(k.Canonicalize), erase(k.FillEmpty)
	row.Hooks = eraseHooks(k.Hooks)

	row.Fields = eraseRead(k.Fields)
	if f := k.GracefulDelete; f != nil {
		row.GracefulDelete = func(ctx context.Context, obj Object, o *metav1.DeleteOptions) bool {
			return f(ctx, any(obj).(*T), o)
		}
	}
	if f := k.Cells; f != nil {
		row.Cells = func(obj Object, env CellEnv) []any { return f(any(obj).(*T), env) }
	}
	if f := k.ListCells; f != nil {
		row.ListCells = func(list []Object) func(Object, CellEnv) []any {
			typed := make([]*T, len(list))
			for i, obj := range list {
				typed[i] = any(obj).(*T)
			}
			cells := f(typed)
			return func(obj Object, env CellEnv) []any { return cells(any(obj).(*T), env) }
		}
	}
	row.RowConditions = eraseRead(k.RowConditions)
	if f := k.RowOrder; f != nil {
		row.RowOrder = func(a, b Object) int { return f(any(a).(*T), any(b).(*T)) }
	}
	for _, g := range k.Gated {
		row.Gated = append(row.Gated, Gated[Object]{Feature: g.Feature,
			Visit: func(obj Object, drop bool) bool { return g.Visit(any(obj).(*T), drop) }})
	}
	for _, s := range slices.SortedFunc(slices.Values(k.Subresources), bySubresource) {
		row.Subresources = append(row.Subresources, RowSub{
			Subresource: s.Subresource, PrepareUpdate: eraseUpdate(s.PrepareUpdate),
			ValidateUpdate: eraseValidateUpdate(s.ValidateUpdate), Warnings: eraseWarnings(s.Warnings),
		})
	}
	return row
}

func bySubresource[O any](a, b Sub[O]) int { return cmp.Compare(a.Name, b.Name) }

// named returns a row of the kind table with the fields of k that do not depend on the type of the
// objects.
func named[O any](k *Kind[O]) *Row {
	row := &Row{
		Group: k.Group, Resource: k.Resource, Singular: cmp.Or(k.Singular, strings.ToLower(k.Kind)),
		Kind: k.Kind, ListKind: cmp.Or(k.ListKind, k.Kind+"List"), ShortNames: k.ShortNames, Categories: k.Categories,
		Namespaced: k.Namespaced, NamespaceItself: k.NamespaceItself,

		Version: k.Version, Versions: k.Versions, Verbs: k.Verbs, ListedVerbs: k.ListedVerbs,
		OnByDefault: k.OnByDefault, Feature: k.Feature, Custom: k.Custom,

		StoragePrefix: cmp.Or(k.StoragePrefix, k.Resource), StoredAs: k.StoredAs, StoredFields: k.StoredFields,
		StoredForms: k.StoredForms, Twin: k.Twin, Scheme: k.Scheme, Codec: k.Codec, Peek: k.Peek,
		Ephemeral: k.Ephemeral, Create: k.Create, Connect: k.Connect,
		Computed: k.Computed, DefaultsChanged: k.DefaultsChanged,

		ValidateName: k.ValidateName, AnyFinalizer: k.AnyFinalizer, MetaLast: k.MetaLast, MetaOnUpdate: k.MetaOnUpdate,
		HiddenAnnotations: k.HiddenAnnotations,

		FieldPaths: k.FieldPaths, IndexFields: k.IndexFields, SelectableFields: k.SelectableFields,
		UnknownField: k.UnknownField,

		AllowCreateOnUpdate: k.AllowCreateOnUpdate, AllowUnconditionalUpdate: k.AllowUnconditionalUpdate,
		ResetFields: k.ResetFields, DefaultGarbageCollection: k.DefaultGarbageCollection, OrphanWarning: k.OrphanWarning,
		ReturnDeleted: k.ReturnDeleted,

		Columns: k.Columns, CellPaths: k.CellPaths,
	}
	if len(row.Versions) == 0 {
		row.Versions = []Version{{Name: k.Version}}
	}
	return row
}

func erase[T any](f func(*T)) func(Object) {
	if f == nil {
		return nil
	}
	return func(obj Object) { f(any(obj).(*T)) }
}

func eraseRead[T, R any](f func(*T) R) func(Object) R {
	if f == nil {
		return nil
	}
	return func(obj Object) R { return f(any(obj).(*T)) }
}

func eraseCtx[T any](f func(context.Context, *T)) func(context.Context, Object) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj Object) { f(ctx, any(obj).(*T)) }
}

func eraseValidate[T any](f func(context.Context, *T) field.ErrorList) func(context.Context, Object) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj Object) field.ErrorList { return f(ctx, any(obj).(*T)) }
}

func eraseUpdate[T any](f func(ctx context.Context, obj, old *T)) func(ctx context.Context, obj, old Object) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj, old Object) { f(ctx, any(obj).(*T), any(old).(*T)) }
}

func eraseValidateUpdate[T any](f func(ctx context.Context, obj, old *T) field.ErrorList) func(
	ctx context.Context, obj, old Object) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj, old Object) field.ErrorList {
		return f(ctx, any(obj).(*T), any(old).(*T))
	}
}

func eraseWarnings[T any](f func(ctx context.Context, obj, old *T) []string) func(ctx context.Context, obj,
	old Object) []string {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj, old Object) []string {
		if old == nil {
			return f(ctx, any(obj).(*T), nil)
		}
		return f(ctx, any(obj).(*T), any(old).(*T))
	}
}
