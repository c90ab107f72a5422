// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/members"
	"keelson.dev/keelson/pkg/provision"
)

const (
	// reachTimeout is how long another machine may take to accept a connection.
	reachTimeout = 5 * time.Second
	// publishTime is how long a new member of etcd that has received little data needs to answer.
	publishTime = 2 * time.Second
	// catchUpTimeout is how long a new member of etcd may take to copy the data of the cluster.
	catchUpTimeout = 10 * time.Minute
)

// InviteControlPlane returns what other machines need to join the cluster as control planes, with a new
// token. It runs on the machine of a control plane. If that has the only etcd of the cluster in its API
// server, InviteControlPlane makes a unit of it, so that other members can join it.
func InviteControlPlane(ctx context.Context, o provision.TokenOptions, d Deps) (out *Invitation, err error) {
	c, p, err := installedControlPlane()
	if err != nil {
		return nil, err
	}
	err = undisturbed(func() error {
		if err := notRejoining(rejoinJournal); err != nil {
			return err
		}
		out, err = inviteControlPlane(ctx, c, p, o, d)
		return err
	})
	return out, err
}

// inviteControlPlane is InviteControlPlane after the checks whether other work runs.
func inviteControlPlane(ctx context.Context, c *config.KeelsonConfiguration, p *provision.ControlPlane,
	o provision.TokenOptions, d Deps) (*Invitation, error) {
	s := &steps{Deps: d}
	if err := s.separateEtcd(ctx, c, p); err != nil {
		return nil, err
	}
	var authorities provision.Authorities
	err := filelock.While(certificatesLock, func() (err error) {
		authorities, err = p.ReadAuthorities()
		return err
	})
	if err != nil {
		return nil, err
	}
	hashes, err := authorityHashes(authorities["pki/ca.crt"])
	if err != nil {
		return nil, err
	}
	api, err := newAdministrator(p.Server)
	if err != nil {
		return nil, err
	}
	token, err := provision.CreateControlPlaneToken(ctx, api.client, o, authorities, d.Clock)
	if err != nil {
		return nil, err
	}
	return &Invitation{Server: apiAddress(c), Token: token, Hashes: hashes}, nil
}

// FetchAuthorities reads and decrypts the authorities of the cluster that has sent the invitation.
// authority is the certificate of its authority in PEM.
func FetchAuthorities(ctx context.Context, i *Invitation, authority []byte, token provision.ControlPlaneToken) (
	provision.Authorities, error) {
	client, err := i.client(authority)
	if err != nil {
		return nil, err
	}
	return provision.FetchAuthorities(ctx, client, token)
}

// JoinControlPlane adds a control plane on this machine to the cluster that has sent the invitation. c is
// valid, has all defaults, and agrees with the cluster's configuration. It returns when the machine's
// node is ready. If this machine was a member of the cluster's etcd and has lost its data, the member is
// replaced.
func JoinControlPlane(ctx context.Context, c *config.KeelsonConfiguration, i *Invitation, a provision.Authorities,
	d Deps) error {
	return undisturbed(func() error { return joinControlPlane(ctx, c, i, a, d) })
}

// joinControlPlane is JoinControlPlane after the checks whether other work runs.
func joinControlPlane(ctx context.Context, c *config.KeelsonConfiguration, i *Invitation, a provision.Authorities,
	d Deps) error {
	dir, err := release()
	if err != nil {
		return err
	}
	of, err := cluster(c)
	if err != nil {
		return err
	}
	server, err := netip.ParseAddrPort(i.Server)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	first := server.Addr().String()
	if err := reach(ctx, first, config.EtcdClientPort, config.EtcdPeerPort); err != nil {
		return err
	}
	p := controlPlane(c, of)
	useEtcd(p, c)
	s := &steps{Deps: d}
	err = s.run("certificates and configuration", func() error {
		// The agent must not find an older store here, and join a restored cluster by itself.
		if err := errors.Join(stopAgent(ctx), rejoinJournal.Remove(), storeEpoch.Remove()); err != nil {
			return err
		}
		if err := writeControlPlane(ctx, dir, c, p, a, d.Clock, i.Server, apiAddress(c)); err != nil {
			return err
		}
		api, err := newAdministrator("https://" + i.Server)
		if err != nil {
			return err
		}
		return api.checkName(ctx, c)
	})
	if err != nil {
		return err
	}
	var list []members.Member
	if err := s.together(ctx, map[string]func(context.Context) error{
		"containerd and images": func(ctx context.Context) error {
			if err := startUnits(ctx, containerd, agentName); err != nil {
				return err
			}
			return importOwnImages(ctx)
		},
		"etcd": func(ctx context.Context) (err error) {
			list, err = s.joinEtcd(ctx, c, first)
			return err
		},
	}); err != nil {
		return err
	}
	if err := s.startJoined(ctx, c, p); err != nil {
		return err
	}
	fmt.Fprintf(d.Out, "\nThis machine is a control plane and the node %s of the cluster %s.\n", c.Node.Name,
		c.ClusterName)
	fmt.Fprintf(d.Out, "\n%s\n", survival(len(members.Voters(list))))
	return nil
}

// together runs steps at the same time, and returns when all have ended. The first error ends the
// others.
func (s *steps) together(ctx context.Context, all map[string]func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, step := range all {
		group.Go(func() error { return s.run(name, func() error { return step(ctx) }) })
	}
	return group.Wait()
}

// startJoined starts the programs of a control plane whose etcd has joined, and those of its node.
func (s *steps) startJoined(ctx context.Context, c *config.KeelsonConfiguration, p *provision.ControlPlane) error {
	api, err := newAdministrator(p.Server)
	if err != nil {
		return err
	}
	err = s.run("control plane", func() error {
		err := startUnits(ctx, provision.APIServer, provision.ControllerManager, provision.Scheduler)
		if err != nil {
			return err
		}
		return s.await(ctx, apiTimeout, api.ready)
	})
	if err != nil {
		return err
	}
	return s.run("node "+c.Node.Name, func() error {
		if err := errors.Join(api.createNode(ctx, c), api.readmit(ctx, c)); err != nil {
			return err
		}
		return s.startNode(ctx, func(ctx context.Context) error { return nodeReady(ctx, api.client, c.Node.Name) })
	})
}

// checkName returns an error if another machine that runs is a node with this machine's name. Its kubelet
// and that of this machine would overwrite each other's status.
func (a administrator) checkName(ctx context.Context, c *config.KeelsonConfiguration) error {
	n, err := a.client.CoreV1().Nodes().Get(ctx, c.Node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	own := slices.ContainsFunc(n.Status.Addresses, func(address v1.NodeAddress) bool {
		return slices.Contains(c.Node.Addresses, address.Address)
	})
	if !own && nodeReady(ctx, a.client, c.Node.Name) == nil {
		return fmt.Errorf("node %s: %w", c.Node.Name, members.ErrNameInUse)
	}
	return nil
}

// reach returns an error if no program at the given ports of a host accepts connections.
func reach(ctx context.Context, host string, ports ...int) error {
	dialer := &net.Dialer{Timeout: reachTimeout}
	for _, port := range ports {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("etcd of the control plane %s, which must be reachable at the ports %d and %d: %w", host,
				config.EtcdClientPort, config.EtcdPeerPort, err)
		}
		_ = conn.Close() // nothing was sent
	}
	return nil
}

var errForeignData = errors.New(storeDir + " has the data of a member that was removed from the cluster: run " +
	"\"ctl reset\" on this machine first")

// joinEtcd makes this machine's etcd a member with a vote, and returns all members. first is the address
// of a control plane.
func (s *steps) joinEtcd(ctx context.Context, c *config.KeelsonConfiguration, first string) ([]members.Member, error) {
	m, err := connectEtcd(etcdURL(first, config.EtcdClientPort))
	if err != nil {
		return nil, err
	}
	defer m.Close() // without a connection, nothing is lost
	own, err := s.joinLearner(ctx, c, m)
	if err != nil {
		return nil, err
	}
	if err := s.await(ctx, catchUpTimeout, func(ctx context.Context) error { return m.Promote(ctx, own) }); err != nil {
		return nil, err
	}
	return m.List(ctx)
}

// joinLearner makes this machine's etcd a member without a vote, unless it is one already, and returns its ID. m is
// a client of the cluster; it uses only the other members afterwards.
func (s *steps) joinLearner(ctx context.Context, c *config.KeelsonConfiguration, m *members.Client) (uint64, error) {
	list, err := m.List(ctx)
	if err != nil {
		return 0, fmt.Errorf("etcd does not answer; it needs more than half of its members to add one: %w", err)
	}
	if !exists(filepath.Join(storeDir, storeData)) {
		if list, err = s.addMember(ctx, c, m); err != nil {
			return 0, err
		}
	}
	own, ok := members.WithPeer(list, peerURL(c))
	if !ok {
		return 0, errForeignData
	}
	if err := s.startLearner(ctx); err != nil {
		return 0, err
	}
	m.UseOnly(members.Without(list, own.ID))
	return own.ID, nil
}

// startLearner starts this machine's member of etcd, and waits until it answers clients, so that a member
// that cannot start gets no vote. Before a member answers, it publishes its name: at once, and again after
// seven seconds. The first attempt is usually lost, because etcd closes its connections when it has
// received the first snapshot of the data. A restart makes another one.
func (s *steps) startLearner(ctx context.Context) error {
	active := func(ctx context.Context) error { return systemctl(ctx, "is-active", unit(etcd)) }
	if active(ctx) == nil { // since an earlier attempt
		return nil
	}
	if err := s.startEtcd(ctx); err != nil {
		return err
	}
	if provision.Wait(ctx, s.Clock, publishTime, active) == nil {
		return nil
	}
	if err := s.startEtcd(ctx); err != nil {
		return err
	}
	return s.await(ctx, catchUpTimeout, active)
}

// addMember adds this machine's etcd, which has no data, to the members, and writes its flags. It tries
// for some time, because etcd accepts one learner at a time, and none in the first seconds after a
// change.
func (s *steps) addMember(ctx context.Context, c *config.KeelsonConfiguration, m *members.Client) (
	list []members.Member, err error) {
	if err := stopUnits(ctx, unit(etcd)); err != nil { // left from an earlier attempt
		return nil, err
	}
	var final error
	err = s.await(ctx, storeTimeout, func(ctx context.Context) error {
		if list, err = m.Replace(ctx, c.Node.Name, peerURL(c)); errors.Is(err, members.ErrNameInUse) {
			final = err
			return nil
		}
		return err
	})
	if err := errors.Join(err, final); err != nil {
		return nil, err
	}
	args := member(c, members.InitialCluster(list, c.Node.Name, peerURL(c)), true).Args()
	return list, writeArgs(etcd, args)
}

// survival says how many control planes a cluster with n of them can lose.
func survival(n int) string {
	can := n - members.Quorum(n)
	if can == 0 {
		return fmt.Sprintf("The cluster has %d control planes and survives the loss of none of them: etcd needs more than "+
			"half of its members. Add another control plane now.", n)
	}
	out := fmt.Sprintf("The cluster has %d control planes and survives the loss of %d.", n, can)
	if n%2 == 0 {
		out += fmt.Sprintf(" It would survive the loss of %d with one more.", can+1)
	}
	return out
}
