// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nft contains the code that all packages with nftables tables share: expressions of rules,
// sets of address ranges, and netlink transactions of any size. It runs no other program. It does not
// depend on what a table is used for.
package nft
