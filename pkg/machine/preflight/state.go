// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"keelson.dev/keelson/pkg/machine/config"
)

// resetRemedy is the remedy for what an earlier installation has left.
const resetRemedy = "remove it: with \"ctl reset\" if it was Keelson, otherwise with the tool that installed it, for " +
	"example \"kubeadm reset\""

// oldState looks for files and processes of an earlier installation.
func (c *checker) oldState(context.Context) {
	for _, dir := range []string{
		"/etc/kubernetes", "/etc/keelson", "/etc/containerd/config.toml", "/var/lib/kubelet", "/var/lib/etcd",
	} {
		if c.hasFiles(dir) {
			c.failf("DirAvailable-"+strings.ReplaceAll(dir, "/", "-"), resetRemedy,
				"%s has files of an earlier installation", dir)
		}
	}
	if c.Config.Network.Plugin == config.PluginKeelson {
		// The runtime uses the first file of this directory.
		files, _ := fs.Glob(c.Files, "etc/cni/net.d/*.conf*") // the pattern is valid
		if len(files) > 0 {
			c.failf("DirAvailable--etc-cni-net.d", "delete the file, with \"ctl reset\" if it is of Keelson, or set "+
				"network.plugin to external (--network-plugin)", "/%s configures a pod network", files[0])
		}
	}
	found := c.running("kubelet", "kube-apiserver", "kube-proxy", "k3s-server", "k3s-agent", "k0s", "rke2", "kubelite")
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c.failf("Process-"+name, resetRemedy, "%s of an earlier installation runs with the process ID %s", name, found[name])
	}
}

// runtimes looks for other container runtimes.
func (c *checker) runtimes(context.Context) {
	if id := c.running("containerd")["containerd"]; id != "" || c.exists("/run/containerd/containerd.sock") {
		c.failf("CRI", "stop it with \"systemctl disable --now containerd\"; if Docker needs it, remove Docker too",
			"another containerd runs, or has left its socket /run/containerd/containerd.sock, which Keelson's containerd needs")
	}
	for _, other := range []struct{ name, socket string }{
		{"Docker", "/run/docker.sock"}, {"CRI-O", "/run/crio/crio.sock"}, {"cri-dockerd", "/run/cri-dockerd.sock"},
		{"the containerd of k3s", "/run/k3s/containerd/containerd.sock"},
	} {
		if c.exists(other.socket) {
			c.warnf("OtherRuntime", "remove it if nothing needs it",
				"%s runs (%s): its containers and rules for packets are not known to the cluster; Docker's rules drop packets "+
					"that are forwarded between pods", other.name, other.socket)
		}
	}
}

// firewalls looks for programs that reject packets between the machines of the cluster.
func (c *checker) firewalls(context.Context) {
	open := fmt.Sprintf("tcp %d, udp %d", config.KubeletPort, vxlanPort)
	if c.ControlPlane {
		open += fmt.Sprintf(", tcp %d, tcp %d, tcp %d", c.Config.APIServer.Port, config.EtcdClientPort, config.EtcdPeerPort)
	}
	remedy := "allow these ports from the other machines, and forwarding from and to pods: " + open +
		"; or turn it off"
	if c.running("firewalld")["firewalld"] != "" {
		c.warnf("Firewalld", remedy, "firewalld is active")
	}
	for line := range strings.Lines(c.text("/etc/ufw/ufw.conf")) {
		if strings.EqualFold(strings.TrimSpace(line), "ENABLED=yes") {
			c.warnf("Ufw", remedy, "ufw is active")
		}
	}
}
