// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"testing"

	"keelson.dev/keelson/pkg/machine/members"
)

// fakeEtcd is a cluster's etcd.
type fakeEtcd struct {
	list, used []members.Member
	removed    uint64
}

func (e *fakeEtcd) List(context.Context) ([]members.Member, error) { return e.list, nil }

func (e *fakeEtcd) Remove(_ context.Context, id uint64) error {
	e.removed = id
	return nil
}

func (e *fakeEtcd) Status(context.Context, members.Member) error { return nil }

func (e *fakeEtcd) UseOnly(list []members.Member) { e.used = list }

// TestRemoveOwn checks that a machine that is reset removes its member of etcd, also one that has no vote and no name
// yet, and that the last member with a vote stays.
func TestRemoveOwn(t *testing.T) {
	const peer = "https://192.0.2.2:2380"
	first := members.Member{ID: 1, Name: "m1", Peers: []string{"https://192.0.2.1:2380"}}
	voter := members.Member{ID: 2, Name: "m2", Peers: []string{peer}}
	learner := members.Member{ID: 2, Peers: []string{peer}, Learner: true}
	other := members.Member{ID: 3, Peers: []string{"https://192.0.2.3:2380"}, Learner: true}
	for name, tc := range map[string]struct {
		list    []members.Member
		removed uint64
	}{
		"a voter":                  {[]members.Member{first, voter}, 2},
		"a learner":                {[]members.Member{first, learner}, 2},
		"the only voter":           {[]members.Member{voter}, 0},
		"the only voter, learners": {[]members.Member{voter, other}, 0},
		"no member":                {[]members.Member{first, other}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := &fakeEtcd{list: tc.list}
			if err := removeOwn(t.Context(), e, peer); err != nil || e.removed != tc.removed {
				t.Errorf("removed %d, %v; want %d", e.removed, err, tc.removed)
			}
			if _, uses := members.WithPeer(e.used, peer); uses {
				t.Error("the member that is removed is asked to remove itself")
			}
		})
	}
}
