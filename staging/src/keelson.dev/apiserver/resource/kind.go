// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kind is a Row whose functions take T, the hub's wire type (*T is an Object).
// Its fields mean what the Row's and the Strategy's of the same name do; Row
// erases the type.
type Kind[T, L any] struct {
	Group, Version, Resource, Singular, Kind string
	// MoreVersions are served beside Version.
	MoreVersions           []Version
	ShortNames, Categories []string
	Namespaced             bool
	StoragePrefix          string
	Verbs                  []string
	Ephemeral              bool
	Computed               bool
	Feature                string
	Deprecated             string

	Default        func(obj *T)
	Readable       func(obj *T) error
	PrepareCreate  func(ctx context.Context, obj *T)
	Validate       func(ctx context.Context, obj *T) field.ErrorList
	PrepareUpdate  func(ctx context.Context, obj, old *T)
	ValidateUpdate func(ctx context.Context, obj, old *T) field.ErrorList
	Warnings       func(ctx context.Context, obj, old *T) []string
	Canonicalize   func(obj *T)
	Blank          func(obj *T)
	ValidateName   func(name string, prefix bool) []string
	AnyFinalizer   bool
	MetaLast       bool
	MetaOnUpdate   MetaRules
	Fields         func(obj *T) fields.Set

	AllowCreateOnUpdate, AllowUnconditionalUpdate bool
	ResetFields                                   []string
	SelectableFields, FieldPaths                  []string
	GracefulDelete                                func(ctx context.Context, obj *T, options *metav1.DeleteOptions) bool
	DefaultGarbageCollection                      metav1.DeletionPropagation
	OrphanWarning                                 string
	UnknownField                                  string
	ReturnDeleted                                 bool
	TTL                                           func(obj *T) int64

	Columns   []metav1.TableColumnDefinition
	Cells     func(obj *T, env CellEnv) []any
	CellPaths []string
	RowOrder  func(a, b *T) int

	RowConditions func(obj *T) []metav1.TableRowCondition

	Unlisted []string
	Others   []Other

	Subresources []Sub[T]
}

// Sub is a Subresource of a Kind.
type Sub[T any] struct {
	Subresource
	PrepareUpdate  func(ctx context.Context, obj, old *T)
	ValidateUpdate func(ctx context.Context, obj, old *T) field.ErrorList
	Warnings       func(ctx context.Context, obj, old *T) []string
}

// Row returns k for the table.
func (k Kind[T, L]) Row() *Row {
	row := &Row{
		Group: k.Group, Versions: append([]Version{{Name: k.Version, Deprecated: k.Deprecated}}, k.MoreVersions...), StorageVersion: k.Version,
		Resource: k.Resource, Singular: k.Singular, Kind: k.Kind, ListKind: k.Kind + "List",
		ShortNames: k.ShortNames, Categories: k.Categories, Namespaced: k.Namespaced,
		StoragePrefix: k.StoragePrefix, Verbs: k.Verbs, Ephemeral: k.Ephemeral, Computed: k.Computed, Feature: k.Feature,
		New:       func() Object { return any(new(T)).(Object) },
		NewList:   func() runtime.Object { return any(new(L)).(runtime.Object) },
		Columns:   k.Columns,
		CellPaths: k.CellPaths,
		Unlisted:  k.Unlisted,
		Others:    k.Others,
		Strategy: Strategy{
			Default:                  erase(k.Default),
			Readable:                 eraseReadable(k.Readable),
			PrepareCreate:            eraseCtx(k.PrepareCreate),
			Validate:                 eraseValidate(k.Validate),
			PrepareUpdate:            eraseUpdate(k.PrepareUpdate),
			ValidateUpdate:           eraseValidateUpdate(k.ValidateUpdate),
			Warnings:                 eraseWarnings(k.Warnings),
			Canonicalize:             erase(k.Canonicalize),
			Blank:                    erase(k.Blank),
			ValidateName:             k.ValidateName,
			AnyFinalizer:             k.AnyFinalizer,
			MetaLast:                 k.MetaLast,
			MetaOnUpdate:             k.MetaOnUpdate,
			AllowCreateOnUpdate:      k.AllowCreateOnUpdate,
			AllowUnconditionalUpdate: k.AllowUnconditionalUpdate,
			ResetFields:              k.ResetFields,
			SelectableFields:         k.SelectableFields,
			FieldPaths:               k.FieldPaths,
			DefaultGarbageCollection: k.DefaultGarbageCollection,
			OrphanWarning:            k.OrphanWarning,
			UnknownField:             k.UnknownField,
			ReturnDeleted:            k.ReturnDeleted,
		},
	}
	if row.Singular == "" {
		row.Singular = strings.ToLower(k.Kind)
	}
	if row.StoragePrefix == "" {
		row.StoragePrefix = k.Resource
	}
	if f := k.Fields; f != nil {
		row.Fields = func(obj Object) fields.Set { return f(any(obj).(*T)) }
	}
	if f := k.GracefulDelete; f != nil {
		row.GracefulDelete = func(ctx context.Context, obj Object, o *metav1.DeleteOptions) bool { return f(ctx, any(obj).(*T), o) }
	}
	if f := k.TTL; f != nil {
		row.TTL = func(obj Object) int64 { return f(any(obj).(*T)) }
	}
	if f := k.Cells; f != nil {
		row.Cells = func(obj Object, env CellEnv) []any { return f(any(obj).(*T), env) }
	}
	if f := k.RowOrder; f != nil {
		row.RowOrder = func(a, b Object) int { return f(any(a).(*T), any(b).(*T)) }
	}
	if f := k.RowConditions; f != nil {
		row.RowConditions = func(obj Object) []metav1.TableRowCondition { return f(any(obj).(*T)) }
	}
	for _, s := range k.Subresources {
		sub := s.Subresource
		sub.PrepareUpdate = eraseUpdate(s.PrepareUpdate)
		sub.ValidateUpdate = eraseValidateUpdate(s.ValidateUpdate)
		sub.Warnings = eraseWarnings(s.Warnings)
		row.Subresources = append(row.Subresources, sub)
	}
	return row
}

func erase[T any](f func(*T)) func(Object) {
	if f == nil {
		return nil
	}
	return func(obj Object) { f(any(obj).(*T)) }
}

func eraseReadable[T any](f func(*T) error) func(Object) error {
	if f == nil {
		return nil
	}
	return func(obj Object) error { return f(any(obj).(*T)) }
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

func eraseValidateUpdate[T any](f func(ctx context.Context, obj, old *T) field.ErrorList) func(ctx context.Context, obj, old Object) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj, old Object) field.ErrorList {
		return f(ctx, any(obj).(*T), any(old).(*T))
	}
}

func eraseWarnings[T any](f func(ctx context.Context, obj, old *T) []string) func(ctx context.Context, obj, old Object) []string {
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
