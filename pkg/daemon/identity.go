// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
)

// ServerID returns a value that identifies an API server in metrics. It does not reveal the host
// name.
func ServerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	sum := sha256.Sum256([]byte(host))
	return "apiserver-" + hex.EncodeToString(sum[:8])
}
