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

// A test that wants somebody killed at a certain moment makes a file METHOD.before or
// METHOD.after in the directory hold of the driver's: calls of the method stay there until
// the file is gone. While one does, there is a file of that name with .reached.
const (
	holds  = "hold"
	before = ".before"
	after  = ".after"
	// Reached ends the name of a file that says that a call is held.
	Reached = ".reached"
)

const holdPoll = 20 * time.Millisecond

// Hold makes calls wait as tests want it.
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
