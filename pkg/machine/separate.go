// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/members"
	"keelson.dev/keelson/pkg/provision"
)

// storeTimeout is how long a member of etcd may take to start and to answer.
const storeTimeout = time.Minute

// localEtcd is the URL of this machine's member of etcd.
var localEtcd = fmt.Sprintf("https://127.0.0.1:%d", config.EtcdClientPort)

// etcdURL returns the URL of the member of etcd on the machine of an API server with an address.
func etcdURL(address string, port int) string {
	return "https://" + net.JoinHostPort(address, strconv.Itoa(port))
}

// peerURL returns the URL at which other members reach this machine's member of etcd.
func peerURL(c *config.KeelsonConfiguration) string {
	return etcdURL(c.APIServer.AdvertiseAddress, config.EtcdPeerPort)
}

// useEtcd makes the API server of a control plane use the unit keelson-etcd of its machine instead of the
// etcd in itself. Then there may be other control planes.
func useEtcd(p *provision.ControlPlane, c *config.KeelsonConfiguration) {
	p.EtcdServers, p.EtcdFiles, p.LeaderElect = []string{localEtcd}, provision.KubeadmEtcdFiles(), true
	p.Hosts.Etcd = slices.Concat([]string{"localhost", "127.0.0.1", "::1", c.Node.Name, c.APIServer.AdvertiseAddress},
		c.Node.Addresses)
}

// member returns the description of this machine's member of etcd. all has NAME=PEER-URL of each member.
func member(c *config.KeelsonConfiguration, all []string, joins bool) *provision.Etcd {
	return &provision.Etcd{
		Name: c.Node.Name, Store: storeDir, Dir: controlDir, Files: provision.KubeadmEtcdFiles(),
		Client: []string{etcdURL(c.APIServer.AdvertiseAddress, config.EtcdClientPort), localEtcd},
		Peer:   []string{peerURL(c)}, Members: all, Token: c.ClusterName, Joins: joins,
	}
}

// onlyMember returns the description of this machine's member of etcd if it is the only one. The machine has its
// data, so etcd does not use the list of members.
func onlyMember(c *config.KeelsonConfiguration) *provision.Etcd {
	return member(c, []string{c.Node.Name + "=" + peerURL(c)}, false)
}

// connectEtcd returns a client of etcd members with the credentials of this machine's API server.
func connectEtcd(urls ...string) (*members.Client, error) {
	return members.Connect(members.Files{
		Authority: controlDir.PKI(provision.KubeadmEtcdFiles().Authority + ".crt"), Certificate: etcdCredentials(),
		Key: controlDir.PKI(provision.EtcdClient + ".key"),
	}, urls...)
}

func etcdCredentials() string { return controlDir.PKI(provision.EtcdClient + ".crt") }

// installedControlPlane returns the configuration of this machine and the description of its control
// plane.
func installedControlPlane() (*config.KeelsonConfiguration, *provision.ControlPlane, error) {
	if err := NotAdopted(); err != nil {
		return nil, nil, err
	}
	c, err := ownConfiguration()
	if err != nil {
		return nil, nil, err
	}
	of, err := cluster(c)
	if err != nil {
		return nil, nil, err
	}
	return c, controlPlane(c, of), nil
}

// separateEtcd turns the etcd in this machine's API server into the unit keelson-etcd, if that has not
// been done. It can be interrupted at any point and called again: the API server's flags, which it
// writes last, say whether it has finished.
func (s *steps) separateEtcd(ctx context.Context, c *config.KeelsonConfiguration, p *provision.ControlPlane) error {
	useEtcd(p, c)
	done, err := separated(p)
	if err != nil {
		return err
	}
	if !done {
		if err := canSeparate(c); err != nil {
			return err
		}
		if err := s.run("separate etcd", func() error { return s.convert(ctx, c, p) }); err != nil {
			return fmt.Errorf("%w\nRepeat the command: the API server of this machine may stand still until it succeeds", err)
		}
	}
	if err := queueStart(ctx, unit(etcd), unit(provision.APIServer)); err != nil {
		return err
	}
	api, err := newAdministrator(p.Server)
	if err != nil {
		return err
	}
	return s.await(ctx, apiTimeout, api.ready)
}

// canSeparate returns an error if the API server keeps the data of its etcd in the format of an earlier
// release, as it does while it emulates an earlier release of Kubernetes. Other members could not join.
func canSeparate(c *config.KeelsonConfiguration) error {
	if c.EmulatedVersion == features.Emulatable()[0] {
		return fmt.Errorf("%w: it emulates Kubernetes %s", errOldFormat, c.EmulatedVersion)
	}
	return nil
}

var errOldFormat = errors.New("this control plane keeps its data in the format of an earlier release, so that others " +
	"cannot join: finish the upgrade first")

// separated reports whether the API server's flags are those for an etcd of its own.
func separated(p *provision.ControlPlane) (bool, error) {
	data, err := os.ReadFile(argsFile(provision.APIServer))
	if err != nil {
		return false, fmt.Errorf("flags of the API server: %w", err)
	}
	return bytes.Contains(data, []byte("--etcd-servers="+p.EtcdServers[0])), nil
}

// convert does the work of separateEtcd. Only one process at a time can use the directory of etcd, so the
// API server stands still for some seconds.
func (s *steps) convert(ctx context.Context, c *config.KeelsonConfiguration, p *provision.ControlPlane) error {
	err := filelock.While(certificatesLock, func() error { return p.IssueCertificates(false, s.Clock) })
	// An administrator may have edited the flags.
	stamp := "before-separate-etcd-" + s.Clock.Now().UTC().Format(stampLayout)
	if err := errors.Join(err, keepAside(ownConfig, stamp, controlFlags())); err != nil {
		return err
	}
	if err := writeManagerArgs(p); err != nil {
		return err
	}
	if err := stopUnits(ctx, unit(provision.APIServer)); err != nil {
		return err
	}
	if err := writeArgs(etcd, onlyMember(c).Args()); err != nil {
		return err
	}
	if err := s.startEtcd(ctx); err != nil {
		return err
	}
	if err := s.publishPeer(ctx, c); err != nil {
		return err
	}
	if err := startUnits(ctx, provision.ControllerManager, provision.Scheduler); err != nil {
		return err
	}
	return writeArgs(provision.APIServer, p.APIServerArgs())
}

// startEtcd starts this machine's member of etcd, or restarts it. It does not wait until the member is
// ready, because that can take forever.
func (s *steps) startEtcd(ctx context.Context) error {
	if err := systemctl(ctx, "enable", unit(etcd)); err != nil {
		return err
	}
	return systemctl(ctx, "restart", "--no-block", unit(etcd))
}

// publishPeer waits until this machine's member of etcd answers, which is the only one, and sets the
// address at which other members will reach it.
func (s *steps) publishPeer(ctx context.Context, c *config.KeelsonConfiguration) error {
	m, err := connectEtcd(localEtcd)
	if err != nil {
		return err
	}
	defer m.Close() // without a connection, nothing is lost
	return s.await(ctx, storeTimeout, func(ctx context.Context) error {
		list, err := m.List(ctx)
		if err != nil {
			return err
		}
		if _, ok := members.WithPeer(list, peerURL(c)); ok || len(list) != 1 {
			return nil
		}
		return m.SetPeer(ctx, list[0].ID, peerURL(c))
	})
}
