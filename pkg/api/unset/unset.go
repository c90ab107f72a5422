// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unset sets fields that have no value. Functions that set the defaults of objects use it.
package unset

// Fill sets *field to value if it has its zero value.
func Fill[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// Point sets *field to a pointer to value if it is nil.
func Point[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// Make sets *field to a new T if it is nil, and returns it.
func Make[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}
