// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// NewInformers makes the caches that controllers share. After each period of
// resync, if it is not 0, controllers look at everything again.
func NewInformers(client kubernetes.Interface, resync time.Duration, options ...informers.SharedInformerOption) informers.SharedInformerFactory {
	options = append(options, informers.WithTweakListOptions(Present))
	return informers.NewSharedInformerFactoryWithOptions(client, resync, options...)
}

// Present has a cache filled with the present state. A list that may be as old
// as the API server likes would let a process that starts see less than the one
// before it had written, and write it once more.
func Present(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}
