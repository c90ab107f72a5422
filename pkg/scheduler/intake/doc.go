// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package intake reads pods from the API server for the scheduler: of their bytes
// only what plugins look at is decoded, and what pods have in common is decoded
// once and shared.
//
// The pods of one controller differ in little: name, node, status. Parts that are
// equal byte for byte (labels, owners, the spec without the node and volumes that no
// plugin looks at) are looked up by their bytes. Nobody may change what is shared;
// what comes out of a cache is not to be changed in any case.
//
// It decodes no other kind.
package intake
