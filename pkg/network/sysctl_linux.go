// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
)

// sysctls returns what a node that routes for pods needs. All of it belongs to the network namespace of the process.
func sysctls(podCIDRs []netip.Prefix) []string {
	out := []string{"/proc/sys/net/ipv4/ip_forward"}
	if slices.ContainsFunc(podCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		out = append(out, "/proc/sys/net/ipv6/conf/all/forwarding")
	}
	// A pod that answers another one on its bridge to a call through a service must pass the translation on its way
	// back, and network policies must see what passes. Without the module there is no such file, and bridgeFiltered says so.
	return append(out, "/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables")
}

// bridgeFiltered returns an error unless packets that go from one port of a bridge to another pass the rules of IPv4 and IPv6, as
// those that are routed do. Without that neither network policies nor Services work between pods of one node. ARP is not
// needed: its rules are the bridge family's own.
func bridgeFiltered(dir string) error {
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		have, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("the kernel module br_netfilter is not loaded: network policies between pods of this node cannot be enforced")
		}
		if err != nil {
			return fmt.Errorf("sysctl: %w", err)
		}
		if !bytes.Equal(bytes.TrimSpace(have), []byte("1")) {
			return fmt.Errorf("sysctl net.bridge.%s is off: network policies between pods of this node cannot be enforced", name)
		}
	}
	return nil
}

// enable writes 1 into the files that do not have it.
func enable(files []string) error {
	var errs []error
	for _, path := range files {
		have, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(bytes.TrimSpace(have), []byte("1")) {
			continue
		}
		if err == nil {
			err = os.WriteFile(path, []byte("1\n"), 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("sysctl: %w", err))
		}
	}
	return errors.Join(errs...)
}
