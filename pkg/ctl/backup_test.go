// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"keelson.dev/keelson/pkg/backup/s3/s3test"
)

// quietly runs a command and returns its error.
func quietly(t *testing.T, c *cobra.Command, args ...string) error {
	t.Helper()
	c.SetArgs(args)
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	return c.ExecuteContext(t.Context())
}

// TestBackupFlags checks that the commands reject missing and contradicting flags, and files that are no
// backups.
func TestBackupFlags(t *testing.T) {
	s3test.Start(t)
	dir := t.TempDir()
	passphrase, short := filepath.Join(dir, "passphrase"), filepath.Join(dir, "short")
	for file, text := range map[string]string{passphrase: "correct horse battery\n", short: "short\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const create, verify, schedule, restore = "backup create", "backup verify", "backup schedule", "restore"
	for _, tc := range []struct{ command, args, want string }{
		{create, "", `required flag(s) "dir" not set`},
		{create, "--dir=" + dir, "with which key?"},
		{create, "--dir=" + dir + " --recipient=age1 --passphrase-file=" + passphrase, "either a passphrase or recipients"},
		{create, "--dir=" + dir + " --recipient=age1", "recipients: "},
		{create, "--dir=" + dir + " --passphrase-file=" + short, "fewer than 12 bytes"},
		{create, "--dir=" + dir + " --keep=-1 --passphrase-file=" + passphrase, "--keep must not be negative"},
		{"backup list", "--dir=" + dir + "/none", "no such file or directory"},
		{"backup list", "--dir=s3://", "s3://BUCKET/PREFIX"},
		{"backup list", "--dir=s3://none", "the bucket does not exist"},
		{create, "--dir=s3:// --passphrase-file=" + passphrase, "s3://BUCKET/PREFIX"},
		{verify, "", "accepts 1 arg(s)"},
		{verify, passphrase, "give --passphrase-file or --identity-file"},
		{verify, passphrase + " --identity-file=" + passphrase, passphrase + ": "},
		{verify, passphrase + " --passphrase-file=" + passphrase, "the backup is damaged"},
		{verify, "s3://backups/none --passphrase-file=" + passphrase, "read s3://backups/none: file does not exist"},
		{schedule, "", "at least one of the flags"},
		{schedule, "--dir=" + dir + " --off", "none of the others can be"},
		{schedule, "--dir=" + dir, "with which key?"},
		{schedule, "--dir=s3://none --passphrase-file=" + passphrase, "the scheduled command has no access there"},
		{restore, "", "which backup?"},
		{restore, "file --from-data-dir=" + dir, "which backup?"},
		{restore, passphrase, "give --passphrase-file or --identity-file"},
	} {
		root := &cobra.Command{Use: "ctl"}
		root.SilenceErrors, root.SilenceUsage = true, true
		root.AddCommand(backupCommand(io.Discard, io.Discard), restoreCommand(strings.NewReader(""), io.Discard, io.Discard))
		args := slices.Concat(strings.Fields(tc.command), strings.Fields(tc.args))
		if err := quietly(t, root, args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", strings.Join(args, " "), err, tc.want)
		}
	}
}

// TestScheduledArguments checks the arguments of scheduled backups: paths are absolute, because systemd runs
// the command in another directory.
func TestScheduledArguments(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("/") // temporary directories are hidden from the unit
	key := id.Recipient().String()
	s := &seal{recipients: []string{key}}
	got, err := s.scheduled("mnt/backups", 3)
	want := []string{"--dir=/mnt/backups", "--keep=3", "--recipient=" + key}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, dir := range []string{"tmp/x", "/etc/backups", "/root/b", "/run/b", "/tmp", "/home/", "/run"} {
		if got, err := s.scheduled(dir, 3); !errors.Is(err, errHidden) {
			t.Errorf("%s: %q, %v", dir, got, err)
		}
	}
	if got, err := s.scheduled("s3://bucket/prefix", 3); err != nil || got[0] != "--dir=s3://bucket/prefix" {
		t.Errorf("%q, %v", got, err)
	}
	file := &seal{passphrase: "proc/self/passphrase", file: "proc/keys"} // in this order
	if got, err := file.args(); err != nil || !slices.Equal(got, []string{"--passphrase-file=/proc/self/passphrase",
		"--recipients-file=/proc/keys"}) {
		t.Errorf("%q, %v", got, err)
	}
	file.passphrase = "tmp/passphrase"
	if got, err := file.args(); !errors.Is(err, errHidden) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestBucketEnvironment checks that scheduled backups get the settings for their bucket, after these were tried.
func TestBucketEnvironment(t *testing.T) {
	s := s3test.Start(t)
	want := []string{"AWS_ENDPOINT_URL=" + s.URL, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=id",
		"AWS_SECRET_ACCESS_KEY=secret"}
	if got, err := bucketEnvironment(t.Context(), "s3://"+s3test.Bucket+"/x"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if got, err := bucketEnvironment(t.Context(), "/srv"); err != nil || got != nil {
		t.Errorf("a directory: %q, %v", got, err)
	}
	for name, tc := range map[string]struct{ variable, value, at, want string }{
		"no bucket":    {"AWS_REGION", "r", "s3://none", "the bucket does not exist"},
		"temporary":    {"AWS_SESSION_TOKEN", "t", "s3://backups", "need permanent keys"},
		"hidden file":  {"AWS_CA_BUNDLE", "/tmp/ca.crt", "s3://backups", errHidden.Error()},
		"half the key": {"AWS_ACCESS_KEY_ID", "", "s3://backups", "set both"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(tc.variable, tc.value)
			if got, err := bucketEnvironment(t.Context(), tc.at); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%q, %v; want %s", got, err, tc.want)
			}
		})
	}
}
