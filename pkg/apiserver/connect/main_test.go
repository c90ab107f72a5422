// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"testing"

	"keelson.dev/keelson/test/unshare"
)

// TestMain runs the tests in a network namespace of their own. Proxies do not connect to loopback
// addresses, so the tests add another address to the namespace for their backends.
func TestMain(m *testing.M) { unshare.Run(m, unshare.Network) }
