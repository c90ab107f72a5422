// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"testing"

	"keelson.dev/keelson/pkg/features"
)

// TestEmulatedVersion checks that the flag selects the features of 1.36, and that other releases are
// rejected.
func TestEmulatedVersion(t *testing.T) {
	for arg, want := range map[string]bool{"1.36": false, "kube=1.36": false, "1.37": true} {
		o, _, err := parse([]string{"--emulated-version=" + arg}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{features.StorageCapacityScoring, features.DRADeviceTaintRules} {
			if got := o.features.Enabled(name); got != want {
				t.Errorf("%s: %s is %t", arg, name, got)
			}
		}
	}
	for _, arg := range []string{"1.35", "1.38"} {
		wrong := "--emulated-version: this server cannot emulate " + arg + ", only 1.36 and 1.37"
		if _, _, err := parse([]string{"--emulated-version=" + arg}, io.Discard); err == nil || err.Error() != wrong {
			t.Errorf("%s: %v, want %s", arg, err, wrong)
		}
	}
}
