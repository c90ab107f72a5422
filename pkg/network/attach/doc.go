// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attach is a CNI plugin: it attaches sandboxes to a bridge that is their gateway, with
// an address of each of the node's ranges.
//
// It does in one process what the plugins bridge and host-local do in two, and has portmap and
// bandwidth run only for sandboxes that have host ports or limits: most of what a plugin costs
// is its start. Addresses are kept in files as host-local keeps them, so that what either has
// given the other takes back.
//
// A sandbox's hardware address follows from its address: whoever knew the sandbox that had the
// address before reaches the one that has it now. The node's end of its link is named after the
// sandbox's ID: an end of the sandbox finds it whatever became of the sandbox's namespace.
package attach
