// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs checks that the documentation agrees with the programs. It generates the pages of
// docs/reference from the programs, and fails if the existing pages differ from them:
//
//	go test ./test/docs -update    writes the pages
//
// It also checks that all flags exist that pages for users or contributors name. test/e2e must run
// each block of commands in docs/start and docs/howto, unless the page gives a reason why the block
// is not run. The targets of links in all pages must exist, and the index of decisions must list all
// decisions.
//
// The package contains only tests. They need neither root nor built programs.
package docs
