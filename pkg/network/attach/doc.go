// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attach is a CNI plugin. It attaches sandboxes to a bridge that is their gateway, with an
// address of each of the node's ranges.
//
// It does the work of the plugins bridge and host-local in one process instead of two, and runs
// portmap and bandwidth only for sandboxes with host ports or limits, because most of a plugin's
// cost is its start. It keeps allocated addresses in the same files as host-local, so that each of
// the two plugins can free addresses that the other has allocated.
//
// A sandbox's hardware address is derived from its IP address, so that neighbours whose entry is
// from the previous owner of the IP address reach the new owner. The name of the node's end of the
// link is derived from the sandbox's ID, so that it is found even if the sandbox's namespace no
// longer exists.
package attach
