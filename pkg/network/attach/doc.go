// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attach is a CNI plugin. It attaches sandboxes to a bridge, which is their gateway, and gives
// them an address from each of the node's ranges.
//
// It does the work of the plugins bridge and host-local in one process instead of two. It runs the
// plugins portmap and bandwidth only for sandboxes with host ports or bandwidth limits, because most
// of a plugin's cost is the start of its process. It stores allocated addresses in the same files as
// host-local, so that this plugin and host-local can free addresses that the other has allocated.
//
// A sandbox's hardware address is derived from its IP address. So if an IP address gets a new owner,
// the entries of neighbours stay correct. The name of the node's end of the link is derived from the
// sandbox's ID, so that the plugin finds the link even if the sandbox's namespace no longer exists.
package attach
