// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storehealth

import (
	"testing"

	"keelson.dev/apiserver/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
