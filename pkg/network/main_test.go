// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(m, unshare.Network) }
