// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package members changes which machines are members of a cluster's etcd.
//
// Invariants:
//
//   - A new member is a learner: it has no vote until Promote, which etcd refuses until the member has
//     nearly all data. So a machine that does not come up does not cost the cluster its quorum.
//   - Each call has a time limit of its own.
//   - All calls except Status are answered by the cluster's majority, not by the memory of one member.
//
// The package does not start etcd, and writes no files.
package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// callTimeout limits the time for one call. An election, after which a member answers, takes about two
// seconds.
const callTimeout = 5 * time.Second

// Member is a member of etcd.
type Member struct {
	ID uint64
	// Name is empty if the member has not started yet.
	Name string
	// Peers and Clients are the URLs at which other members and clients reach the member. Clients is empty
	// if the member has not started yet.
	Peers, Clients []string
	Learner        bool // has no vote
}

// Hosts returns the hosts at which other members reach the member.
func (m Member) Hosts() (out []string) {
	for _, peer := range m.Peers {
		if u, err := url.Parse(peer); err == nil {
			out = append(out, u.Hostname())
		}
	}
	return out
}

// Files are the files with a client's certificate and key and with etcd's authority, in PEM.
type Files struct{ Authority, Certificate, Key string }

// Client is a client of etcd. It is safe for concurrent use. The caller must close it.
type Client struct{ etcd *clientv3.Client }

// Connect returns a client of the etcd members at URLs. It does not wait for a connection.
func Connect(files Files, urls ...string) (*Client, error) {
	tls, err := transport.TLSInfo{TrustedCAFile: files.Authority, CertFile: files.Certificate,
		KeyFile: files.Key}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: urls, TLS: tls, DialTimeout: callTimeout, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return &Client{c}, nil
}

// Close ends the client's connections.
func (c *Client) Close() error { return c.etcd.Close() }

// ErrNotReady is the error of Promote if the member does not have nearly all data yet.
var ErrNotReady = errors.New("the member has not caught up yet")

// List returns the members in the order of their IDs.
func (c *Client) List(ctx context.Context) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := c.etcd.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list etcd members: %w", err)
	}
	return convert(r.Members), nil
}

// AddLearner adds a member without a vote whose peer URL is given. It returns all members.
func (c *Client) AddLearner(ctx context.Context, peer string) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := c.etcd.MemberAddAsLearner(ctx, []string{peer})
	if err != nil {
		return nil, fmt.Errorf("add etcd member: %w", err)
	}
	return convert(r.Members), nil
}

// Promote gives a learner a vote. It returns nil if the member has one already.
func (c *Client) Promote(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.etcd.MemberPromote(ctx, id)
	switch {
	case errors.Is(err, rpctypes.ErrMemberNotLearner):
		return nil
	case errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
		return ErrNotReady
	case err != nil:
		return fmt.Errorf("promote etcd member: %w", err)
	}
	return nil
}

// Remove removes a member. It returns nil if there is no such member. etcd refuses the removal of a
// member that runs if too few others do.
func (c *Client) Remove(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.etcd.MemberRemove(ctx, id)
	if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
		return fmt.Errorf("remove etcd member: %w", err)
	}
	return nil
}

// SetPeer sets the URL at which other members reach a member.
func (c *Client) SetPeer(ctx context.Context, id uint64, peer string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := c.etcd.MemberUpdate(ctx, id, []string{peer}); err != nil {
		return fmt.Errorf("peer URL of the etcd member: %w", err)
	}
	return nil
}

// Status returns nil if a member answers a client. It does not say whether the member has a quorum.
func (c *Client) Status(ctx context.Context, m Member) error {
	if len(m.Clients) == 0 {
		return errNotStarted
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := c.etcd.Status(ctx, m.Clients[0]); err != nil {
		return fmt.Errorf("etcd member %s: %w", m.Name, err)
	}
	return nil
}

// Version returns the version of the member at a URL.
func (c *Client) Version(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := c.etcd.Status(ctx, url)
	if err != nil {
		return "", fmt.Errorf("version of etcd: %w", err)
	}
	return r.Version, nil
}

var errNotStarted = errors.New("the etcd member has not started yet")

// UseOnly makes the client use the given members only, as far as they have started.
func (c *Client) UseOnly(list []Member) {
	var urls []string
	for _, m := range list {
		urls = append(urls, m.Clients...)
	}
	c.etcd.SetEndpoints(urls...)
}

func convert(list []*pb.Member) []Member {
	out := make([]Member, len(list))
	for i, m := range list {
		out[i] = Member{ID: m.ID, Name: m.Name, Peers: m.PeerURLs, Clients: m.ClientURLs, Learner: m.IsLearner}
	}
	slices.SortFunc(out, func(a, b Member) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return out
}

// Replace adds a learner for a machine without data. It first removes the members with the machine's name
// or peer URL: the machine has lost its data, or an earlier attempt was interrupted. It returns an error
// if a member on another machine has the name and runs.
func (c *Client) Replace(ctx context.Context, name, peer string) ([]Member, error) {
	list, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range Stale(list, name, peer) {
		if !slices.Contains(m.Peers, peer) && c.Status(ctx, m) == nil {
			return nil, fmt.Errorf("%w: %s at %v", ErrNameInUse, name, m.Peers)
		}
		c.UseOnly(Without(list, m.ID))
		if err := c.Remove(ctx, m.ID); err != nil {
			return nil, err
		}
	}
	list, err = c.AddLearner(ctx, peer)
	if errors.Is(err, rpctypes.ErrTooManyLearners) {
		if now, listErr := c.List(ctx); listErr == nil {
			return nil, cmp.Or(CheckLearners(now, name, peer), err)
		}
	}
	return list, err
}

// ErrNameInUse is the error of Replace if another machine has the name.
var ErrNameInUse = errors.New("another machine that runs has this name; choose another one (--node-name)")
