// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/kubelet/images"
	"keelson.dev/keelson/pkg/kubelet/objects"
)

// containerImages pulls images and removes unused ones.
type containerImages struct {
	puller    *images.Puller
	collector *images.Collector
}

func newImages(s *shared, r *runtime, o *objects.Manager) (*containerImages, error) {
	cfg, c := s.cfg, s.cfg.Kubelet
	records, err := images.NewRecords(filepath.Join(cfg.RootDir, "image_manager"), c, cfg.Clock, cfg.Log)
	if err != nil {
		return nil, err
	}
	var plugins *images.Plugins // stays nil if no credential plugins are configured
	if cfg.Plugins.Config != "" {
		if plugins, err = images.NewPlugins(pluginsConfig(cfg, o)); err != nil {
			return nil, err
		}
	}
	return &containerImages{
		puller: images.New(images.Config{
			Runtime: r.client, Secrets: o, Records: records, Plugins: plugins, Metrics: s.metrics.upkeep, Clock: cfg.Clock,
			Event: s.events.pod, Parallel: parallelPulls(c), Allow: pullRate(c), Pulled: s.metrics.startup.pulled,
		}),
		collector: images.NewCollector(images.CollectorConfig{
			Images: r.client.Images, Listed: records.Prune, Clock: cfg.Clock, Log: cfg.Log,
			High: int(*c.ImageGCHighThresholdPercent), Low: int(*c.ImageGCLowThresholdPercent),
			MinAge: c.ImageMinimumGCAge.Duration, MaxAge: c.ImageMaximumGCAge.Duration,
			Disk: r.imageDisk, InUse: r.imagesInUse, Event: s.events.node, Tracer: cfg.tracer(), Metrics: cfg.Metrics,
		}),
	}, nil
}

func pluginsConfig(cfg Config, o *objects.Manager) images.PluginsConfig {
	return images.PluginsConfig{
		File: cfg.Plugins.Config, BinDir: cfg.Plugins.BinDir, Clock: cfg.Clock, Log: cfg.Log, Metrics: cfg.Metrics,
		ServiceAccount: func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
			return cfg.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Token: o.TokenOfAccount,
	}
}
