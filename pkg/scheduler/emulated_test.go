// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/scheduler"
)

// TestWithoutDeviceTaintRules checks that the scheduler can work with an API server that emulates
// 1.36, which does not serve DeviceTaintRules in version v1. Otherwise it would wait forever for their
// cache.
func TestWithoutDeviceTaintRules(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.Features.Emulated = 36 }})
	followAs(t, s.Client, &configv1.KubeSchedulerConfiguration{}, func(c *scheduler.Config) {
		c.NoDeviceTaintRules = true
	})
}
