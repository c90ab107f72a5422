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

// BridgeSysctls is where the kernel has the settings of br_netfilter.
const BridgeSysctls = "/proc/sys/net/bridge"

// BridgeFiltered returns an error unless packets that go from one port of a bridge to another pass the rules of IPv4 and IPv6, as
// those that are routed do. Without that neither network policies nor Services work between pods of one bridge. ARP is not
// needed: its rules are the bridge family's own. The directory is BridgeSysctls.
func BridgeFiltered(dir string) error {
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
