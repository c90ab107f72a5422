// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/follow"
)

// NewInformers returns the caches that controllers share. If resync is not 0, controllers look at
// all objects again after each such period.
func NewInformers(client kubernetes.Interface, resync time.Duration) informers.SharedInformerFactory {
	return follow.NewInformers(client, resync, informers.WithTweakListOptions(Present))
}

// Present makes a list return the present state. By default a list may be as old as the API server
// likes. A process that has just started could then see less than its predecessor had written, and
// write it again.
func Present(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}
