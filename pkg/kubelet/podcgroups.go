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

// podCgroups manages the cgroups of pods and of QoS classes.
type podCgroups struct {
	*cgroup.Manager
	// live returns the node's pods that have not ended.
	live func() []*v1.Pod
}

var _ worker.Cgroups = podCgroups{}

// newPodCgroups returns the manager of pods' cgroups without creating any cgroup. exclusive reports
// whether any container of a pod has CPUs of its own.
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

// setup creates the cgroups above those of pods. driver is the cgroup driver that the runtime uses.
func (c podCgroups) setup(driver string) error {
	if driver == driverSystemd {
		c.Use(cgroup.System())
	}
	if err := c.Setup(); err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	return nil
}

// Ensure creates or updates the pod's cgroup, and adjusts the cgroups of the QoS classes.
func (c podCgroups) Ensure(pod *v1.Pod) error {
	if err := c.Manager.Ensure(pod); err != nil {
		return err
	}
	return c.share()
}

// share adjusts the cgroups of the QoS classes to what the pods of each class request together.
func (c podCgroups) share() error { return c.Share(c.live()) }

// cgroupReader returns a reader of the usage of cgroups.
func cgroupReader() stat.Reader { return stat.New(cgroupMount, cgroup.Unified(cgroupMount)) }
