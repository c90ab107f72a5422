// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/machine/config"
)

var errTestRefused = errors.New("connection refused")

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

// TestSettle checks that old and interrupted backups are removed whether or not there is a new one, and whether or not
// it can be recorded, and that a backup is recorded later if it could not be recorded at first.
func TestSettle(t *testing.T) {
	now := time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)
	c := &config.KeelsonConfiguration{ClusterName: "c"}
	c.Node.Name = "m1"
	unreachable, reachable := fake.NewClientset(), fake.NewClientset()
	unreachable.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errTestRefused
	})
	for name, tc := range map[string]struct {
		client *fake.Clientset
		made   time.Time
		fails  bool
	}{
		"no new backup":         {unreachable, time.Time{}, false},
		"it cannot be recorded": {unreachable, now, true},
		"it is recorded later":  {reachable, now, false},
	} {
		dir := t.TempDir()
		old, interrupted := filepath.Join(dir, backup.Name("c", "m1", now.Add(-time.Hour))), filepath.Join(dir,
			".partial-1"+backup.Extension)
		for _, file := range []string{old, interrupted, filepath.Join(dir, backup.Name("c", "m1", now))} {
			write(t, file, "x")
		}
		if err := os.Chtimes(interrupted, now.Add(-48*time.Hour), now.Add(-48*time.Hour)); err != nil {
			t.Fatal(err)
		}
		o := &BackupOptions{Location: backup.Directory(dir), Keep: 1}
		d := Deps{Clock: clocktesting.NewFakeClock(now), Out: io.Discard}
		err := o.settle(t.Context(), c, tc.client, tc.made, d)
		if (err != nil) != tc.fails {
			t.Errorf("%s: %v", name, err)
		}
		if exists(old) || exists(interrupted) {
			t.Errorf("%s: nothing was removed", name)
		}
	}
	if made, err := backup.Last(t.Context(), reachable); err != nil || !made.Equal(now) {
		t.Errorf("recorded %v, %v", made, err)
	}
}
