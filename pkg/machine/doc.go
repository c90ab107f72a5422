// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine makes a machine a part of a cluster: "ctl init" creates a cluster with its first
// control plane, "ctl join" adds a machine, which can become a control plane too, and "ctl reset" removes
// everything that they have made. "ctl backup" saves a control plane, and "ctl restore" brings it back.
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
//   - The file etcd.env exists if the cluster can have several control planes. Then the API server of each
//     machine uses only the member of etcd on this machine.
//   - A machine's member of etcd gets a vote only after it has the data and answers.
//   - The authorities' keys leave a machine only encrypted with the third part of a token, which no
//     program writes to a file, passes as a flag, or sends to a server.
//   - Init keeps keys, authorities and certificates that exist already. Join of a worker keeps the kubelet's
//     certificates. Join of a control plane replaces all of these by the cluster's authorities and new
//     certificates, because those of an earlier attempt may be from other authorities. So if Init or Join
//     is interrupted, it can be repeated, if the checks for old files are ignored.
//   - Reset removes everything that Init, Join and the programs have made, and can be interrupted and
//     repeated. It recognizes the machine by /etc/keelson, which is made first and removed last.
//   - Restore deletes nothing, and can be interrupted and repeated. While it replaces files, the control
//     plane's programs have no flags, so that they do not start.
//   - A control plane with the history of the cluster before a restore stops, sets its store aside, and joins
//     the restored cluster (see package rejoin). The restored machine never does that.
//   - Flags contain no secrets.
//
// The package does not check whether a machine is suitable: package preflight does. What the programs
// need is known to package provision.
package machine
