// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs holds the documentation to the programs. It generates docs/reference from
// them and fails if the pages differ from what is there:
//
//	go test ./test/docs -update    writes the pages
//
// It also checks, in docs/start and docs/howto, that each flag which a command names exists,
// and that each block of commands is run by test/e2e or says why not; in all pages, that
// links lead somewhere; and that the index of decisions has every page.
//
// The package has no code but its tests. They need neither root nor built programs.
package docs
