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

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// The cgroup drivers, which say what creates cgroups. They are named as in KubeletConfiguration.
const (
	driverSystemd  = "systemd"
	driverCgroupfs = "cgroupfs"
	// lostIn is the label of the metric kubelet_cri_losing_support: the first Kubernetes version
	// that requires the runtime to report its cgroup driver.
	lostIn = "1.38.0"
)

// driver determines the cgroup driver: the one that the runtime reports, or the configured one if
// the runtime does not report any. It does so only once per kubelet process, because the names of
// cgroups that already exist depend on the driver.
type driver struct {
	configured string
	losing     *prometheus.GaugeVec
	metrics    prometheus.Registerer
	log        *slog.Logger

	settled chan struct{}
	once    sync.Once
	name    string // set before the channel settled is closed, and read only afterwards
}

func newDriver(cfg Config) *driver {
	return &driver{
		configured: cfg.Kubelet.CgroupDriver, metrics: cfg.Metrics, log: cfg.Log, settled: make(chan struct{}),
		losing: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_cri_losing_support",
			Help: "[ALPHA] the Kubernetes version that the currently running CRI implementation will lose " +
				"support on if not upgraded."}, []string{"version"}),
	}
}

// resolve asks the runtime for its cgroup driver, unless an earlier call got an answer. The error
// explains why pods cannot run yet.
func (d *driver) resolve(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
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
		d.log.Info("Cgroup driver selected", "driver", name, "configured", d.configured)
	})
	return nil
}

func (d *driver) ask(ctx context.Context, client runtimeapi.RuntimeServiceClient) (string, error) {
	r, err := client.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if status.Code(err) == codes.Unimplemented {
		d.log.Info("The container runtime does not report its cgroup driver; the next version of Kubernetes " +
			"will require that it does")
		if err := d.metrics.Register(d.losing); err == nil {
			d.losing.WithLabelValues(lostIn).Set(1)
		}
		return d.configured, nil
	}
	if err != nil {
		return "", fmt.Errorf("container runtime does not report its cgroup driver: %s", cri.Message(err))
	}
	if r.GetLinux() == nil {
		return d.configured, nil
	}
	switch name := r.GetLinux().GetCgroupDriver(); name {
	case runtimeapi.CgroupDriver_SYSTEMD:
		return driverSystemd, nil
	case runtimeapi.CgroupDriver_CGROUPFS:
		return driverCgroupfs, nil
	default:
		return "", fmt.Errorf("runtime returned an unknown cgroup driver %d", name)
	}
}

// cgroupDriver waits until the cgroup driver is determined, and returns it. It returns an error if
// ctx ends first.
func (r *runtime) cgroupDriver(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-r.driver.settled:
		return r.driver.name, nil
	}
}
