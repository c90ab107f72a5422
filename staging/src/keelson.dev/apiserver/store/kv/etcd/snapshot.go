// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"io"
)

// Snapshot writes a copy of the database of one member to w while the store is in use. The copy has all
// writes that were acknowledged before the call, and ends with a hash. It has the format of "etcdctl
// snapshot save", so "etcdutl snapshot restore" can read it.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the member's side if w fails
	// The member that is asked may lag behind. A linearizable read waits until it does not.
	if _, err := s.readRevision(ctx); err != nil {
		return err
	}
	snapshot, err := s.client.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer snapshot.Close()
	if _, err := io.Copy(w, snapshot); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}
