// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "testing"

// TestQueueName checks that a queue has Kubernetes' name if there is one, and otherwise the
// controller's name.
func TestQueueName(t *testing.T) {
	for controller, want := range map[string]string{
		"deployment-controller":                     "deployment",
		"endpointslice-controller":                  "endpoint_slice",
		"replicationcontroller-controller":          "replicationmanager",
		"persistentvolume-binder-controller/claims": "claims",
		"ingress-tls-controller":                    "ingress-tls-controller",
	} {
		if got := queueName(controller); got != want {
			t.Errorf("the queue of %s is named %q, want %q", controller, got, want)
		}
	}
}
