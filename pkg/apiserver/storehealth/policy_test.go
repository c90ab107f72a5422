// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storehealth

import (
	"errors"
	"testing"
	"testing/quick"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv/etcd"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

var usual = Policy{Warn: 80, Refuse: 95, Defragment: true}

// full returns a member with a quota of 100 GiB. The given percentage of it is in use.
func full(percent int64) etcd.Member {
	return etcd.Member{Size: 100 * gib, InUse: percent * gib, Quota: 100 * gib}
}

func TestLevel(t *testing.T) {
	alarm := full(10)
	alarm.NoSpace = true
	unknown := full(99)
	unknown.Err = errors.New("down")
	for name, tc := range map[string]struct {
		policy  Policy
		members []etcd.Member
		before  Level
		want    Level
	}{
		"no members":              {usual, nil, Warning, Ample},
		"below all":               {usual, []etcd.Member{full(79)}, Ample, Ample},
		"warning":                 {usual, []etcd.Member{full(80)}, Ample, Warning},
		"warning goes on":         {usual, []etcd.Member{full(78)}, Warning, Warning},
		"warning ends":            {usual, []etcd.Member{full(77)}, Warning, Ample},
		"refusing":                {usual, []etcd.Member{full(95)}, Ample, Refusing},
		"refusing goes on":        {usual, []etcd.Member{full(93)}, Refusing, Refusing},
		"refusing ends":           {usual, []etcd.Member{full(92)}, Refusing, Warning},
		"full":                    {usual, []etcd.Member{full(97)}, Warning, Full},
		"full becomes refusing":   {usual, []etcd.Member{full(94)}, Full, Refusing},
		"fullest member decides":  {usual, []etcd.Member{full(1), full(96), full(50)}, Ample, Refusing},
		"alarm":                   {usual, []etcd.Member{full(1), alarm}, Ample, Full},
		"unknown member":          {usual, []etcd.Member{full(1), unknown}, Ample, Ample},
		"unknown quota":           {usual, []etcd.Member{{Size: gib, InUse: gib}}, Ample, Ample},
		"nothing configured":      {Policy{}, []etcd.Member{alarm, full(100)}, Ample, Ample},
		"only warnings":           {Policy{Warn: 50}, []etcd.Member{alarm, full(99)}, Ample, Warning},
		"only refusals":           {Policy{Refuse: 50}, []etcd.Member{full(49)}, Ample, Ample},
		"only refusals, half-way": {Policy{Refuse: 50}, []etcd.Member{full(60)}, Ample, Refusing},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.policy.Level(tc.members, tc.before); got != tc.want {
				t.Errorf("level %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAdmits(t *testing.T) {
	configMaps := corev1.Resource("configmaps")
	for name, tc := range map[string]struct {
		growth store.Growth
		from   Level // first level at which the write is refused; above Full: never
	}{
		"new object":             {store.Growth{Resource: configMaps, New: 1}, Refusing},
		"new event":              {store.Growth{Resource: corev1.Resource("events"), New: 1}, Refusing},
		"large growth":           {store.Growth{Resource: configMaps, Old: 10, New: 10 + smallGrowth + 1}, Refusing},
		"small growth":           {store.Growth{Resource: configMaps, Old: 10, New: 10 + smallGrowth}, Full},
		"equal size":             {store.Growth{Resource: configMaps, Old: 10, New: 10}, Full + 1},
		"shrinks":                {store.Growth{Resource: configMaps, Old: 10, New: 9}, Full + 1},
		"is being deleted":       {store.Growth{Resource: configMaps, Old: 10, New: gib, Terminating: true}, Full + 1},
		"new lease":              {store.Growth{Resource: essential[0], New: 10}, Full + 1},
		"status of a node":       {store.Growth{Resource: corev1.Resource("nodes"), Old: 10, New: mib}, Full + 1},
		"address of a server":    {store.Growth{Resource: corev1.Resource("masterleases"), New: 10}, Full + 1},
		"allocated service port": {store.Growth{Resource: corev1.Resource("ranges"), Old: 10, New: 20}, Full + 1},
	} {
		t.Run(name, func(t *testing.T) {
			for level := Ample; level <= Full; level++ {
				if got, want := usual.Admits(level, tc.growth), level < tc.from; got != want {
					t.Errorf("at level %v: admitted %t, want %t", level, got, want)
				}
			}
		})
	}
}

// TestAdmitsIsMonotonic checks that more space or less growth never leads to a refusal.
func TestAdmitsIsMonotonic(t *testing.T) {
	check := func(old, first, second uint16, terminating bool) bool {
		small, large := int(min(first, second)), int(max(first, second))
		at := func(level Level, size int) bool {
			return usual.Admits(level, store.Growth{Resource: corev1.Resource("pods"), Old: int(old), New: size,
				Terminating: terminating})
		}
		for level := Ample; level <= Full; level++ {
			if at(level, large) && !at(level, small) || level > Ample && at(level, small) && !at(level-1, small) {
				return false
			}
		}
		return true
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestNext(t *testing.T) {
	member := func(id uint64, size, inUse int64) etcd.Member {
		return etcd.Member{ID: id, Size: size, InUse: inUse, Quota: 8 * gib}
	}
	leader := func(m etcd.Member) etcd.Member { m.Leader = true; return m }
	alarm := func(m etcd.Member) etcd.Member { m.NoSpace = true; return m }
	learner := func(m etcd.Member) etcd.Member { m.Learner = true; return m }
	down := func(m etcd.Member) etcd.Member { m.Err = errors.New("down"); return m }
	free := func(id uint64) etcd.Member { return member(id, gib, gib/2) }
	compact := func(id uint64) etcd.Member { return member(id, gib, gib) }
	never := func(uint64) time.Duration { return pause }
	justNow := func(uint64) time.Duration { return pause - 1 }
	for name, tc := range map[string]struct {
		members []etcd.Member
		since   func(uint64) time.Duration
		want    uint64 // 0: none
	}{
		"nothing is free":                   {[]etcd.Member{leader(compact(1)), compact(2), compact(3)}, never, 0},
		"followers first":                   {[]etcd.Member{leader(free(1)), free(2), free(3)}, never, 2},
		"then the others":                   {[]etcd.Member{leader(free(1)), compact(2), free(3)}, never, 3},
		"leader last":                       {[]etcd.Member{leader(free(1)), compact(2), compact(3)}, never, 1},
		"not too often":                     {[]etcd.Member{leader(free(1)), free(2), free(3)}, justNow, 0},
		"not while a member is down":        {[]etcd.Member{leader(free(1)), free(2), down(free(3))}, never, 0},
		"not for few bytes":                 {[]etcd.Member{leader(compact(1)), member(2, 150*mib, 50*mib)}, never, 0},
		"not for a small part":              {[]etcd.Member{leader(compact(1)), member(2, 4*gib, 3*gib)}, never, 0},
		"alone, short":                      {[]etcd.Member{leader(member(1, gib, 256*mib))}, never, 1},
		"alone, would stop writes too long": {[]etcd.Member{leader(free(1))}, never, 0},
		"alone, but near the quota":         {[]etcd.Member{leader(member(1, 8*gib, 7*gib))}, never, 1},
		"near the quota, nothing to gain":   {[]etcd.Member{leader(member(1, 8*gib, 8*gib-300*mib))}, never, 0},
		"near the quota, not too often":     {[]etcd.Member{leader(member(1, 8*gib, 7*gib))}, justNow, 0},
		"alarm, at once":                    {[]etcd.Member{alarm(leader(member(1, 8*gib, 8*gib-300*mib)))}, justNow, 1},
		"alarm, nothing to gain":            {[]etcd.Member{alarm(leader(member(1, 8*gib, 8*gib-mib)))}, justNow, 0},
		"two, would stop writes too long":   {[]etcd.Member{leader(free(1)), free(2)}, never, 0},
		"two, short":                        {[]etcd.Member{leader(free(1)), member(2, gib, 256*mib)}, never, 2},
		"two, near the quota":               {[]etcd.Member{leader(member(1, 8*gib, 7*gib)), compact(2)}, never, 1},
		"not while there is a learner": {[]etcd.Member{leader(free(1)), free(2), free(3), learner(compact(4))},
			never, 0},
		"alarm and a learner": {[]etcd.Member{alarm(leader(member(1, 8*gib, 7*gib))), learner(compact(2))},
			justNow, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, locked := range []bool{false, true} {
				got, ok := usual.Next(tc.members, tc.since, locked)
				if ok != (tc.want != 0) || got.ID != tc.want {
					t.Errorf("locked %t: next is %d (%t), want %d", locked, got.ID, ok, tc.want)
				}
				if got, ok := (Policy{Warn: 80, Refuse: 95}).Next(tc.members, tc.since, locked); ok {
					t.Errorf("without defragmentation, next is %d", got.ID)
				}
			}
		})
	}
}

// TestNextKeepsQuorum checks how many of the members must be known before one of them is defragmented
// while the alarm is on: all if other servers may work at the same time, otherwise one more than a quorum.
func TestNextKeepsQuorum(t *testing.T) {
	for _, tc := range []struct{ members, locked, unlocked int }{
		{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4}, {5, 4, 5}, {7, 5, 7},
	} {
		for known := range tc.members + 1 {
			members := make([]etcd.Member, tc.members)
			for i := range members {
				members[i] = etcd.Member{ID: uint64(i + 1), Size: 8 * gib, InUse: 7 * gib, Quota: 8 * gib, NoSpace: true}
				if i >= known {
					members[i] = etcd.Member{ID: uint64(i + 1), Err: errors.New("down")}
				}
			}
			for locked, least := range map[bool]int{true: tc.locked, false: tc.unlocked} {
				_, ok := usual.Next(members, func(uint64) time.Duration { return 0 }, locked)
				if want := known >= least; ok != want {
					t.Errorf("%d of %d members known, locked %t: %t, want %t", known, tc.members, locked, ok, want)
				}
			}
		}
	}
}

// TestNextEnds checks that Next terminates if each defragmentation frees all free pages: all members get
// their turn, and the leader is the last.
func TestNextEnds(t *testing.T) {
	check := func(sizes [5]uint16, used [5]uint16, leader uint8, alarm bool) bool {
		members := make([]etcd.Member, len(sizes))
		for i := range members {
			size := int64(sizes[i]) * mib / 8
			members[i] = etcd.Member{ID: uint64(i + 1), Size: size, InUse: min(size, int64(used[i])*mib/8), Quota: 8 * gib,
				Leader: i == int(leader)%len(sizes), NoSpace: alarm}
		}
		order := []uint64{}
		for {
			m, ok := usual.Next(members, func(uint64) time.Duration { return pause }, true)
			if !ok {
				break
			}
			if order = append(order, m.ID); len(order) > len(members) {
				return false
			}
			members[m.ID-1].Size = m.InUse
		}
		for i, id := range order {
			if members[id-1].Leader && i < len(order)-1 {
				return false
			}
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 1000}); err != nil {
		t.Error(err)
	}
}

func TestDisarms(t *testing.T) {
	alarm := func(size int64) etcd.Member { return etcd.Member{Size: size, Quota: 100, NoSpace: true} }
	for name, tc := range map[string]struct {
		policy  Policy
		members []etcd.Member
		want    bool
	}{
		"space again":            {usual, []etcd.Member{alarm(96), alarm(50)}, true},
		"a member has no space":  {usual, []etcd.Member{alarm(50), alarm(97)}, true},
		"no alarm":               {usual, []etcd.Member{{Size: 50, Quota: 100}}, false},
		"without configuration":  {Policy{Warn: 80, Refuse: 95}, []etcd.Member{alarm(50)}, false},
		"quota is not known":     {usual, []etcd.Member{{Size: 50, NoSpace: true}}, true},
		"a member is not known":  {usual, []etcd.Member{{Err: errors.New("down")}, alarm(50)}, true},
		"no members, no problem": {usual, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.policy.Disarms(tc.members); got != tc.want {
				t.Errorf("disarms %t, want %t", got, tc.want)
			}
		})
	}
}

// TestFullest checks that the member with the largest share is described, with sizes whose product does
// not fit into 64 bits.
func TestFullest(t *testing.T) {
	members := []etcd.Member{
		{InUse: 2 * gib, Quota: 8 * gib}, {InUse: 7 * gib, Quota: 8 * gib}, {InUse: 6 * gib, Quota: 9 * gib},
	}
	if got, want := fullest(members), "87 % of etcd's quota is in use (7168 of 8192 MiB)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := fullest(nil), "the quota of etcd is not known"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
