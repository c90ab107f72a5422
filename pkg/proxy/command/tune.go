// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/cpuset"
)

// maxConntrack limits the number of connections to track that follows from the number of CPUs, as in
// Kubernetes.
const maxConntrack = 1 << 20

// tuner writes settings of the kernel.
type tuner struct {
	// netfilter, module and process are the directories of the settings of connection tracking, of
	// the parameters of its kernel module, and of the process.
	netfilter, module, process string
	cpus                       int
	log                        *slog.Logger
}

func newTuner(log *slog.Logger) *tuner {
	// Count the CPUs of the node, because the connections of the whole node are tracked. This
	// process may be limited to fewer CPUs.
	cpus, err := cpuset.NumCPU()
	if err != nil || cpus <= 0 {
		cpus = runtime.NumCPU()
	}
	return &tuner{netfilter: "/proc/sys/net/netfilter", module: "/sys/module/nf_conntrack/parameters",
		process: "/proc/self", cpus: cpus, log: log}
}

// apply writes the configured settings of connection tracking in the proxy's network namespace, and
// the process's OOM score adjustment. If the kernel rejects a setting, apply logs that and
// continues: the size of the connection tracking table, for example, cannot be written in every
// network namespace.
func (t *tuner) apply(k *kubeproxy.KubeProxyConfiguration) {
	seconds := func(name string, d time.Duration) {
		if d > 0 {
			t.put(filepath.Join(t.netfilter, name), int(d.Seconds()))
		}
	}
	ct := &k.Conntrack
	if n := t.connections(ct); n > 0 {
		t.raise(filepath.Join(t.netfilter, "nf_conntrack_max"), n)
		t.raise(filepath.Join(t.module, "hashsize"), n/4)
	}
	if ct.TCPEstablishedTimeout != nil {
		seconds("nf_conntrack_tcp_timeout_established", ct.TCPEstablishedTimeout.Duration)
	}
	if ct.TCPCloseWaitTimeout != nil {
		seconds("nf_conntrack_tcp_timeout_close_wait", ct.TCPCloseWaitTimeout.Duration)
	}
	seconds("nf_conntrack_udp_timeout", ct.UDPTimeout.Duration)
	seconds("nf_conntrack_udp_timeout_stream", ct.UDPStreamTimeout.Duration)
	if ct.TCPBeLiberal {
		t.put(filepath.Join(t.netfilter, "nf_conntrack_tcp_be_liberal"), 1)
	}
	if k.OOMScoreAdj != nil {
		t.put(filepath.Join(t.process, "oom_score_adj"), int(*k.OOMScoreAdj))
	}
}

// connections returns the configured number of connections to track, or 0 if the kernel's setting
// remains.
func (t *tuner) connections(ct *kubeproxy.KubeProxyConntrackConfiguration) int {
	if ct.MaxPerCore == nil || *ct.MaxPerCore <= 0 {
		return 0
	}
	n := int(*ct.MaxPerCore) * t.cpus
	switch {
	case n > maxConntrack:
		return maxConntrack
	case ct.Min != nil:
		return max(n, int(*ct.Min))
	}
	return n
}

// raise writes a setting, unless its value is already at least as high.
func (t *tuner) raise(path string, value int) {
	if now, ok := t.get(path); !ok || now < value {
		t.put(path, value)
	}
}

// put writes a setting, unless it already has the value.
func (t *tuner) put(path string, value int) {
	if now, ok := t.get(path); ok && now == value {
		return
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(value)), 0o644); err != nil {
		t.log.Info("Failed to write a kernel setting", "path", path, "value", value, "err", err)
	}
}

// get returns the value of a setting. ok is false if the setting cannot be read.
func (t *tuner) get(path string) (value int, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	value, err = strconv.Atoi(strings.TrimSpace(string(b)))
	return value, err == nil
}
