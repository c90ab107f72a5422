// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kind Machine of machines.keelson.dev/v1alpha1.
//
// A Machine is one of the machines on which "ctl init" or "ctl join" has installed a cluster. It has
// the name of the machine's node. It is a custom resource of the whole cluster, which only clusters
// on machines have.
//
// The agent of the machine creates the Machine, and keeps its status true, with the credentials of
// the machine's kubelet. An admission policy lets a node write no other Machine, and no specification.
//
// An administrator writes the specification: "ctl upgrade" writes the release that the machine should
// run. The agent switches to it. If a program of the release is not healthy in time, the agent returns
// to the earlier release by itself. It does not try again until the specification changes.
package v1alpha1
