// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/members"
)

// ControlPlaneLabel is the label of the nodes of control planes, as in kubeadm.
const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Members is a client of the cluster's etcd: [members.Client].
type Members interface {
	List(ctx context.Context) ([]members.Member, error)
	Remove(ctx context.Context, id uint64) error
	Status(ctx context.Context, m members.Member) error
	// UseOnly makes the client use the given members only.
	UseOnly(list []members.Member)
}

var (
	errNoMembers = errors.New("the node is a control plane, whose member of etcd must be removed too: run the command " +
		"as root on the machine of a control plane (--force leaves the member in etcd)")
	errQuorum = errors.New("without this control plane, too few members of etcd would run, and the cluster would stand " +
		"still (use --force to remove the node anyway)")
)

// findMember returns the member of etcd on the machine of a node, or nil. It returns an error if the member
// must not or cannot be removed, unless the removal of the node is forced.
func (o *Options) findMember(ctx context.Context, node *v1.Node) (*members.Member, error) {
	if o.Members == nil {
		several, err := o.isOneOfSeveral(ctx, node)
		if err != nil || !several || o.Force {
			return nil, err
		}
		return nil, fmt.Errorf("node %s: %w", node.Name, errNoMembers)
	}
	return o.memberOf(ctx, node.Name)
}

// memberOf is findMember for a client with the credentials for etcd. The name may also be the address of a
// machine whose member has no name, because it has not started.
func (o *Options) memberOf(ctx context.Context, name string) (*members.Member, error) {
	list, err := o.Members.List(ctx)
	if err != nil && o.Force {
		fmt.Fprintf(o.ErrOut, "Warning: a member of etcd on the machine is not removed: %v\n", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(m members.Member) bool {
		return m.Name == name || m.Name == "" && slices.Contains(m.Hosts(), name)
	})
	if i < 0 {
		return nil, nil
	}
	rest := members.Without(list, list[i].ID)
	voters := members.Voters(rest)
	if len(voters) == 0 {
		return nil, nil // the cluster ends with this machine
	}
	running := 0
	for _, m := range voters {
		if o.Members.Status(ctx, m) == nil {
			running++
		}
	}
	if running < members.Quorum(len(voters)) && !o.Force {
		return nil, fmt.Errorf("node %s: %w", name, errQuorum)
	}
	o.Members.UseOnly(rest) // the member to remove may be the nearest one
	return &list[i], nil
}

// isOneOfSeveral reports whether a node is a control plane of a cluster that has others.
func (o *Options) isOneOfSeveral(ctx context.Context, node *v1.Node) (bool, error) {
	slice, err := o.apiServers(ctx)
	if err != nil {
		return false, err
	}
	servers := agent.ServersIn(slice)
	own := func(server string) bool { return hasAddress(node, server) }
	_, labelled := node.Labels[ControlPlaneLabel]
	others := slices.ContainsFunc(servers, func(server string) bool { return !own(server) })
	return others && (labelled || slices.ContainsFunc(servers, own)), nil
}

// removeLost removes the member of etcd of a machine whose Node does not exist, because its "ctl join" has not
// come to an end. etcd accepts one learner at a time, so the rest of such a join prevents all others. notFound
// is the answer to the question for the Node.
func (o *Options) removeLost(ctx context.Context, name string, notFound error) error {
	if o.Members == nil || !o.Force {
		return notFound
	}
	m, err := o.memberOf(ctx, name)
	if err != nil {
		return err
	}
	if m == nil {
		return notFound
	}
	return o.removeMember(ctx, m)
}

// removeMember removes a member of etcd, which may be nil.
func (o *Options) removeMember(ctx context.Context, m *members.Member) error {
	if m == nil {
		return nil
	}
	if err := o.Members.Remove(ctx, m.ID); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "etcd member %s removed\n", cmp.Or(m.Name, strings.Join(m.Peers, ",")))
	return nil
}

// removeServer makes all machines forget the API server on the machine of a node. m is the machine's member of etcd,
// or nil. It does nothing for workers.
func (o *Options) removeServer(ctx context.Context, node *v1.Node, m *members.Member) error {
	isServer, err := o.isOneOfSeveral(ctx, node)
	if apierrors.IsNotFound(err) {
		return nil // the machines have no list of API servers
	}
	if err != nil || !isServer && m == nil {
		return err
	}
	var addresses []string
	for _, a := range node.Status.Addresses {
		addresses = append(addresses, a.Address)
	}
	if m != nil {
		addresses = append(addresses, m.Hosts()...)
	}
	slices.Sort(addresses)
	addresses = slices.DeleteFunc(slices.Compact(addresses), func(a string) bool {
		_, err := netip.ParseAddr(a)
		return err != nil
	})
	return agent.RemoveServers(ctx, o.Client, addresses)
}
