// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// compress writes what write writes, compressed by xz. The programs of a release contain many equal
// packages, and a large dictionary finds them: the archive is 40% smaller than with gzip. The result does
// not depend on the number of processors, because xz uses one thread.
func (r *release) compress(w io.Writer, write func(io.Writer) error) error {
	level := "9"
	if r.Quick {
		level = "0"
	}
	var stderr bytes.Buffer
	xz := exec.Command("xz", "--threads=1", "-"+level)
	xz.Stdout, xz.Stderr = w, &stderr
	in, err := xz.StdinPipe()
	if err != nil {
		return err
	}
	if err := xz.Start(); err != nil {
		return err
	}
	err = errors.Join(write(in), in.Close())
	if failed := xz.Wait(); failed != nil {
		return fmt.Errorf("xz: %w: %s", failed, bytes.TrimSpace(stderr.Bytes()))
	}
	return err
}
