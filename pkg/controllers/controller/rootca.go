// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// rootCAInterval is how often the certificates with which pods verify the API server are read again.
const rootCAInterval = 10 * time.Second

// RootCertificates returns the certificates with which pods verify the API server.
func (o *Options) RootCertificates() []byte {
	if o.ReadRootCA != nil {
		return o.ReadRootCA()
	}
	return o.RootCA
}

// FollowRootCA runs a queue, and calls changed each time that the certificates with which pods verify
// the API server have changed, until ctx ends.
func (d *Deps) FollowRootCA(ctx context.Context, queue *Queue, changed func()) error {
	last := d.Options.RootCertificates()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		RunEvery(ctx, d.Clock, rootCAInterval, func(context.Context) {
			if now := d.Options.RootCertificates(); !bytes.Equal(now, last) {
				last = now
				changed()
			}
		})
	})
	return queue.Run(ctx)
}
