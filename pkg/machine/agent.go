// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/fdstore"
	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/certs"
	"keelson.dev/keelson/pkg/machine/machines"
	"keelson.dev/keelson/pkg/machine/upgrade"
	"keelson.dev/keelson/pkg/provision"
)

// RunAgent runs the agent of this machine, whose node has the given name, until ctx ends.
func RunAgent(ctx context.Context, node string, d Deps) error {
	sockets, err := openSockets(ctx, d.Log, fdstore.Inherited())
	if err != nil {
		return fmt.Errorf("load balancer: %w", err)
	}
	ctx, cancel := untilEnd(ctx, d.Log)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { keepCertificates(ctx, d); return nil })
	group.Go(func() error { return keepRelease(ctx, node, d) })
	watch := newWatch(d)
	group.Go(func() error {
		return agent.Run(ctx, agent.Config{
			Node: node, Listener: sockets.listener, Connections: sockets.connections, HandOver: keeper(),
			Servers: serverList, Former: formerList, Epoch: string(epochFile), Version: daemon.Version,
			Kubeconfig: provision.KubeletKubeconfig, ProxyPair: provision.AgentProxyPair, Clock: d.Clock, Log: d.Log,
			Seen: func(ctx context.Context, shown map[string]int64, highest int64) {
				if err := watch.Seen(ctx, shown, highest); err != nil && ctx.Err() == nil {
					d.Log.Error("Failed to leave the history before a restore", "err", err)
				}
			},
			Tasks: []func(context.Context, kubernetes.Interface) error{
				func(ctx context.Context, client kubernetes.Interface) error {
					followAuthorities(ctx, client, d)
					return nil
				},
			},
		})
	})
	return group.Wait()
}

// keepRelease makes the machine run the release that its Machine asks for, and reports the state of the
// machine, until ctx ends.
func keepRelease(ctx context.Context, node string, d Deps) error {
	rc, err := agent.Credentials(ctx, provision.KubeletKubeconfig, d.Clock)
	if err != nil {
		return nil // ctx has ended
	}
	client, err := machines.NewClient(rc)
	if err != nil {
		return err
	}
	keeper := &upgrade.Keeper{Node: node, Machines: client, Local: &host{Deps: d, releases: newReleaseDirs(releases)},
		Journal: switchJournal, Clock: d.Clock, Log: d.Log}
	keeper.Run(ctx)
	return nil
}

// followAuthorities follows the cluster's authorities until ctx ends. client has the kubelet's
// credentials.
func followAuthorities(ctx context.Context, client kubernetes.Interface, d Deps) {
	a := &certs.Agent{Machine: certificates, Client: client, Administrator: administratorClient,
		Clock: d.Clock, Log: d.Log}
	a.Run(ctx)
}
