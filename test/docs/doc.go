// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs checks that the documentation agrees with the programs. It generates docs/reference
// from the programs and fails if the existing pages differ:
//
//	go test ./test/docs -update    writes the pages
//
// It also checks, in docs/start and docs/howto, that each flag which a command names exists, and
// that each block of commands is run by test/e2e or has a reason why it is not. It checks in all
// pages that the targets of links exist, and that the index of decisions has every page.
//
// The package has no code except tests. They need neither root nor built programs.
package docs
