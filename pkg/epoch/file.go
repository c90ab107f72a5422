// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"keelson.dev/keelson/pkg/atomicfile"
)

// File is the path of a file with an epoch. Only one goroutine at a time may write it.
type File string

// Read returns the epoch, and whether it is known. It is 0 and not known if the file does not exist, or has no
// epoch: machines learn it again from the API servers.
func (f File) Read() (epoch int64, known bool) {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return 0, false
	}
	text := strings.TrimSpace(string(data))
	epoch, err = Parse(text)
	return epoch, err == nil && text != ""
}

// Write stores the epoch. When it returns nil, the epoch is on the disk.
func (f File) Write(epoch int64) error {
	return atomicfile.WriteDurably(string(f), []byte(Format(epoch)+"\n"), 0o600)
}

// Remove makes the epoch unknown. The file need not exist.
func (f File) Remove() error {
	if err := os.Remove(string(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("epoch: %w", err)
	}
	return nil
}
