// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// statusTimeout limits how long a member may take to report its state.
const statusTimeout = 2 * time.Second

// Member is a member of an etcd cluster, with the state of its database.
type Member struct {
	ID   uint64
	Name string
	// Learner reports whether the member has no vote yet, because it still copies the database.
	Learner bool
	// Err says why the state of this member is not known. The fields below are then not set.
	Err    error
	Leader bool
	// Size is the size of the database in bytes. InUse does not include pages that are free since keys
	// were deleted or compacted; etcd uses them for new data. A member whose Size reaches Quota rejects
	// writes, even if it has free pages. If Quota is 0, it is not known: etcd 3.5 does not report it.
	Size, InUse, Quota int64
	// NoSpace reports whether the alarm NOSPACE is on, as far as this member knows. The alarm of one
	// member makes all members reject writes, except deletes.
	NoSpace  bool
	Revision int64

	endpoint string
}

// Members returns the members and their states, ordered by ID. The error is that of the list;
// errors of single members are in Member.Err.
func (s *Store) Members(ctx context.Context) ([]Member, error) {
	// A serializable request is answered from the state of one member, so it costs no consensus.
	list, err := s.client.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, err
	}
	var endpoints []string
	for _, m := range list.Members {
		endpoints = append(endpoints, m.ClientURLs...)
	}
	// The configured endpoints come last. They are for members whose own URLs cannot be reached from here.
	for _, endpoint := range s.client.Endpoints() {
		if !slices.Contains(endpoints, endpoint) {
			endpoints = append(endpoints, endpoint)
		}
	}
	states := s.readEndpoints(ctx, endpoints)
	out := make([]Member, len(list.Members))
	for i, m := range list.Members {
		out[i] = Member{ID: m.ID, Name: m.Name, Learner: m.IsLearner, Err: errors.New("no endpoint of the member answers")}
		for j := range states {
			out[i].set(&states[j], m.ClientURLs)
		}
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// endpointState is what a member reports at an endpoint.
type endpointState struct {
	endpoint string
	status   *clientv3.StatusResponse
	err      error
}

// readEndpoints asks all endpoints at once, because each one that does not answer takes statusTimeout.
func (s *Store) readEndpoints(ctx context.Context, endpoints []string) []endpointState {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	states := make([]endpointState, len(endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		wg.Go(func() {
			status, err := s.client.Status(ctx, endpoint)
			states[i] = endpointState{endpoint, status, err}
		})
	}
	wg.Wait()
	return states
}

// set takes over the state at an endpoint if it is that of this member. urls are the member's own.
func (m *Member) set(state *endpointState, urls []string) {
	status := state.status
	switch {
	case m.Err == nil: // another endpoint has answered
		return
	case state.err != nil:
		if slices.Contains(urls, state.endpoint) {
			m.Err = state.err
		}
		return
	case status.Header.MemberId != m.ID:
		return
	}
	m.Err, m.endpoint, m.Leader, m.Revision = nil, state.endpoint, status.Leader == m.ID, status.Header.Revision
	m.Size, m.InUse, m.Quota = status.DbSize, status.DbSizeInUse, status.DbSizeQuota
	m.NoSpace = slices.ContainsFunc(status.Errors, func(text string) bool {
		return strings.Contains(text, pb.AlarmType_NOSPACE.String())
	})
}

// Defragment makes one member rewrite its database without free pages. The member answers no
// requests meanwhile.
func (s *Store) Defragment(ctx context.Context, m Member) error { return s.defragment(ctx, m) }

func (s *Store) requestDefragmentation(ctx context.Context, m Member) error {
	_, err := s.client.Defragment(ctx, m.endpoint)
	return err
}

// Disarm ends all alarms NOSPACE. A member that still has too little space raises its alarm again at
// the next write.
func (s *Store) Disarm(ctx context.Context) error {
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, a := range alarms.Alarms {
		if a.Alarm != pb.AlarmType_NOSPACE {
			continue
		}
		if _, err := s.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
			return err
		}
	}
	return nil
}

// CompactNow is like Compact, but returns when the member that does it has removed the old states from
// its database, so that their pages are free.
func (s *Store) CompactNow(ctx context.Context, revision int64) error {
	_, err := s.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	return translate(err)
}

// IsNoSpace reports whether etcd has rejected a write because its database has reached the quota.
func IsNoSpace(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }
