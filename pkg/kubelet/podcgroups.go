// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
	"keelson.dev/keelson/pkg/kubelet/worker"
)

// podCgroups are the cgroups of pods and of their QoS classes.
type podCgroups struct {
	*cgroup.Manager
	// live returns the pods that have not ended.
	live func() []*v1.Pod
}

var _ worker.Cgroups = podCgroups{}

// newPodCgroups returns podCgroups. It creates no cgroups yet. exclusive reports whether a
// container of the pod has CPUs of its own.
func newPodCgroups(s *shared, r *resources, live func() []*v1.Pod, exclusive func(types.UID) bool) (podCgroups, error) {
	c := s.cfg.Kubelet
	config := cgroup.Config{
		Mount: cgroupMount, Root: c.CgroupRoot, Node: r.qos, PidsPerPod: -1, Exclusive: exclusive,
		Pods: r.cgroups.pods, Others: r.cgroups.others, Metrics: s.metrics.upkeep, Clock: s.cfg.Clock,
	}
	if c.PodPidsLimit != nil {
		config.PidsPerPod = *c.PodPidsLimit
	}
	m, err := cgroup.New(config)
	return podCgroups{m, live}, err
}

// setup creates the cgroups above those of pods, with the runtime's driver.
func (c podCgroups) setup(driver string) error {
	if driver == driverSystemd {
		c.Use(cgroup.System())
	}
	if err := c.Setup(); err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	return nil
}

// Ensure creates or updates the pod's cgroup, and updates the share of its class.
func (c podCgroups) Ensure(pod *v1.Pod) error {
	if err := c.Manager.Ensure(pod); err != nil {
		return err
	}
	return c.share()
}

// share gives each QoS class the CPU that its pods request together.
func (c podCgroups) share() error { return c.Share(c.live()) }

// cgroupReader reads the usage of cgroups.
func cgroupReader() stat.Reader { return stat.New(cgroupMount, cgroup.Unified(cgroupMount)) }
