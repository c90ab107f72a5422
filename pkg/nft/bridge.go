// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// BridgeSysctls is the directory of the settings of the kernel module br_netfilter.
const BridgeSysctls = "/proc/sys/net/bridge"

// BridgeFiltered returns an error unless packets between two ports of a bridge pass the rules of
// IPv4 and IPv6, as routed packets do. Otherwise neither network policies nor Services would work
// between pods on the same bridge. It does not check the setting for ARP, because the rules for ARP are
// in the bridge family. dir is BridgeSysctls, except in tests.
func BridgeFiltered(dir string) error {
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		have, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("the kernel module br_netfilter is not loaded: network policies between pods " +
				"of this node cannot be enforced")
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
