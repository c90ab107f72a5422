// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// load reads a KubeletConfiguration file and sets the defaults of missing fields. If file is "", it
// returns the defaults. An unknown field is an error.
func load(file string) (*kubeletconfig.KubeletConfiguration, error) {
	c := &kubeletconfig.KubeletConfiguration{}
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		if err := yaml.UnmarshalStrict(b, c); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", file, err)
		}
		if c.APIVersion != kubeletconfig.SchemeGroupVersion.String() || c.Kind != "KubeletConfiguration" {
			return nil, fmt.Errorf("configuration %s: is %s %s, not %s KubeletConfiguration", file,
				c.APIVersion, c.Kind, kubeletconfig.SchemeGroupVersion)
		}
	}
	if err := refuse(c); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	complete(c)
	return c, nil
}

// complete sets Kubernetes' defaults, as documented at the type KubeletConfiguration.
func complete(c *kubeletconfig.KubeletConfiguration) {
	orElse(&c.Address, "0.0.0.0")
	orElse(&c.Port, 10250)
	orPointer(&c.HealthzPort, 10248)
	orElse(&c.HealthzBindAddress, "127.0.0.1")
	orPointer(&c.EnableDebuggingHandlers, true)
	orPointer(&c.EnableServer, true)
	orPointer(&c.Authentication.Anonymous.Enabled, false)
	orPointer(&c.Authentication.Webhook.Enabled, true)
	orDuration(&c.Authentication.Webhook.CacheTTL, 2*time.Minute)
	orElse(&c.Authorization.Mode, kubeletconfig.KubeletAuthorizationModeWebhook)
	orDuration(&c.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	orDuration(&c.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	orDuration(&c.FileCheckFrequency, 20*time.Second)
	orDuration(&c.HTTPCheckFrequency, 20*time.Second)
	// If the configuration sets only the update frequency, it is also the default of the report
	// frequency.
	orDuration(&c.NodeStatusReportFrequency, cmp.Or(c.NodeStatusUpdateFrequency.Duration, 5*time.Minute))
	orDuration(&c.NodeStatusUpdateFrequency, 10*time.Second)
	orElse(&c.NodeLeaseDurationSeconds, 40)
	orElse(&c.MaxPods, 110)
	orPointer(&c.PodPidsLimit, -1)
	orPointer(&c.FailSwapOn, true)
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
	orElse(&c.CgroupDriver, "cgroupfs")
	orElse(&c.CgroupRoot, "/")
	orElse(&c.CPUManagerPolicy, "none")
	orDuration(&c.CPUManagerReconcilePeriod, 10*time.Second)
	orElse(&c.MemoryManagerPolicy, kubeletconfig.NoneMemoryManagerPolicy)
	orElse(&c.TopologyManagerPolicy, kubeletconfig.NoneTopologyManagerPolicy)
	orElse(&c.TopologyManagerScope, kubeletconfig.ContainerTopologyManagerScope)
	orPointer(&c.CPUCFSQuota, true)
	if c.CPUCFSQuotaPeriod == nil {
		c.CPUCFSQuotaPeriod = &metav1.Duration{Duration: 100 * time.Millisecond}
	}
	orElse(&c.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	orPointer(&c.ResolverConfig, "/etc/resolv.conf")
	orDuration(&c.RuntimeRequestTimeout, 2*time.Minute)
	orElse(&c.PodLogsDir, "/var/log/pods")
	orPointer(&c.EventRecordQPS, 50)
	orElse(&c.EventBurst, 100)
	orElse(&c.KubeAPIBurst, 100)
	orPointer(&c.OOMScoreAdj, -999)
	orElse(&c.ContainerLogMaxSize, "10Mi")
	orPointer(&c.ContainerLogMaxFiles, 5)
	if c.ContainerLogMonitorInterval == nil {
		c.ContainerLogMonitorInterval = &metav1.Duration{Duration: 10 * time.Second}
	}
	orPointer(&c.RegistryPullQPS, 5)
	orElse(&c.RegistryBurst, 10)
	orPointer(&c.SerializeImagePulls, c.MaxParallelImagePulls == nil || *c.MaxParallelImagePulls < 2)
	orPointer(&c.ImageGCHighThresholdPercent, 85)
	orPointer(&c.ImageGCLowThresholdPercent, 80)
	orDuration(&c.ImageMinimumGCAge, 2*time.Minute)
	orDuration(&c.EvictionPressureTransitionPeriod, 5*time.Minute)
	orPointer(&c.NodeStatusMaxImages, 50)
	orPointer(&c.RegisterNode, true)
	completeEviction(c)
}

// completeEviction sets default eviction thresholds: all of them if the configuration has none, and
// otherwise, if MergeDefaultEvictionSettings is true, those that are missing.
func completeEviction(c *kubeletconfig.KubeletConfiguration) {
	defaults := map[string]string{
		"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
		"imagefs.available": "15%", "imagefs.inodesFree": "5%",
	}
	if c.EvictionHard != nil && (c.MergeDefaultEvictionSettings == nil || !*c.MergeDefaultEvictionSettings) {
		return
	}
	maps.Copy(defaults, c.EvictionHard)
	c.EvictionHard = defaults
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func orPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func orDuration(field *metav1.Duration, value time.Duration) {
	if field.Duration == 0 {
		field.Duration = value
	}
}
