// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// tune writes the configured settings of connection tracking in the proxy's network namespace, and
// the process's OOM score adjustment. If the kernel rejects a setting, tune logs that and
// continues: the size of the connection tracking table, for example, cannot be written in every
// network namespace.
func tune(k *kubeproxy.KubeProxyConfiguration, log *slog.Logger) {
	const dir = "/proc/sys/net/netfilter"
	put := func(path, value string) {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			log.Info("Failed to write a kernel setting", "path", path, "value", value, "err", err)
		}
	}
	seconds := func(name string, d time.Duration) {
		if d > 0 {
			put(filepath.Join(dir, name), strconv.Itoa(int(d.Seconds())))
		}
	}
	ct := &k.Conntrack
	if ct.MaxPerCore != nil && *ct.MaxPerCore > 0 {
		n := int(*ct.MaxPerCore) * runtime.NumCPU()
		if ct.Min != nil {
			n = max(n, int(*ct.Min))
		}
		put(filepath.Join(dir, "nf_conntrack_max"), strconv.Itoa(n))
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
		put(filepath.Join(dir, "nf_conntrack_tcp_be_liberal"), "1")
	}
	if k.OOMScoreAdj != nil {
		put("/proc/self/oom_score_adj", strconv.Itoa(int(*k.OOMScoreAdj)))
	}
}
