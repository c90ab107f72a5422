// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unset fills fields that an object leaves unset: the whole of what
// defaulting does, one field at a time.
package unset

// Fill sets *field to value when it has its zero value.
func Fill[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// Point sets *field to a pointer to value when it is nil.
func Point[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// Make sets *field to a new T when it is nil, and returns it.
func Make[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}
