// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// oldestMajor and oldestMinor are the oldest kernel whose nftables have what the proxy uses. It is also
// the oldest one for kube-proxy's mode nftables.
const (
	oldestMajor = 5
	oldestMinor = 13
)

func (c *checker) kernel(context.Context) {
	var major, minor int
	if _, err := fmt.Sscanf(c.Kernel, "%d.%d", &major, &minor); err != nil || major < oldestMajor ||
		major == oldestMajor && minor < oldestMinor {
		c.failf("KernelVersion", "boot a newer kernel, for example that of Debian 12 or Ubuntu 22.04",
			"the kernel is %s, want %d.%d or newer", c.Kernel, oldestMajor, oldestMinor)
	}
	if !slices.Contains(strings.Fields(c.text("/proc/filesystems")), "overlay") && !c.loadable("overlay") {
		c.failf("Kernel-overlay", "load the module with \"modprobe overlay\", or boot a kernel that has it",
			"the kernel has no file system overlay, with which containers' layers are made")
	}
	for _, family := range c.Config.Network.PodCIDRs {
		if strings.Contains(family, ":") && c.text("/proc/sys/net/ipv6/conf/all/disable_ipv6") != "0" {
			c.failf("Kernel-ipv6", "set the kernel setting net.ipv6.conf.all.disable_ipv6 to 0, or use only IPv4 ranges",
				"IPv6 is disabled, but pods get IPv6 addresses (%s)", family)
		}
	}
	if !c.Root {
		return // only root can make devices
	}
	kinds := []struct {
		kind   Kind
		module string
	}{
		{NetworkNamespace, ""}, {PacketFilter, "nf_tables"}, {VirtualEthernet, "veth"}, {Bridge, "bridge"}, {VXLAN, "vxlan"},
	}
	for _, k := range kinds {
		err := c.Make(k.kind)
		if err == nil {
			continue
		}
		name, remedy := "Kernel-namespaces", "boot a kernel with network namespaces"
		if k.module != "" {
			name = "Kernel-" + strings.ReplaceAll(k.module, "_", "")
			remedy = fmt.Sprintf("load the module with \"modprobe %s\" and list it in /etc/modules-load.d/keelson.conf, or "+
				"install the package with the kernel's modules, or boot a kernel that has it", k.module)
		}
		c.failf(name, remedy, "the kernel cannot make %s: %v", k.kind, err)
		if k.kind == NetworkNamespace {
			return
		}
	}
}

// loadable reports whether the running kernel has a module that can be loaded.
func (c *checker) loadable(module string) bool {
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		for line := range strings.Lines(c.text("/lib/modules/" + c.Kernel + "/" + list)) {
			if strings.Contains(line, "/"+module+".ko") {
				return true
			}
		}
	}
	return false
}

// controllers are the cgroup controllers that limit containers.
func controllers() []string { return []string{"cpu", "memory", "pids"} }

func (c *checker) cgroups(context.Context) {
	const root = "/sys/fs/cgroup"
	available := strings.Fields(c.text(root + "/cgroup.controllers"))
	v2 := c.exists(root + "/cgroup.controllers")
	for _, name := range controllers() {
		dir := root
		switch {
		case v2 && slices.Contains(available, name), !v2 && c.exists(root+"/"+name+"/cgroup.procs"):
			if !v2 {
				dir = root + "/" + name
			}
			if c.Root && !c.Writable(dir) {
				c.failf("Cgroups", "run the command on the machine itself, or in a container whose cgroups are writable",
					"%s is not writable", dir)
				return
			}
		default:
			c.failf("Cgroups", fmt.Sprintf("boot the kernel with the argument cgroup_enable=%s, without "+
				"cgroup_disable=%s", name, name), "the cgroup controller %s does not exist: containers cannot be limited", name)
		}
	}
}
