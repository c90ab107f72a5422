// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provision says what the programs of a cluster need to start, and writes it: certificates,
// kubeconfig files, encryption keys, configuration files, flags and add-on objects. Both the
// clusters that "ctl cluster" creates in namespaces of one machine and clusters on real machines use
// it.
//
// The caller describes the cluster, a control plane and a node with the types [Cluster],
// [ControlPlane] and [Node]. Their methods derive everything else from these descriptions:
//
//	p := &provision.ControlPlane{Cluster: c, Dir: "/etc/kubernetes", Store: "/var/lib/etcd", ...}
//	err := errors.Join(p.IssueCertificates(false, clk), p.WriteKubeconfigs(clk), p.WriteConfiguration())
//	args := p.APIServerArgs()
//
// Invariants:
//
//   - The same description yields the same flags in the same order, and files with the same bytes,
//     except for keys, certificates and tokens.
//   - All functions may be called again, also after an interruption. They do not replace authorities,
//     encryption keys, valid certificates of programs, and files that an operator may have changed.
//   - A file is replaced as a whole. Files with keys are readable by their owner only.
//   - The package knows no addresses, ranges or directories of a particular kind of cluster: they are
//     part of the description. Below a control plane's directory and on nodes, files have the names
//     that kubeadm gives them.
//
// The package does not start the cluster's processes, does not choose addresses, and does not request
// certificates from a cluster. It uses the API only to create tokens and add-on objects. Its
// functions are not safe for concurrent use on the same files.
package provision
