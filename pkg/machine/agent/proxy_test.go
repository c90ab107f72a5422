// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"keelson.dev/api/clock"
)

// TestProxyCertificateNeedsNode checks that the agent requests the certificate of the proxy only when the machine has
// a Node. The machine gets one when the agent has asked for it twice.
func TestProxyCertificateNeedsNode(t *testing.T) {
	client := fake.NewClientset()
	asked := 0
	client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if asked++; asked <= 2 {
			return true, nil, apierrors.NewNotFound(v1.Resource("nodes"), "m1")
		}
		return true, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m1"}}, nil
	})
	requested := make(chan int, 10)
	record := func(clienttesting.Action) (bool, runtime.Object, error) {
		requested <- asked
		return false, nil, nil
	}
	client.PrependReactor("create", "certificatesigningrequests", record)
	c := &Config{Node: "m1", ProxyPair: filepath.Join(t.TempDir(), "proxy", "client-current.pem"), Clock: clock.Real(),
		Log: discard()}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.keepProxyCertificate(ctx, client) }()
	if n := <-requested; n != 3 {
		t.Errorf("the agent requests the certificate after it has looked for the Node %d times, want 3", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
