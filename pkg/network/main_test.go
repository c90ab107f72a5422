// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"os"
	"testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/pkg/network/attach"
	"keelson.dev/keelson/test/unshare"
)

// TestMain runs the plugin instead of the tests if CNI executes the test binary.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		attach.Main(clock.Real())
		return
	}
	unshare.Run(leaktest.Checked{M: m}, unshare.Network)
}
