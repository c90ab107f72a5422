// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package envtest tests a small operator with controller-runtime's envtest, whose API server is
// Keelson's. It is what an operator's author would write, and is a separate module because of
// controller-runtime. docs/howto/test-operators.md describes it.
package envtest
