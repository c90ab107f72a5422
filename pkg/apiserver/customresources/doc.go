// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package customresources serves the custom resources that CustomResourceDefinitions define.
//
// A Controller watches the CustomResourceDefinitions in the store. It writes their status (names
// and conditions), and adds rows to the kind table, one for each served version. It deletes the
// objects of a definition that is being deleted. All its state comes from a list and a watch, so it
// can be rebuilt at any time. The controllers of several servers can run at the same time: if a
// write conflicts, it is repeated with the newer object.
//
// The rules of a row come from the CustomResourceDefinition's schemas. The library
// k8s.io/apiextensions-apiserver implements structural schemas, validation, defaults, pruning and
// validation rules. These are created when they are first needed. So an unused definition needs
// only memory for its names and for its encoded bytes, which the watch cache shares.
//
// As in Kubernetes, each version has its own rules: strategies (see strategy.go) get an object in
// the version of the request, and the codec converts between that version and the storage version.
package customresources
