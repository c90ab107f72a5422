// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine makes a machine a part of a cluster: "ctl init" creates a cluster with its first
// control plane, "ctl join" adds a machine, and "ctl reset" removes everything that they have made.
//
// A machine's programs are units of systemd, which are part of the release:
//
//   - /usr/lib/keelson/current is a link to the release that the machine uses. Only this package
//     changes it.
//   - /etc/keelson/PROGRAM.env has the flags of a program. A unit without this file does not start, so
//     the files decide which programs a machine runs.
//   - /etc/keelson/config.yaml has the machine's configuration.
//   - All other files have the names that kubeadm gives them.
//
// Invariants:
//
//   - Init and Join keep keys, authorities, certificates and configuration files that exist already.
//     So if they are interrupted, they can be repeated, if the checks for old files are ignored.
//   - Reset removes everything that Init, Join and the programs have made, and can be interrupted and
//     repeated. It recognizes the machine by /etc/keelson, which is made first and removed last.
//   - Flags contain no secrets.
//
// The package does not check whether a machine is suitable: package preflight does. What the programs
// need is known to package provision.
package machine
