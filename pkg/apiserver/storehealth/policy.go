// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storehealth

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv/etcd"
)

// Level says how little space is left in a database.
type Level int

// The levels, in increasing order.
const (
	Ample    Level = iota
	Warning        // operators are warned
	Refusing       // new objects, and updates that grow an object by more than smallGrowth, are rejected
	Full           // all updates that grow an object are rejected
)

// String returns the name that operators see.
func (l Level) String() string {
	return []string{"Ample", "Warning", "Refusing", "Full"}[l]
}

const (
	// smallGrowth is the number of bytes by which an update may grow an object at the level Refusing. It
	// is enough for a changed status, the binding of a pod, or some endpoints.
	smallGrowth = 1 << 10
	// hysteresis is how many percent of the quota must become free, below the threshold of a level,
	// before the level ends.
	hysteresis = 2

	// A defragmentation pays if it frees much of a member's database.
	minFreeBytes, minFreePercent = 100 << 20, 45
	// If a cluster has fewer than three members, it stops all writes while one of them is defragmented, for
	// about 10 s for each GB in use. So the member is only defragmented if that takes less than about 3 s,
	// or if it would soon reject writes.
	maxInUseAlone = 256 << 20
	// A member whose database has nearly reached the quota will soon reject writes, even if it has free
	// pages. It is then defragmented to get these below the quota.
	nearQuotaPercent, nearQuotaFreePercent = 97, 5
	// alarmFreePercent is the share of the quota that must be free for a defragmentation while the alarm
	// NOSPACE is on.
	alarmFreePercent = 1
	// pause is the time between defragmentations of one member, unless the alarm NOSPACE is on.
	pause = time.Hour
)

// essential are the resources whose writes are always admitted: without them, nodes and processes
// would be considered dead. The last two are not served: they are the allocated node ports, and the
// addresses of API servers.
var essential = []schema.GroupResource{
	coordinationv1.Resource("leases"), corev1.Resource("nodes"),
	corev1.Resource("ranges"), corev1.Resource("masterleases"),
}

// Policy decides what is done at which size. The zero value does nothing.
type Policy struct {
	// Warn and Refuse are the percentages of the quota in use at which Warning and Refusing begin; 0
	// means never. Full begins half-way between Refuse and 100.
	Warn, Refuse int
	// Defragment allows defragmentations, and the end of alarms.
	Defragment bool
}

// Level returns the level of a database with these members. before is the level until now.
func (p Policy) Level(members []etcd.Member, before Level) Level {
	level := Ample
	for i := range members {
		level = max(level, p.memberLevel(&members[i], before))
	}
	return level
}

func (p Policy) memberLevel(m *etcd.Member, before Level) Level {
	thresholds := []int{Warning: p.Warn, Refusing: p.Refuse, Full: (p.Refuse + 100) / 2}
	if p.Refuse == 0 {
		thresholds = thresholds[:Refusing]
	}
	if m.NoSpace && p.Refuse > 0 {
		return Full
	}
	if m.Err != nil || m.Quota <= 0 {
		return Ample
	}
	for level := Level(len(thresholds) - 1); level > Ample; level-- {
		percent := thresholds[level]
		if percent == 0 {
			continue
		}
		if level <= before {
			percent -= hysteresis
		}
		if m.InUse*100 >= m.Quota*int64(percent) {
			return level
		}
	}
	return Ample
}

// Admits reports whether a write is admitted at a level.
func (Policy) Admits(level Level, g store.Growth) bool {
	switch {
	case level < Refusing, g.New <= g.Old, g.Terminating, slices.Contains(essential, g.Resource):
		return true
	case level == Refusing:
		return g.Old > 0 && g.New-g.Old <= smallGrowth
	}
	return false
}

// Next returns the member that should be defragmented now. The leader comes last, because clients wait
// for a new leader if it does not answer. since returns the time since the last defragmentation of a
// member. locked reports whether no other server can defragment a member meanwhile.
func (p Policy) Next(members []etcd.Member, since func(id uint64) time.Duration, locked bool) (etcd.Member, bool) {
	alarm := noSpace(members)
	known := slices.DeleteFunc(slices.Clone(members), func(m etcd.Member) bool { return m.Err != nil })
	if !p.Defragment || !spares(members, len(known), alarm && locked) {
		return etcd.Member{}, false
	}
	slices.SortStableFunc(known, func(a, b etcd.Member) int {
		switch {
		case a.Leader == b.Leader:
			return 0
		case a.Leader:
			return 1
		}
		return -1
	})
	for _, m := range known {
		if alarm && urgent(&m, 0, alarmFreePercent) {
			return m, true
		}
		if since(m.ID) >= pause && (urgent(&m, nearQuotaPercent, nearQuotaFreePercent) || pays(&m, losesQuorum(members))) {
			return m, true
		}
	}
	return etcd.Member{}, false
}

// spares reports whether one of the known members may stop. Without urgency, all members must be known: a
// member that another server defragments does not answer. A learner reads the database of the leader, and
// may become a voting member at any time, so a cluster with a learner spares no member.
func spares(members []etcd.Member, known int, urgent bool) bool {
	switch {
	case slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Learner }):
		return false
	case known == len(members):
		return true
	}
	quorum := len(members)/2 + 1
	return urgent && known-1 >= quorum
}

// losesQuorum reports whether a cluster with these members accepts no writes while one of them stops.
func losesQuorum(members []etcd.Member) bool { return len(members) < 3 }

// urgent reports whether a member has used at least used percent of its quota, and could make free
// percent of it available.
func urgent(m *etcd.Member, used, free int64) bool {
	return m.Quota > 0 && m.Size*100 >= m.Quota*used && (m.Size-m.InUse)*100 >= m.Quota*free
}

// pays reports whether a defragmentation frees enough to justify that the member stops for some time.
func pays(m *etcd.Member, stopsWrites bool) bool {
	free := m.Size - m.InUse
	return free > minFreeBytes && free*100 > m.Size*minFreePercent && (!stopsWrites || m.InUse <= maxInUseAlone)
}

// Disarms reports whether the alarm NOSPACE is to be ended, when no member needs a defragmentation. A
// member without space raises it again at the next write. Ending it nevertheless makes etcd commit, and
// etcd counts the pages that a compaction has freed only then.
func (p Policy) Disarms(members []etcd.Member) bool { return p.Defragment && noSpace(members) }

func noSpace(members []etcd.Member) bool {
	return slices.ContainsFunc(members, func(m etcd.Member) bool { return m.NoSpace })
}
