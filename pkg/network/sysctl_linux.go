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
	"slices"
)

// sysctls returns the files of the settings that must be 1 so that a node can route for pods. All
// of them belong to the process's network namespace.
func sysctls(podCIDRs []netip.Prefix) []string {
	out := []string{"/proc/sys/net/ipv4/ip_forward"}
	if slices.ContainsFunc(podCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		out = append(out, "/proc/sys/net/ipv6/conf/all/forwarding")
	}
	// Packets between two pods of the bridge must pass the rules of IPv4 and IPv6. Otherwise
	// network policies would not see them, and the answer of a pod that was reached through a
	// Service would not be translated back. These files do not exist without the kernel module
	// br_netfilter; nft.BridgeFiltered reports that.
	return append(out, "/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables")
}

// enable writes 1 into each file of a kernel setting that contains another value.
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
