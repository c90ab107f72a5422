// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Stale returns the members of list that a machine without data replaces: those with the machine's name
// or its peer URL.
func Stale(list []Member, name, peer string) []Member {
	return slices.DeleteFunc(slices.Clone(list), func(m Member) bool {
		return m.Name != name && !slices.Contains(m.Peers, peer)
	})
}

// ErrLearner is the error while a learner of another machine prevents that a machine joins.
var ErrLearner = errors.New("etcd accepts one member without a vote at a time")

// CheckLearners returns ErrLearner if list has a learner that a machine with a name and a peer URL does not replace.
// A machine that is a member already does not need that.
func CheckLearners(list []Member, name, peer string) error {
	if _, ok := WithPeer(list, peer); ok {
		return nil
	}
	stale := Stale(list, name, peer)
	for _, m := range list {
		if !m.Learner || slices.ContainsFunc(stale, func(s Member) bool { return s.ID == m.ID }) {
			continue
		}
		who := cmp.Or(m.Name, strings.Join(m.Hosts(), ","))
		return fmt.Errorf("%w, and that of the machine %s joins: wait for it; if it never comes up, run on a machine of a "+
			"control plane: ctl node remove --force %s", ErrLearner, who, who)
	}
	return nil
}

// WithPeer returns the member of list with a peer URL.
func WithPeer(list []Member, peer string) (m Member, ok bool) {
	i := slices.IndexFunc(list, func(m Member) bool { return slices.Contains(m.Peers, peer) })
	if i < 0 {
		return m, false
	}
	return list[i], true
}

// Without returns list without the member with an ID.
func Without(list []Member, id uint64) []Member {
	return slices.DeleteFunc(slices.Clone(list), func(m Member) bool { return m.ID == id })
}

// Voters returns the members of list that have a vote.
func Voters(list []Member) []Member {
	return slices.DeleteFunc(slices.Clone(list), func(m Member) bool { return m.Learner })
}

// Quorum returns how many of n members must run, so that etcd works.
func Quorum(n int) int { return n/2 + 1 }

// InitialCluster returns NAME=PEER-URL of each member, as a new member needs it for its first start.
// name is the name of the new member, whose peer URL is given. The names of other members that have not
// started yet are not known, and do not matter.
func InitialCluster(list []Member, name, peer string) []string {
	var out []string
	for _, m := range list {
		own := m.Name
		switch {
		case slices.Contains(m.Peers, peer):
			own = name
		case own == "":
			own = fmt.Sprintf("%x", m.ID)
		}
		for _, url := range m.Peers {
			out = append(out, own+"="+url)
		}
	}
	return out
}
