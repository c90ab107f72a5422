// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/members"
	"keelson.dev/keelson/pkg/machine/nodes"
	"keelson.dev/keelson/pkg/provision"
)

// Membership returns a client of a cluster's etcd with the credentials of this machine's control plane.
// trusted has the certificates in PEM that clients of the cluster trust. Membership returns nil if this
// machine has no member of it, or is part of another cluster. The caller must close the client.
func Membership(trusted []byte) (*members.Client, error) {
	own, err := os.ReadFile(controlDir.PKI("ca.crt"))
	// While this machine joins a restored cluster, its member may be that of the old one.
	if notRejoining(rejoinJournal) != nil {
		return nil, nil
	}
	// After a restore, the credentials may be left although the etcd is in the API server. The other members that
	// this machine knows are then those of the old cluster.
	member := hasFlags(etcd) && exists(etcdCredentials())
	if err != nil || !member || !bytes.Contains(trusted, bytes.TrimSpace(own)) {
		return nil, nil
	}
	return connectEtcd(etcdURLs()...)
}

// etcdURLs returns the URLs of the members of etcd that this machine knows, its own first.
func etcdURLs() []string {
	out := []string{localEtcd}
	servers, _ := agent.ReadServers(serverList) // without the file, the own member must do
	for _, s := range servers {
		if at, err := netip.ParseAddrPort(s); err == nil {
			out = append(out, etcdURL(at.Addr().String(), config.EtcdClientPort))
		}
	}
	return out
}

// mayBeMember reports whether this machine may have a member of the cluster's etcd. A control plane that joins a
// restored cluster may have one before it has the flags of etcd.
func mayBeMember() bool {
	return exists(etcdCredentials()) && (hasFlags(etcd) || exists(string(rejoinJournal)))
}

// leave stops this machine's control plane and removes its member of etcd, if there are others. It
// returns an error if the member remains in the cluster.
func leave(ctx context.Context) error {
	// The API server ends first, because it removes its address from the cluster, for which it needs etcd.
	if err := endControlPlane(ctx); err != nil {
		return err
	}
	c, err := readConfiguration()
	if err != nil {
		return err
	}
	urls, err := urlsToLeave(ctx, c)
	if err != nil {
		return err
	}
	m, err := connectEtcd(urls...)
	if err != nil {
		return err
	}
	defer m.Close() // without a connection, nothing is lost
	return removeOwn(ctx, m, peerURL(c))
}

// urlsToLeave returns the URLs of the members of the etcd that this machine leaves. While it joins a restored
// cluster, the servers that it knows may be those of the old one.
func urlsToLeave(ctx context.Context, c *config.KeelsonConfiguration) ([]string, error) {
	e, err := rejoinJournal.Load()
	if err != nil {
		return nil, err
	}
	if e == nil {
		return etcdURLs(), nil
	}
	hosts, err := restoredHosts(ctx, c, e.Epoch)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(hosts))
	for i, host := range hosts {
		out[i] = etcdURL(host, config.EtcdClientPort)
	}
	return out, nil
}

// removeOwn removes the member with a peer URL, with or without a vote, unless it is the only one with a vote.
func removeOwn(ctx context.Context, m nodes.Members, peer string) error {
	list, err := m.List(ctx)
	if err != nil {
		return err
	}
	own, ok := members.WithPeer(list, peer)
	others := members.Without(list, own.ID)
	if !ok || len(members.Voters(others)) == 0 {
		return nil
	}
	m.UseOnly(others) // this machine's member ends with the removal
	return m.Remove(ctx, own.ID)
}

// stopTimeout is how long the programs of a control plane may take to stop. An API server whose etcd does
// not answer would try for a minute to remove its address from the cluster.
const stopTimeout = 5 * time.Second

// endControlPlane stops the programs of this machine's control plane, except etcd, and kills those that do
// not end in time.
func endControlPlane(ctx context.Context) error {
	return endPrograms(ctx, provision.Scheduler, provision.ControllerManager, provision.APIServer)
}

// endPrograms stops programs, and kills those that do not end in time.
func endPrograms(ctx context.Context, programs ...string) error {
	all := units(programs)
	limited, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := stopUnits(limited, all...); limited.Err() == nil {
		return err
	}
	left, err := activeUnits(ctx, all...)
	if err != nil || len(left) == 0 {
		return err
	}
	_ = systemctl(ctx, append([]string{"kill", "--signal=KILL"}, left...)...) // fails if they have ended meanwhile
	return nil
}

// endControlPrograms ends all programs of this machine's control plane, and kills those that do not end in time.
// When it returns nil, none of them runs.
func endControlPrograms(ctx context.Context, clk clock.Clock) error {
	if err := endPrograms(ctx, controlPrograms()...); err != nil {
		return err
	}
	return provision.Wait(ctx, clk, stopTimeout, func(ctx context.Context) error {
		for _, p := range controlPrograms() {
			if st, err := showUnit(ctx, p); err != nil || st.pid != 0 {
				return errors.Join(fmt.Errorf("%s: %w", p, errStillRuns), err)
			}
		}
		return nil
	})
}

var errStillRuns = errors.New("it still runs")

// tryLeave is leave for Reset, which goes on without the cluster. It reports whether the member may
// remain in the cluster.
func (s *steps) tryLeave(ctx context.Context) (remains bool) {
	err := s.run("member of etcd", func() error { return leave(ctx) })
	if err != nil {
		fmt.Fprintf(s.Out, "This machine remains a member of the cluster's etcd: %v\n", err)
	}
	return err != nil
}
