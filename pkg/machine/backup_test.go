// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"strings"
	"testing"
)

// TestEnvContent checks the file with the settings for a bucket.
func TestEnvContent(t *testing.T) {
	got, err := envContent([]string{`SECRET=a/b+c="$x y`, "NAME=v=w"})
	if want := "SECRET='a/b+c=\"$x y'\nNAME='v=w'\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, value := range []string{"hid'den", `hid\den`, "hid\nden", "hid\rden"} {
		_, err := envContent([]string{"SECRET=" + value})
		if !errors.Is(err, errValue) || !strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "hid") {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// TestBelongs checks which files a backup does not have.
func TestBelongs(t *testing.T) {
	for path, want := range map[string]bool{
		configFile: true, argsFile(backupName): true, controlDir.PKI("ca.key"): true,
		"/etc/keelson/backup-s3.env": false, configFile + ".new": false,
	} {
		if belongs(path) != want {
			t.Errorf("%s: %t, want %t", path, !want, want)
		}
	}
}
