// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lab gives tests machines on which they can install Keelson, cut network links, and turn
// off the power.
//
// A Lab is a network and the machines on it. A Machine is a systemd-nspawn container with systemd as
// its first process. It has its own disk, host name, machine ID, cgroups and network namespace. The
// machines share this machine's kernel and clock. They cannot load kernel modules, set the clock, or
// change kernel settings that do not belong to their own namespaces.
//
// The machines are connected to a bridge in another network namespace, the desk. It is the place of
// an administrator who reaches all machines. The desk forwards no packets and has no link to this
// machine's network, so no packet leaves the lab.
//
// All processes of a lab are in a PID namespace whose first process ends when its standard input is
// closed. The kernel closes this pipe when the process that called New ends, however it ends, and
// then kills all processes of the lab. Mounts and network namespaces exist only in the desk's mount
// namespace, so the kernel removes them too. Only directories remain: the disks of the machines and
// their cgroups. Close removes them, and so does the next call of New with the same name.
//
// The package needs root, the image that hack/machines.sh makes, and cgroup hierarchies of version 1.
// Methods of Lab and Machine may be called concurrently, except that at most one goroutine may boot,
// turn on or turn off a certain machine at a time.
package lab
