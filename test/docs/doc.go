// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs checks that the documentation agrees with the programs. It generates the pages of
// docs/reference from the programs, and fails if the existing pages differ from them:
//
//	go test ./test/docs -update    writes the pages
//
// It also checks that each flag exists that a page for users or contributors names, and that
// test/e2e runs each block of commands in docs/start and docs/howto unless the block has a reason
// why it is not run. In all pages it checks that the targets of links exist. It also checks that
// the index of decisions lists all decisions.
//
// The package contains only tests. They need neither root nor built programs.
package docs
