// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/cri"
)

// Cgroup drivers by the names that a KubeletConfiguration has for them.
const (
	driverSystemd  = "systemd"
	driverCgroupfs = "cgroupfs"
	// lostIn is the version of Kubernetes with which runtimes that do not tell their driver work no more.
	lostIn = "1.37.0"
)

// driver is how cgroups are made: as the runtime makes those of containers, which knows best. What the configuration
// says is for runtimes that do not tell. It is settled once, since cgroups that are there keep their names.
type driver struct {
	configured string
	losing     *prometheus.GaugeVec
	metrics    prometheus.Registerer
	log        *slog.Logger

	settled chan struct{}
	once    sync.Once
	name    string // what it is, once settled
}

func newDriver(cfg Config) *driver {
	return &driver{
		configured: cfg.Kubelet.CgroupDriver, metrics: cfg.Metrics, log: cfg.Log, settled: make(chan struct{}),
		losing: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_cri_losing_support",
			Help: "[ALPHA] the Kubernetes version that the currently running CRI implementation will lose support on if not upgraded."}, []string{"version"}),
	}
}

// settle asks the runtime, unless it has told already, and says why no pod can run as long as it is not known.
func (d *driver) settle(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
	select {
	case <-d.settled:
		return nil
	default:
	}
	name, err := d.ask(ctx, client)
	if err != nil {
		return err
	}
	d.once.Do(func() {
		d.name = name
		close(d.settled)
		d.log.Info("Cgroup driver", "driver", name, "configured", d.configured)
	})
	return nil
}

func (d *driver) ask(ctx context.Context, client runtimeapi.RuntimeServiceClient) (string, error) {
	r, err := client.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if status.Code(err) == codes.Unimplemented {
		d.log.Info("The container runtime does not tell its cgroup driver, which Kubernetes wants it to from the next version on")
		if err := d.metrics.Register(d.losing); err == nil {
			d.losing.WithLabelValues(lostIn).Set(1)
		}
		return d.configured, nil
	}
	if err != nil {
		return "", fmt.Errorf("container runtime does not tell its cgroup driver: %s", cri.Message(err))
	}
	if r.GetLinux() == nil {
		return d.configured, nil
	}
	switch told := r.GetLinux().GetCgroupDriver(); told {
	case runtimeapi.CgroupDriver_SYSTEMD:
		return driverSystemd, nil
	case runtimeapi.CgroupDriver_CGROUPFS:
		return driverCgroupfs, nil
	default:
		return "", fmt.Errorf("runtime returned an unknown cgroup driver %d", told)
	}
}

// cgroupDriver waits until it is known how cgroups are to be made; only ctx ends the waiting.
func (r *runtime) cgroupDriver(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-r.driver.settled:
		return r.driver.name, nil
	}
}

// setupCgroups makes the cgroups above pods.
func (k *Kubelet) setupCgroups(driver string) error {
	if driver == driverSystemd {
		k.cgroups.Use(cgroup.System())
	}
	if err := k.cgroups.Setup(); err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	return nil
}
