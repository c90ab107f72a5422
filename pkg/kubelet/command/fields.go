// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// unread lists the fields of a KubeletConfiguration that have no effect, each with the reason. Some
// of them have no effect in Kubernetes either, according to its documentation. The kubelet logs a
// warning for each of these fields that is set to a value other than its zero value.
var unread = map[string]string{
	"ConfigMapAndSecretChangeDetectionStrategy": "objects that pods refer to are always watched",
	"ContainerLogMaxWorkers":                    "logs are rotated one at a time",
	"ContentType":                               "requests use protobuf, or JSON for custom resources",
	"EnableDebugFlagsHandler":                   "the log level cannot change while the kubelet runs",
	"HairpinMode":                               "hairpin traffic is up to the pod network",
	"IPTablesDropBit":                           "has no effect in Kubernetes",
	"IPTablesMasqueradeBit":                     "has no effect in Kubernetes",
	"KernelMemcgNotification":                   "memory is measured periodically, as by default",
	"LocalStorageCapacityIsolation":             "local storage is always measured",
	"Logging":                                   "logs are JSON on stderr, with the level of -v",
	"MakeIPTablesUtilChains":                    "the kubelet does not use iptables",
	"MaxOpenFiles":                              "the kubelet uses the hard limit that it is started with",
	"PodCIDR":                                   "comes from the API server",
	"QOSReserved":                               "an alpha feature that is off by default in Kubernetes",
	"ShowHiddenMetricsForVersion":               "there are no hidden metrics",
	"StreamingConnectionIdleTimeout":            "has no effect in Kubernetes",
	"SyncFrequency":                             "pods are synced when they change",
	"VolumePluginDir":                           "FlexVolume is not supported",
	"VolumeStatsAggPeriod":                      "volumes are measured on request",
}

// ignored returns the sorted names of the fields in unread that are set.
func ignored(c *kubeletconfig.KubeletConfiguration) []string {
	var out []string
	v := reflect.ValueOf(c).Elem()
	for _, name := range slices.Sorted(maps.Keys(unread)) {
		if name == "Logging" && c.Logging.Format == "" {
			// A configuration written by a program may contain "logging" with only zero values; it
			// counts as not set.
			continue
		}
		if !v.FieldByName(name).IsZero() {
			out = append(out, name)
		}
	}
	return out
}

const (
	leastRestart, mostRestart = time.Second, 5 * time.Minute
	leastOOM, mostOOM         = -1000, 1000
)

// refuse rejects values that Kubernetes rejects, and features that this kubelet does not have and
// that an operator who configures them would miss.
func refuse(c *kubeletconfig.KubeletConfiguration) error {
	var errs field.ErrorList
	require := func(ok bool, name string, value any, detail string) {
		if !ok {
			errs = append(errs, field.Invalid(field.NewPath(name), value, detail))
		}
	}
	off := func(b *bool) bool { return b != nil && !*b }
	on := func(b *bool) bool { return b != nil && *b }
	require(!off(c.CgroupsPerQOS), "cgroupsPerQOS", false, "each QoS class always has a cgroup")
	require(!off(c.EnableControllerAttachDetach), "enableControllerAttachDetach", false,
		"volumes are attached by the controller manager")
	require(!on(c.EnableSystemLogQuery) || !off(c.EnableSystemLogHandler), "enableSystemLogQuery", true,
		"enableSystemLogHandler is required")
	require(len(c.DefaultPodSysctls) == 0, "defaultPodSysctls", c.DefaultPodSysctls,
		"DefaultPodSysctls is an alpha feature and is not supported")
	require(c.KubeletCgroups == "", "kubeletCgroups", c.KubeletCgroups,
		"the kubelet stays in the cgroup that it is started in")
	require(c.SystemCgroups == "", "systemCgroups", c.SystemCgroups, "system processes are not moved to another cgroup")
	require(c.ReadOnlyPort == 0, "readOnlyPort", c.ReadOnlyPort, "a port without authentication is not supported")
	require(!c.RunOnce, "runOnce", true, "running pods once is not supported")
	require(c.PodsPerCore >= 0, "podsPerCore", c.PodsPerCore, "must not be negative")
	require(c.EventBurst >= 0, "eventBurst", c.EventBurst, "must not be negative")
	require(c.KubeAPIBurst >= 0, "kubeAPIBurst", c.KubeAPIBurst, "must not be negative")
	for name, qps := range map[string]*int32{"eventRecordQPS": c.EventRecordQPS, "kubeAPIQPS": c.KubeAPIQPS} {
		require(qps == nil || *qps >= 0, name, qps, "must not be negative")
	}
	if adj := c.OOMScoreAdj; adj != nil {
		require(*adj >= leastOOM && *adj <= mostOOM, "oomScoreAdj", *adj,
			fmt.Sprintf("must be between %d and %d", leastOOM, mostOOM))
	}
	if dir := c.PodLogsDir; dir != "" {
		require(filepath.IsAbs(dir) && ascii(dir), "podLogsDir", dir, "must be an absolute path of ASCII characters")
		require(filepath.Clean(dir) == dir || filepath.Clean(dir)+"/" == dir, "podLogsDir", dir, "must be a clean path")
	}
	if most := c.CrashLoopBackOff.MaxContainerRestartPeriod; most != nil {
		require(most.Duration >= leastRestart &&
			most.Duration <= mostRestart, "crashLoopBackOff.maxContainerRestartPeriod", most.Duration.String(),
			fmt.Sprintf("must be between %v and %v", leastRestart, mostRestart))
	}
	return errs.ToAggregate()
}

func ascii(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(b byte) bool { return b > '~' || b < ' ' })
}
