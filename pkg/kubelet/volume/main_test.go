// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"testing"

	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(leaktest.Checked{M: m}, unshare.Mount) }
