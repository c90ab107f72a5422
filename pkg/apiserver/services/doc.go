// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package services allocates the addresses and node ports of services, and frees them.
//
// A cluster IP is allocated by creating an IPAddress object with its name. A node port is allocated
// by setting its bit in one stored bitmap (/registry/ranges/servicenodeports, in Kubernetes'
// format). Both are done by transactions of the store, so that several servers can allocate
// concurrently and never allocate the same address or port twice. If a server is killed between an
// allocation and the write of its service, Repair frees the allocation. It also allocates the addresses
// and ports of services that an old server or another program stored without an allocation.
//
// The package does not validate services. It leaves malformed fields as they are, for validation to
// reject.
package services
