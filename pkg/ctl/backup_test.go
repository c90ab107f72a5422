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
		{verify, "", "accepts 1 arg(s)"},
		{verify, passphrase, "give --passphrase-file or --identity-file"},
		{verify, passphrase + " --identity-file=" + passphrase, passphrase + ": "},
		{verify, passphrase + " --passphrase-file=" + passphrase, "the backup is damaged"},
		{schedule, "", "at least one of the flags"},
		{schedule, "--dir=" + dir + " --off", "none of the others can be"},
		{schedule, "--dir=" + dir, "with which key?"},
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
