// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nft is what everything here that keeps an nftables table shares: the
// expressions that rules are made of, sets of address ranges, and transactions by netlink
// of any size. It starts no program and needs none installed.
//
// It knows nothing of what a table is for.
package nft
