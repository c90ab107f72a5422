// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/backup/s3"
	"keelson.dev/keelson/pkg/machine"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/preflight"
)

var (
	errNoSeal   = errors.New("with which key? give --passphrase-file, --recipient or --recipients-file")
	errTwoSeals = errors.New("a backup has either a passphrase or recipients")
	errNoKey    = errors.New("give --passphrase-file or --identity-file")
	errNoSource = errors.New("which backup? give its FILE, or --from-data-dir")
	errKeep     = errors.New("--keep must not be negative")
	errHidden   = errors.New("the scheduled command has no access there")
)

// readKeys says why only root can make backups.
const readKeys = "only root can read the keys of the control plane"

// seal has the flags that say how backups are sealed.
type seal struct {
	passphrase, file string
	recipients       []string
}

func (s *seal) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.passphrase, "passphrase-file", "",
		"file with a passphrase of at least 12 bytes; line breaks at its end are ignored")
	fs.StringSliceVar(&s.recipients, "recipient", nil,
		"public key of age (age1…) whose owner can open the backup; several are separated by commas")
	fs.StringVar(&s.file, "recipients-file", "", "file with public keys of age, one a line")
}

// to returns the recipients.
func (s *seal) to() ([]age.Recipient, error) {
	public := len(s.recipients) > 0 || s.file != ""
	switch {
	case s.passphrase == "" && !public:
		return nil, errNoSeal
	case s.passphrase != "" && public:
		return nil, errTwoSeals
	case public:
		return backup.Recipients(s.recipients, s.file)
	}
	passphrase, err := backup.Passphrase(s.passphrase)
	if err != nil {
		return nil, fmt.Errorf("--passphrase-file: %w", err)
	}
	to, err := backup.SealWith(passphrase)
	return []age.Recipient{to}, err
}

// args returns the flags of to, with absolute paths.
func (s *seal) args() (out []string, err error) {
	for _, flag := range []struct{ name, file string }{
		{"--passphrase-file=", s.passphrase}, {"--recipients-file=", s.file},
	} {
		if flag.file == "" {
			continue
		}
		file, err := filepath.Abs(flag.file)
		if err != nil {
			return nil, err
		}
		if isBelow(file, hidden()) {
			return nil, fmt.Errorf("%s%s: %w", flag.name, file, errHidden)
		}
		out = append(out, flag.name+file)
	}
	for _, r := range s.recipients {
		out = append(out, "--recipient="+r)
	}
	return out, nil
}

// unseal has the flags that say how backups are opened.
type unseal struct{ passphrase, identity string }

func (u *unseal) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&u.passphrase, "passphrase-file", "", "file with the passphrase of the backup")
	fs.StringVar(&u.identity, "identity-file", "", "file with the secret key of age for a recipient of the backup")
}

// with returns the identities that can open the backup.
func (u *unseal) with() ([]age.Identity, error) {
	if (u.passphrase == "") == (u.identity == "") {
		return nil, errNoKey
	}
	if u.identity != "" {
		return backup.Identities(u.identity)
	}
	passphrase, err := backup.Passphrase(u.passphrase)
	if err != nil {
		return nil, fmt.Errorf("--passphrase-file: %w", err)
	}
	with, err := backup.OpenWith(passphrase)
	return []age.Identity{with}, err
}

// backupCommand returns the command "ctl backup".
func backupCommand(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup",
		Short: "Make and check backups of a cluster on machines",
		Long: `Make and check backups of a cluster on machines. A backup is one file with everything
that a machine needs to become the control plane again: all objects, the authorities
and other keys, and the configuration. It does not have the data in volumes.

A LOCATION is a directory, or s3://BUCKET/PREFIX in a bucket of a server that speaks the
protocol of Amazon S3. The environment variables AWS_ENDPOINT_URL and AWS_REGION name the
server. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY have the keys; without them, those in
~/.aws/credentials count. AWS_CA_BUNDLE names a file with the authorities of the server's
certificate, if the system does not trust them.`,
	}
	c.AddCommand(backupCreateCommand(stdout, stderr), backupListCommand(stdout), backupScheduleCommand(stdout),
		backupVerifyCommand(stdout))
	return c
}

func backupCreateCommand(stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "create --dir LOCATION (--passphrase-file FILE | --recipient KEY | --recipients-file FILE)",
		Short: "Make a backup of the cluster on this control plane",
		Long: `Make a backup of the cluster on this control plane, while it goes on. The command
prints the path of the new file.`,
		Args: cobra.NoArgs,
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	var s seal
	var o machine.BackupOptions
	s.addFlags(c.Flags())
	dir := addDir(c, dirUsage)
	c.Flags().DurationVar(&o.Every, "every", 0,
		"make no backup if the newest one of this machine there is younger than this")
	c.Flags().IntVar(&o.Keep, "keep", 0, "remove all backups of this machine there except the newest N; 0 keeps all")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if o.Keep < 0 {
			return errKeep
		}
		if o.To, err = s.to(); err != nil {
			return err
		}
		if o.Location, err = backup.At(*dir); err != nil {
			return err
		}
		if err := requireRoot(readKeys); err != nil {
			return err
		}
		return machine.Backup(c.Context(), &o, machineDeps(stdout, stderr))
	}
	return c
}

// dirUsage describes the flag --dir of commands that make backups.
const dirUsage = "directory for the backups, which should not be on this machine's disk, or s3://BUCKET/PREFIX"

// addDir adds the required flag --dir.
func addDir(c *cobra.Command, usage string) *string {
	dir := c.Flags().String("dir", "", usage)
	_ = c.MarkFlagRequired("dir") // the flag exists
	return dir
}

func backupListCommand(stdout io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "list --dir LOCATION",
		Short: "List the backups in a directory or a bucket, the newest first",
		Args:  cobra.NoArgs,
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	dir := addDir(c, "directory with backups, or s3://BUCKET/PREFIX")
	c.RunE = func(c *cobra.Command, _ []string) error {
		in, err := backup.At(*dir)
		if err != nil {
			return err
		}
		all, err := backup.List(c.Context(), in)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "CLUSTER\tNODE\tTIME\tSIZE\tFILE")
		for _, l := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%.1f MB\t%s\n", l.Cluster, cmp.Or(l.Node, "-"), l.Time.Format(time.RFC3339),
				float64(l.Size)/1e6, l.Path)
		}
		return w.Flush()
	}
	return c
}

func backupVerifyCommand(stdout io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "verify FILE (--passphrase-file FILE | --identity-file FILE)",
		Short: "Check a backup, and print what is in it",
		Long: `Check a backup, and print what is in it. The command restores the store into memory,
checks the hashes of all files, and decrypts what is encrypted. It works on any
machine, and writes nothing to disks. FILE is a path, or s3://BUCKET/PREFIX/NAME.`,
		Args: cobra.ExactArgs(1),
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	var u unseal
	u.addFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		with, err := u.with()
		if err != nil {
			return err
		}
		return machine.Verify(c.Context(), args[0], with, stdout)
	}
	return c
}

func backupScheduleCommand(stdout io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use: "schedule (--dir LOCATION (--passphrase-file FILE | --recipient KEY | --recipients-file FILE) " +
			"[--every DURATION] [--keep N] | --off)",
		Short: "Let systemd make backups periodically on this control plane",
		Long: `Let systemd make backups periodically on this control plane. After a failure, systemd
tries again within ten minutes; "systemctl status keelson-backup" shows the reason.
The files of keys must remain where they are. systemd hides /tmp, /var/tmp and /run
from the command, and it cannot write to /home, /root, /etc, /usr and /boot.

For a bucket, this command tries the settings in its environment, and keeps them in the
file /etc/keelson/backup-s3.env, which only root can read.`,
		Args: cobra.NoArgs,
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	var s seal
	s.addFlags(c.Flags())
	dir := c.Flags().String("dir", "", dirUsage)
	every := c.Flags().Duration("every", 24*time.Hour, "time between two backups, at least 10m")
	keep := c.Flags().Int("keep", 14, "number of backups of this machine that remain there; 0 keeps all")
	off := c.Flags().Bool("off", false, "end the periodic backups; existing ones remain")
	c.MarkFlagsOneRequired("dir", "off")
	c.MarkFlagsMutuallyExclusive("dir", "off")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var args, env []string
		if !*off {
			var err error
			if args, err = s.scheduled(*dir, *keep); err != nil {
				return err
			}
			if env, err = bucketEnvironment(c.Context(), *dir); err != nil {
				return err
			}
		}
		if err := requireRoot(readKeys); err != nil {
			return err
		}
		if *off {
			return machine.Unschedule(c.Context())
		}
		if err := machine.Schedule(c.Context(), *every, args, env); err != nil {
			return err
		}
		_, err := fmt.Fprintf(stdout, "A backup is made every %s. The first one starts within ten minutes.\n", *every)
		return err
	}
	return c
}

// scheduled returns the arguments of "ctl backup create" for a schedule. It checks that the keys are usable,
// and that the unit keelson-backup has access to the directory and the files.
func (s *seal) scheduled(dir string, keep int) ([]string, error) {
	if keep < 0 {
		return nil, errKeep
	}
	if _, err := s.to(); err != nil {
		return nil, err
	}
	args, err := s.args()
	if err != nil {
		return nil, err
	}
	if !backup.InBucket(dir) {
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		if isBelow(dir, append(hidden(), "/home", "/root", "/etc", "/usr", "/boot")) {
			return nil, fmt.Errorf("--dir=%s: %w", dir, errHidden)
		}
	}
	return append([]string{"--dir=" + dir, "--keep=" + strconv.Itoa(keep)}, args...), nil
}

// bucketEnvironment returns the settings for a bucket that the unit keelson-backup needs. It checks that they
// are usable. For a directory, it returns none.
func bucketEnvironment(ctx context.Context, dir string) ([]string, error) {
	if !backup.InBucket(dir) {
		return nil, nil
	}
	settings, err := s3.ReadConfig()
	if err != nil {
		return nil, err
	}
	if isBelow(settings.CAFile, hidden()) {
		return nil, fmt.Errorf("AWS_CA_BUNDLE=%s: %w", settings.CAFile, errHidden)
	}
	bucket, err := s3.New(dir, settings)
	if err != nil {
		return nil, err
	}
	if _, err := backup.List(ctx, bucket); err != nil {
		return nil, err
	}
	return settings.Environment()
}

// isBelow reports whether an absolute path is one of the directories or below one of them.
func isBelow(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(path+"/", dir+"/") })
}

// hidden returns the directories that are hidden from the unit keelson-backup.
func hidden() []string { return []string{"/tmp", "/var/tmp", "/run"} }

// restoreCommand returns the command "ctl restore".
func restoreCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:   "restore (FILE (--passphrase-file FILE | --identity-file FILE) | --from-data-dir DIRECTORY)",
		Short: "Bring a cluster back on this machine, from a backup or from an etcd member",
		Long: `Bring a cluster back on this machine, with the state of a backup. The machine is the
cluster's control plane, or a new machine with its address and an installed release.
With --from-data-dir, the state comes from the data directory of an etcd member, for
example /var/lib/etcd of this machine, after most members were lost.

Nothing must be restarted by hand: other machines connect by themselves, pods that the
backup does not have end, and containers of other pods go on. What is replaced is kept
in dated directories. The command can be interrupted and repeated.

FILE is a path, or s3://BUCKET/PREFIX/NAME: "ctl backup --help" says how a bucket is reached.`,
		Args: cobra.MaximumNArgs(1),
	}
	c.SilenceErrors, c.SilenceUsage = true, true // Run prints the error
	var u unseal
	u.addFlags(c.Flags())
	dataDir := c.Flags().String("from-data-dir", "", "data directory of an etcd member of this machine's cluster")
	alsoNodes := c.Flags().StringSlice("also-nodes", nil, "names of nodes that joined after the backup, separated by "+
		"commas; pods of StatefulSets wait for their reports, too")
	force := c.Flags().BoolP("force", "f", false, "do not ask for confirmation")
	ignore := c.Flags().StringSlice("ignore-preflight-errors", nil,
		"on a new machine, checks whose errors do not prevent the restore, separated by commas, or all")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if (len(args) == 0) == (*dataDir == "") {
			return errNoSource
		}
		o := &machine.RestoreOptions{DataDir: *dataDir, AlsoNodes: *alsoNodes, Check: newMachineCheck(stdout, *ignore)}
		if len(args) > 0 {
			o.File = args[0]
			if o.With, err = u.with(); err != nil {
				return err
			}
		}
		if err := requireRoot("only root can restore a cluster"); err != nil {
			return err
		}
		if !*force && !confirmed(stdin, stdout, machine.RestoreWarning) {
			return errNotConfirmed
		}
		return machine.Restore(c.Context(), o, machineDeps(stdout, stderr))
	}
	return c
}

// newMachineCheck returns a check of a machine on which nothing is installed. It accepts other machines.
func newMachineCheck(stdout io.Writer, ignore []string) func(context.Context, *config.KeelsonConfiguration) error {
	if machine.Installed() {
		return func(context.Context, *config.KeelsonConfiguration) error { return nil }
	}
	return func(ctx context.Context, cfg *config.KeelsonConfiguration) error {
		system, err := preflight.Local(clock.Real())
		if err != nil {
			return err
		}
		o := preflight.Options{Config: cfg, ControlPlane: true, Built: built()}
		// The snapshot from the backup is there already. An old store is moved aside.
		return preflight.Report(stdout, preflight.Run(ctx, system, o), append(ignore, "DirAvailable--var-lib-etcd"))
	}
}
