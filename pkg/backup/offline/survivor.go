// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// Survivor writes a snapshot of the store in a member's data directory to the file to. No etcd may use
// dir meanwhile. The other members may be lost: what this member has not heard of is lost, too.
//
// The member's log may have entries that are not in its database yet. So an etcd with a copy of the
// directory applies them, as the only member of its cluster. It listens at no address.
func Survivor(ctx context.Context, dir, to string) (err error) {
	work := to + ".member"
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if _, err := os.Stat(filepath.Join(dir, "member", "wal")); err != nil {
		return fmt.Errorf("data directory of etcd: %w", err)
	}
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("copy of the member: %w", err)
	}
	if err := os.CopyFS(filepath.Join(work, "member"), os.DirFS(filepath.Join(dir, "member"))); err != nil {
		return fmt.Errorf("copy of the member: %w", err)
	}
	if err := commitAll(filepath.Join(work, "member", "wal")); err != nil {
		return err
	}
	server, err := embed.StartEtcd(alone(work))
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		return fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
	return save(ctx, server, to)
}

// commitAll marks all entries of a log as committed. etcd stores only now and then how much is committed,
// and would discard the rest, although the last writes that were acknowledged are there.
func commitAll(dir string) (err error) {
	log := zap.NewNop()
	wal.Repair(log, dir) // removes an entry that was written in part, if there is one
	snapshots, err := wal.ValidSnapshotEntries(log, dir)
	if err != nil || len(snapshots) == 0 {
		return errors.Join(errNoLog, err)
	}
	w, err := wal.Open(log, dir, snapshots[len(snapshots)-1])
	if err != nil {
		return fmt.Errorf("log of etcd: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	_, state, entries, err := w.ReadAll()
	if err != nil {
		return fmt.Errorf("log of etcd: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	state.Commit = new(entries[len(entries)-1].GetIndex())
	if err := w.Save(state, nil); err != nil {
		return fmt.Errorf("log of etcd: %w", err)
	}
	return nil
}

var errNoLog = errors.New("the data directory has no readable log of etcd")

// alone returns the configuration of an etcd that forgets all other members.
func alone(dir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.ForceNewCluster = member, dir, true
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	self := url.URL{Scheme: "http", Host: "localhost:0"}
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{self}, []url.URL{self}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.QuotaBackendBytes = maxQuota
	cfg.EnableGRPCGateway = false
	cfg.LogLevel = "error" // etcd ends the process after some errors, so it must log them
	return cfg
}

// maxQuota is larger than any database, so that etcd has no reason to raise an alarm.
const maxQuota = 1 << 40

// save writes a snapshot of the server's database to a file.
func save(ctx context.Context, server *embed.Etcd, to string) (err error) {
	client := v3client.New(server.Server)
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := client.Get(ctx, "\x00"); err != nil { // waits until the log is applied
		return fmt.Errorf("read the store: %w", err)
	}
	in, err := client.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}
