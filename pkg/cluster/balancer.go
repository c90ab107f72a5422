// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"os"
	"strconv"

	"keelson.dev/keelson/pkg/balancer"
)

// startBalancer starts a load balancer that forwards connections to the cluster's API servers until
// s.alive ends. It listens at the cluster's address, and on the socket machine, which has the
// machine's loopback address.
func (s *supervisor) startBalancer(machine *os.File) error {
	b := balancer.New(s.deps.Clock, s.deps.Log)
	var servers []string
	for _, r := range s.cfg.replicas() {
		servers = append(servers, net.JoinHostPort(r.bind, strconv.Itoa(controlPort)))
	}
	b.SetServers(servers)
	outer, err := net.FileListener(machine)
	if err != nil {
		return err
	}
	inner, err := (&net.ListenConfig{}).Listen(s.alive, "tcp",
		net.JoinHostPort(s.cfg.IPFamily.primary().control.String(), strconv.Itoa(controlPort)))
	if err != nil {
		return err
	}
	for _, l := range []net.Listener{outer, inner} {
		s.tasks.Go(func() {
			if err := b.Serve(s.alive, l); err != nil {
				s.deps.Log.Error("Load balancer of the API servers ended", "err", err)
			}
		})
	}
	return nil
}
