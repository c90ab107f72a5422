// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package envtest tests a small operator with controller-runtime's package envtest, which starts
// Keelson's API server. The tests are like those that the author of an operator would write. The
// package is a separate module, so that other modules do not depend on controller-runtime.
// docs/howto/test-operators.md describes this use.
package envtest
