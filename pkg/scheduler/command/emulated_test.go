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
	for arg, scores := range map[string]bool{"1.36": false, "kube=1.36": false, "1.37": true} {
		o, _, err := parse([]string{"--emulated-version=" + arg}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.features.Enabled(features.StorageCapacityScoring); got != scores {
			t.Errorf("%s: StorageCapacityScoring is %t", arg, got)
		}
	}
	const wrong = "--emulated-version: this server cannot emulate 1.35, only 1.36 and 1.37"
	if _, _, err := parse([]string{"--emulated-version=1.35"}, io.Discard); err == nil || err.Error() != wrong {
		t.Errorf("1.35: %v, want %s", err, wrong)
	}
}
