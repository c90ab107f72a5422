// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
)

const cgroupMount = "/sys/fs/cgroup"

// prepareProcess applies the settings that concern the process as a whole, and checks the machine's
// kernel.
func prepareProcess(c *kubeletconfig.KubeletConfiguration, log *slog.Logger) error {
	for _, name := range ignored(c) {
		log.Warn("Configuration field ignored", "field", name, "reason", unread[name])
	}
	// Unlike in Kubernetes, this check is off by default, because Keelson's kubelet fully supports
	// cgroup v1.
	if c.FailCgroupV1 != nil && *c.FailCgroupV1 && !cgroup.Unified(cgroupMount) {
		return errors.New("failCgroupV1: the machine has cgroup v1")
	}
	if c.ProtectKernelDefaults {
		if err := checkKernel("/proc/sys"); err != nil {
			return fmt.Errorf("protectKernelDefaults: %w", err)
		}
	}
	// When memory runs out, the kernel should kill other processes before the kubelet, because the
	// kubelet can evict pods in the right order. To write this value, the kubelet needs privileges.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(int(*c.OOMScoreAdj))), 0o600); err != nil {
		log.Warn("Failed to set the kubelet's OOM score", "err", err)
	}
	if c.EnableContentionProfiling && *c.EnableDebuggingHandlers {
		runtime.SetBlockProfileRate(1)
	}
	return nil
}

// kernelDefaults are the values of kernel parameters that Kubernetes requires. The kubelet never
// changes these parameters, because they affect the whole machine. If protectKernelDefaults is
// true, it checks them.
var kernelDefaults = map[string]int{
	"vm/overcommit_memory":      1,
	"vm/panic_on_oom":           0,
	"kernel/panic":              10,
	"kernel/panic_on_oops":      1,
	"kernel/keys/root_maxkeys":  1_000_000,
	"kernel/keys/root_maxbytes": 25_000_000,
}

// checkKernel returns an error that names each kernel parameter whose value differs from
// kernelDefaults.
func checkKernel(root string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(kernelDefaults)) {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			errs = append(errs, fmt.Errorf("kernel flag: %w", err))
			continue
		}
		if is, want := strings.TrimSpace(string(b)), strconv.Itoa(kernelDefaults[name]); is != want {
			errs = append(errs, fmt.Errorf("invalid kernel flag: %s, expected value: %s, actual value: %s", name, want, is))
		}
	}
	return errors.Join(errs...)
}
