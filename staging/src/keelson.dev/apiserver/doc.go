// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the root of a library for serving Kubernetes-style
// APIs: storage with a byte-level watch cache, REST verbs, negotiation, patch
// and apply, discovery and OpenAPI. It knows no kind; a server hands it a
// table of them (package resource).
package apiserver
