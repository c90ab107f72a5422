// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"keelson.dev/api/clock"
)

// A test that must kill a process at a certain moment creates a file METHOD.before or METHOD.after
// in the driver's directory "hold". Calls of the method then wait before their work, or after it has
// succeeded, until the test removes the file. While a call waits, a file with the same name and the suffix .reached
// exists.
const (
	holds  = "hold"
	before = ".before"
	after  = ".after"
	// Reached is the suffix of the file that exists while a call is waiting.
	Reached = ".reached"
)

const holdPoll = 20 * time.Millisecond

// Hold is a gRPC interceptor that makes calls wait at the moments that a test has requested.
func (d *Driver) Hold(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	if err := d.wait(ctx, method+before); err != nil {
		return nil, err
	}
	out, err := next(ctx, req)
	if err == nil {
		err = d.wait(ctx, method+after)
	}
	return out, err
}

func (d *Driver) wait(ctx context.Context, name string) error {
	file := filepath.Join(d.Root, holds, name)
	for reached := false; ; {
		_, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !reached {
			reached = true
			err = os.WriteFile(file+Reached, nil, 0o600)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clock.Real().After(holdPoll):
		}
	}
}
