// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/members"
)

// etcd is a cluster's etcd. Its members that do not run are in down.
type etcd struct {
	list, used []members.Member
	down       []string
	removed    []uint64
	err        error
}

func (e *etcd) List(context.Context) ([]members.Member, error) { return e.list, e.err }

func (e *etcd) Remove(_ context.Context, id uint64) error {
	e.removed = append(e.removed, id)
	return nil
}

func (e *etcd) Status(_ context.Context, m members.Member) error {
	if slices.Contains(e.down, m.Name) {
		return errDown
	}
	return nil
}

func (e *etcd) UseOnly(list []members.Member) { e.used = list }

var errDown = errors.New("down")

// TestRemoveMember checks that the member of etcd on a node's machine is removed before the Node, unless
// the others cannot work without it.
func TestRemoveMember(t *testing.T) {
	m1, m2, m3 := members.Member{ID: 1, Name: "m1"}, members.Member{ID: 2, Name: "m2"}, members.Member{ID: 3, Name: "m3"}
	learner := members.Member{ID: 4, Name: "m4", Learner: true}
	for name, tc := range map[string]struct {
		etcd    etcd
		force   bool
		want    error
		removed []uint64
	}{
		"three":                 {etcd{list: []members.Member{m1, m2, m3}}, false, nil, []uint64{2}},
		"two":                   {etcd{list: []members.Member{m1, m2}}, false, nil, []uint64{2}},
		"the failed one":        {etcd{list: []members.Member{m1, m2, m3}, down: []string{"m2"}}, false, nil, []uint64{2}},
		"another failed":        {etcd{list: []members.Member{m1, m2, m3}, down: []string{"m3"}}, false, errQuorum, nil},
		"another failed, force": {etcd{list: []members.Member{m1, m2, m3}, down: []string{"m3"}}, true, nil, []uint64{2}},
		"learners do not help":  {etcd{list: []members.Member{m1, m2, learner}, down: []string{"m1"}}, false, errQuorum, nil},
		"not a member":          {etcd{list: []members.Member{m1, m3}}, false, nil, nil},
		"the only member":       {etcd{list: []members.Member{m2}}, false, nil, nil},
		"no answer":             {etcd{err: errDown}, false, errDown, nil},
		"no answer, force":      {etcd{err: errDown}, true, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, v1.ConditionTrue, "192.0.2.2")
			err := c.remove(func(o *Options) { o.Members, o.Force = &tc.etcd, tc.force })
			if !errors.Is(err, tc.want) || !slices.Equal(tc.etcd.removed, tc.removed) {
				t.Errorf("error %v, removed %v; want %v, %v", err, tc.etcd.removed, tc.want, tc.removed)
			}
			_, gone := c.Client.CoreV1().Nodes().Get(t.Context(), "m2", metav1.GetOptions{})
			if apierrors.IsNotFound(gone) != (tc.want == nil) {
				t.Errorf("node: %v", gone)
			}
			if said := strings.Contains(c.out.String(), "etcd member m2 removed\n"); said != (tc.removed != nil) {
				t.Errorf("printed %s", c.out.String())
			}
			if len(tc.removed) > 0 && slices.ContainsFunc(tc.etcd.used, func(m members.Member) bool { return m.ID == 2 }) {
				t.Error("the member that is removed is asked to remove itself")
			}
		})
	}
}

// TestRemoveServer checks that all machines forget the API server of a control plane that is removed, and that the
// removal of a worker changes no list.
func TestRemoveServer(t *testing.T) {
	own := members.Member{ID: 2, Name: "m2", Peers: []string{"https://192.0.2.22:2380"}}
	for name, tc := range map[string]struct {
		label   bool
		list    []members.Member
		removed string
	}{
		"worker":                {},
		"control plane":         {label: true, removed: "192.0.2.2"},
		"with a member of etcd": {list: []members.Member{{ID: 1, Name: "m1"}, own}, removed: "192.0.2.2,192.0.2.22"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, v1.ConditionTrue, "192.0.2.2")
			if tc.label {
				node := c.node()
				node.Labels = map[string]string{ControlPlaneLabel: ""}
				if _, err := c.Client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.remove(func(o *Options) { o.Members = &etcd{list: tc.list} }); err != nil {
				t.Fatal(err)
			}
			s, err := c.Client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Annotations[agent.RemovedServers]; got != tc.removed {
				t.Errorf("removed servers %q, want %q", got, tc.removed)
			}
		})
	}
}

// TestRemoveLostMember checks that the rest of a join that has not come to an end can be removed: the member
// of a machine that has no Node.
func TestRemoveLostMember(t *testing.T) {
	list := []members.Member{{ID: 1, Name: "m1"}, {ID: 2, Name: "m2"},
		{ID: 3, Learner: true, Peers: []string{"https://192.0.2.3:2380"}}, {ID: 4, Name: "m4", Learner: true}}
	for name, tc := range map[string]struct {
		node    string
		members Members
		force   bool
		removed []uint64
		out     string
	}{
		"by its name": {"m4", &etcd{list: list}, true, []uint64{4}, "etcd member m4 removed\n"},
		"by its address": {"192.0.2.3", &etcd{list: list}, true, []uint64{3},
			"etcd member https://192.0.2.3:2380 removed\n"},
		"without --force":      {"m4", &etcd{list: list}, false, nil, ""},
		"no such member":       {"m5", &etcd{list: list}, true, nil, ""},
		"no credentials":       {"m4", nil, true, nil, ""},
		"etcd does not answer": {"m4", &etcd{err: errDown}, true, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, v1.ConditionTrue, "192.0.2.2")
			var out strings.Builder
			err := Remove(t.Context(), tc.node, Options{Client: c.Client, Members: tc.members, Force: tc.force, Out: &out,
				ErrOut: io.Discard})
			if apierrors.IsNotFound(err) != (tc.removed == nil) || out.String() != tc.out {
				t.Errorf("error %v, printed %q", err, out.String())
			}
			if e, ok := tc.members.(*etcd); ok && !slices.Equal(e.removed, tc.removed) {
				t.Errorf("removed %v, want %v", e.removed, tc.removed)
			}
		})
	}
}

// TestRemoveMemberKeepsPods checks that the member remains if the pods of the node cannot be evicted.
func TestRemoveMemberKeepsPods(t *testing.T) {
	c := newCell(t, v1.ConditionTrue, "192.0.2.2")
	c.pod("p", "")
	e := &etcd{list: []members.Member{{ID: 1, Name: "m1"}, {ID: 2, Name: "m2"}}}
	if err := c.remove(func(o *Options) { o.Members = e }); !errors.Is(err, errDrain) || len(e.removed) > 0 {
		t.Errorf("error %v, removed %v", err, e.removed)
	}
}

// TestRemoveWithoutCredentials checks that a control plane, which may have failed, is not removed by a
// client that cannot remove its member of etcd.
func TestRemoveWithoutCredentials(t *testing.T) {
	c := newCell(t, v1.ConditionTrue, "192.0.2.2")
	n, err := c.Client.CoreV1().Nodes().Get(t.Context(), "m2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Labels = map[string]string{ControlPlaneLabel: ""}
	if _, err := c.Client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.remove(nil); !errors.Is(err, errNoMembers) {
		t.Errorf("error %v, want %v", err, errNoMembers)
	}
	if err := c.remove(func(o *Options) { o.Force = true }); err != nil {
		t.Error(err)
	}
	c.check(false, nil, nil)
}
