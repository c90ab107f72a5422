// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import v1 "k8s.io/api/core/v1"

// EtcHosts is what a pod's managed hosts file is made from.
type EtcHosts struct {
	// PodIPs are the pod's addresses, the primary first.
	PodIPs []string
	// HostName and Domain are the pod's host name and its domain, if it has one.
	HostName, Domain string
	// Aliases are the pod's hostAliases.
	Aliases []v1.HostAlias
	// HostNetwork tells that the pod shares the node's network: the content is then NodeFile's with the aliases.
	HostNetwork bool
	// NodeFile is the node's own hosts file, /etc/hosts.
	NodeFile string
}

// Content returns the content of the hosts file.
func (h EtcHosts) Content() ([]byte, error) { return nil, nil }

// Write writes the hosts file at path, mode 0644, in place: containers have that very file mounted.
func (h EtcHosts) Write(path string) error { return nil }
