// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"keelson.dev/apiserver/store/kv/etcd"
)

// formatRetry is the delay until etcd is asked again to change the format of its data. A new etcd
// accepts the request some seconds after its start, when it has adopted its own format.
const formatRetry = time.Second

// keepReadable makes etcd change the format of its data to that of the release e.Readable or, if that
// is empty, return to its own. It works in the background until the function that it returns is
// called. A failure does not affect the use of the store, so it is tried again.
//
// settled reports whether etcd has determined the version of its cluster. If keepReadable requested
// the change earlier, etcd would panic.
func keepReadable(e etcd.Embedded, client *clientv3.Client, settled func() bool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			err := errFormat
			if settled() {
				err = setFormat(ctx, client, e.Readable)
			}
			if err == nil && e.Readable != "" {
				e.Log.Info("The data can be read by an earlier etcd", "version", e.Readable)
			}
			if err == nil || ctx.Err() != nil {
				return
			}
			e.Log.Debug("Waiting for etcd to change the format of its data", "version", e.Readable, "err", err)
			select {
			case <-ctx.Done():
				return
			case <-e.Clock.After(formatRetry):
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

var errFormat = errors.New("etcd has not changed the format yet")

// setFormat requests the format of a release, or the present format if readable is empty. etcd itself
// then changes the data. The error is nil if the data has the format of readable.
func setFormat(ctx context.Context, client *clientv3.Client, readable string) error {
	status, err := client.Status(ctx, "")
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	lowered := status.DowngradeInfo.GetEnabled()
	switch {
	case readable != "" && !lowered:
		_, err = client.Downgrade(ctx, clientv3.DowngradeEnable, readable)
	case readable == "" && lowered:
		_, err = client.Downgrade(ctx, clientv3.DowngradeCancel, "")
	}
	if err == nil && !strings.HasPrefix(status.StorageVersion, readable) {
		err = errFormat
	}
	if err != nil {
		return fmt.Errorf("change format: %w", err)
	}
	return nil
}
