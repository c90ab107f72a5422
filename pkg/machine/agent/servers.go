// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"

	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/balancer"
)

// maxFormer is how many earlier API servers a machine remembers. A cluster has at most seven.
const maxFormer = 16

// known has the API servers that the machine knows.
type known struct {
	balancer     *balancer.Balancer
	file, former string
	log          *slog.Logger

	mu      sync.Mutex // held while the servers change
	earlier []string   // servers that are not in the balancer's list any more, the latest last
	removed []string   // IP addresses of servers that were removed from the cluster
}

// newKnown reads the earlier servers. Without the file, or with a damaged one, there are none.
func newKnown(c Config, b *balancer.Balancer) *known {
	earlier, _ := ReadServers(c.Former)
	return &known{balancer: b, file: c.Servers, former: c.Former, log: c.Log, earlier: earlier}
}

// use makes servers the balancer's servers, and stores them, unless there are none.
func (k *known) use(servers []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.balancer.Servers()
	if len(servers) == 0 || slices.Equal(before, servers) {
		return
	}
	k.log.Info("API servers changed", "servers", servers)
	isUsed := func(s string) bool { return slices.Contains(servers, s) }
	earlier := slices.DeleteFunc(slices.Clone(k.earlier), func(s string) bool {
		return isUsed(s) || slices.Contains(before, s)
	})
	earlier = append(earlier, slices.DeleteFunc(before, isUsed)...)
	k.remember(earlier) // before the list itself, so that a server is at any time in one of the files
	k.balancer.SetServers(servers)
	if err := WriteServers(k.file, servers); err != nil {
		k.log.Error("Failed to store the addresses of the API servers", "err", err)
	}
}

// forget forgets the earlier servers at the given IP addresses, which were removed from the cluster.
func (k *known) forget(removed []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removed = removed
	if slices.ContainsFunc(k.earlier, k.isRemoved) {
		k.remember(k.earlier)
	}
}

// isRemoved reports whether a server was removed from the cluster. k.mu must be held.
func (k *known) isRemoved(server string) bool {
	return slices.ContainsFunc(k.removed, func(address string) bool { return hasHost([]string{server}, address) })
}

// remember replaces and stores the earlier servers, except those that were removed. k.mu must be held.
func (k *known) remember(earlier []string) {
	k.earlier = slices.DeleteFunc(earlier, k.isRemoved)
	k.earlier = k.earlier[max(len(k.earlier)-maxFormer, 0):]
	if err := WriteServers(k.former, k.earlier); err != nil {
		k.log.Error("Failed to store the addresses of earlier API servers", "err", err)
	}
}

// formerServers returns the earlier servers.
func (k *known) formerServers() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.earlier)
}

var errNoServers = errors.New("no API server in it")

// ReadServers reads a file of API servers. It returns an error if the file has no server, or an
// entry that is not HOST:PORT with an IP address as HOST.
func ReadServers(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("API servers: %w", err)
	}
	var servers []string
	if err := json.Unmarshal(data, &servers); err != nil {
		return nil, fmt.Errorf("API servers: %s: %w", file, err)
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("API servers: %s: %w", file, errNoServers)
	}
	for _, s := range servers {
		if _, err := netip.ParseAddrPort(s); err != nil {
			return nil, fmt.Errorf("API servers: %s: %w", file, err)
		}
	}
	return servers, nil
}

// WriteServers writes a file of API servers.
func WriteServers(file string, servers []string) error {
	data, err := json.Marshal(servers)
	if err != nil {
		return fmt.Errorf("API servers: %w", err)
	}
	return atomicfile.WriteDurably(file, append(data, '\n'), 0o600)
}
