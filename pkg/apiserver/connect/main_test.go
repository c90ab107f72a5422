// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"testing"

	"keelson.dev/keelson/test/unshare"
)

// TestMain gives the tests a network of their own. Backends of proxies need an address in it that
// is not a loopback address, because proxies do not connect to those.
func TestMain(m *testing.M) { unshare.Run(m, unshare.Network) }
