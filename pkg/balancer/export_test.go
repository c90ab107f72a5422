// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package balancer

// Impatient makes clients not wait if no server accepts their connections.
func (b *Balancer) Impatient() { b.patience = 0 }

// Limit limits the number of open connections.
func (b *Balancer) Limit(n int) { b.limit = n }
