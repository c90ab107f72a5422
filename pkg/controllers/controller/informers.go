// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/follow"
)

// NewInformers returns the informers that all controllers share. If resync is not 0, the informers
// report all objects to the controllers again once per resync period.
func NewInformers(client kubernetes.Interface, resync time.Duration) informers.SharedInformerFactory {
	return follow.NewInformers(client, resync, informers.WithTweakListOptions(follow.Latest))
}
