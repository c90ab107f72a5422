// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver assembles the API server: storage, the rows of the kind table, authentication,
// authorization, admission, the allocators of service addresses and node ports, and the HTTPS
// server in front. A row of the kind table describes one resource.
//
// New checks a configuration and starts nothing. Run starts everything, serves until its context
// ends, drains, and returns when all its goroutines have ended. The package has no global state:
// several servers can run in one process, with one store or several.
//
// Each package below this one has one concern, and this package connects them. The order of filters
// is in filters.Chain, the order of admission plugins in package admission, and the start hooks in
// buildHooks.
package apiserver
