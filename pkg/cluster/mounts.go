// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Paths in the node's /run directory at which directories of the cluster are mounted.
const (
	insideBin   = "/run/keelson/bin"
	insideTools = "/run/keelson/tools"
	insideNode  = "/run/keelson/node"
)

// mount has the arguments of one mount(2) call.
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
	}
	return nil
}

// setupNodeMounts converts the machine's file system to the node's file system, in the mount
// namespace of this process. The node gets its own /run, /tmp, /var/lib, /var/log and /opt, a
// writable layer over /etc, a /proc with its own processes and a /sys with its own network. Other
// directories of the machine stay visible.
func setupNodeMounts(d nodeDirs, binDir, toolsDir string) error {
	if err := (mount{source: "none", target: "/", flags: unix.MS_REC | unix.MS_PRIVATE}).do(); err != nil {
		return err
	}
	if err := setupRun(d, binDir, toolsDir); err != nil {
		return err
	}
	for _, m := range []mount{
		{source: filepath.Join(insideNode, "var/lib"), target: "/var/lib", flags: unix.MS_BIND},
		{source: filepath.Join(insideNode, "var/log"), target: "/var/log", flags: unix.MS_BIND},
		{source: filepath.Join(insideNode, "tmp"), target: "/tmp", flags: unix.MS_BIND},
		{source: filepath.Join(insideNode, "opt"), target: "/opt", flags: unix.MS_BIND},
		{source: "overlay", target: "/etc", kind: "overlay", data: fmt.Sprintf("lowerdir=/etc,upperdir=%s,workdir=%s",
			filepath.Join(insideNode, "etc"), filepath.Join(insideNode, "etc.work"))},
		{source: "proc", target: "/proc", kind: "proc", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := setupSys(); err != nil {
		return err
	}
	// With shared propagation, mounts that a pod makes in a volume appear on the node and in other
	// pods.
	return mount{source: "none", target: "/", flags: unix.MS_REC | unix.MS_SHARED}.do()
}

// setupRun creates the node's /run. It mounts everything in a staging directory first and moves
// that to /run at the end, because sources of these mounts may be below /run, which the new mount
// hides.
func setupRun(d nodeDirs, binDir, toolsDir string) error {
	stage := d.path("run")
	if err := os.MkdirAll(stage, 0o755); err != nil {
		return fmt.Errorf("directory of /run: %w", err)
	}
	if err := (mount{source: "tmpfs", target: stage, kind: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV,
		data: "mode=755"}).do(); err != nil {
		return err
	}
	for _, b := range []struct{ source, target string }{{binDir, insideBin}, {toolsDir, insideTools},
		{d.root, insideNode}} {
		target := d.path(b.target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("directory in /run: %w", err)
		}
		if err := (mount{source: b.source, target: target, flags: unix.MS_BIND}).do(); err != nil {
			return err
		}
	}
	for _, dir := range []string{"lock", "netns"} {
		if err := os.MkdirAll(filepath.Join(stage, dir), 0o755); err != nil {
			return fmt.Errorf("directory in /run: %w", err)
		}
	}
	return mount{source: stage, target: "/run", flags: unix.MS_MOVE}.do()
}

// setupSys mounts the sysfs of this network namespace, and the machine's cgroup hierarchies in it.
func setupSys() error {
	const aside = "/run/keelson/cgroup"
	if err := os.MkdirAll(aside, 0o755); err != nil {
		return fmt.Errorf("directory for cgroups: %w", err)
	}
	for _, m := range []mount{
		{source: "/sys/fs/cgroup", target: aside, flags: unix.MS_BIND | unix.MS_REC},
		{source: "sysfs", target: "/sys", kind: "sysfs", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{source: aside, target: "/sys/fs/cgroup", flags: unix.MS_MOVE},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := os.Remove(aside); err != nil {
		return fmt.Errorf("directory for cgroups: %w", err)
	}
	err := mount{source: "bpf", target: "/sys/fs/bpf", kind: "bpf"}.do()
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPERM) {
		return nil // the kernel has no bpf file system, or does not permit mounting it
	}
	return err
}
