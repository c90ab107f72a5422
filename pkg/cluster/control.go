// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"keelson.dev/keelson/pkg/provision"
)

// Names of the control plane's processes.
const (
	apiserver         = provision.APIServer
	controllerManager = provision.ControllerManager
	scheduler         = provision.Scheduler
)

// controlProcesses returns the control plane's processes in the order in which they are started.
// machine is the socket on the machine's loopback address. A single API server inherits that
// socket; several API servers are reached through a balancer, which has the socket instead.
func controlProcesses(c *Config, machine *os.File) []process {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "LANG=C.UTF-8"}
	if !c.replicated() {
		out := planeProcesses(c, c.replicas()[0], env)
		// As in systemd's socket activation, the first inherited socket has descriptor 3.
		out[0].env, out[0].inherit = append([]string{"LISTEN_FDS=1"}, env...), []*os.File{machine}
		return out
	}
	out := etcdProcesses(c, env)
	for _, r := range c.replicas() {
		out = append(out, planeProcesses(c, r, env)...)
	}
	return out
}

// planeProcesses returns the processes of one control plane, the API server first.
func planeProcesses(c *Config, r replica, env []string) []process {
	d, p := c.dirs(), c.controlPlane(r)
	one := func(name string, args ...string) process {
		return process{
			name: name + r.suffix, log: d.log(name + r.suffix), env: env, attr: controlAttr(),
			argv: append([]string{filepath.Join(c.BinDir, name)}, args...),
		}
	}
	return []process{
		one(apiserver, p.APIServerArgs()...),
		one(controllerManager, p.ControllerManagerArgs()...),
		one(scheduler, p.SchedulerArgs()...),
	}
}

func etcdURL(member int, port string) string {
	return "https://" + above("127.0.0.1", member) + ":" + port
}

func etcdName(member int) string { return fmt.Sprintf("%s-%d", etcd, member+1) }

// etcdFiles returns the names of etcd's certificates. All members use the same.
func etcdFiles() provision.EtcdFiles {
	return provision.EtcdFiles{Authority: "etcd-ca", Server: etcd, Peer: etcd}
}

// etcdProcesses returns the members of the separate etcd cluster.
func etcdProcesses(c *Config, env []string) []process {
	d := c.dirs()
	var all []string
	for i := range etcdMembers {
		all = append(all, etcdName(i)+"="+etcdURL(i, "2380"))
	}
	out := make([]process, etcdMembers)
	for i := range out {
		name := etcdName(i)
		member := provision.Etcd{
			Name: name, Store: d.file(name), Dir: d.control(), Files: etcdFiles(),
			Client: []string{etcdURL(i, "2379")}, Peer: []string{etcdURL(i, "2380")}, Members: all, Token: c.Name,
		}
		out[i] = process{
			name: name, log: d.log(name), env: env, attr: controlAttr(),
			argv: append([]string{filepath.Join(c.ToolsDir, etcd)}, member.Args()...),
		}
	}
	return out
}

// controlAttr returns attributes that make the kernel kill a process when its supervisor ends.
func controlAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
