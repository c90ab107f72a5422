// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// EtcHosts determines the content of a pod's hosts file.
type EtcHosts struct {
	// PodIPs are the pod's addresses, the primary first.
	PodIPs []string
	// HostName and Domain are the pod's host name and domain. The domain may be "".
	HostName, Domain string
	// Aliases are the pod's hostAliases.
	Aliases []v1.HostAlias
	// HostNetwork reports whether the pod uses the node's network. If it does, the hosts file is
	// the node's own hosts file plus Aliases.
	HostNetwork bool
	// NodeFile is the node's own hosts file, /etc/hosts.
	NodeFile string
}

const hostsLocal = `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

// Content returns the content of the hosts file.
func (h EtcHosts) Content() ([]byte, error) {
	var b strings.Builder
	if h.HostNetwork {
		node, err := os.ReadFile(h.NodeFile)
		if err != nil {
			return nil, fmt.Errorf("node's hosts file: %w", err)
		}
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(node)
	} else {
		b.WriteString(hostsLocal)
		for _, ip := range h.PodIPs {
			if h.Domain != "" {
				fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, h.HostName, h.Domain, h.HostName)
			} else {
				fmt.Fprintf(&b, "%s\t%s\n", ip, h.HostName)
			}
		}
	}
	if len(h.Aliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, a := range h.Aliases {
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return []byte(b.String()), nil
}

// Write writes the hosts file at path with mode 0644. It changes the file in place, because
// containers have this file mounted.
func (h EtcHosts) Write(path string) error {
	content, err := h.Content()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write hosts file: %w", err)
	}
	if err := os.Chmod(path, 0o644); err != nil { // sets the mode independently of the umask
		return fmt.Errorf("write hosts file: %w", err)
	}
	return nil
}
