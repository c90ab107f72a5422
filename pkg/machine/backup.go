// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/machine/certs"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/provision"
	"keelson.dev/keelson/pkg/storesnapshot"
)

// backupName is the name of the unit that makes scheduled backups, and backupTimer the unit that starts it.
// The timer starts it every ten minutes. How often a backup is made is among its flags.
const (
	backupName  = "backup"
	backupTimer = "keelson-backup.timer"
	// timerInterval is the interval of the timer. Backups cannot be made more often.
	timerInterval = 10 * time.Minute
)

// bucketEnv is the file with the settings and keys for the bucket of scheduled backups. Its unit reads it.
var bucketEnv = filepath.Join(ownConfig, "backup-s3.env")

// BackupOptions describe a backup.
type BackupOptions struct {
	Location backup.Location
	To       []age.Recipient
	// Every is the minimum time between two backups. If the newest backup of this machine in Location is younger, no
	// backup is made.
	Every time.Duration
	// Keep is the number of backups of this machine that remain in Location, or 0 for all.
	Keep int
}

var errInterval = fmt.Errorf("the minimum interval is %s", timerInterval)

// Backup makes a backup of the cluster on a machine with a control plane. The cluster goes on meanwhile.
//
// What an earlier call could not do any more is done, also if there is no new backup: the newest one is recorded, and
// old and interrupted ones are removed. Otherwise a disk that is full would stay full.
func Backup(ctx context.Context, o *BackupOptions, d Deps) error {
	c, err := ownConfiguration()
	if err != nil {
		return err
	}
	newest, ok, err := backup.Newest(ctx, o.Location, c.ClusterName, c.Node.Name, d.Clock.Now())
	if err != nil {
		return err
	}
	server := local
	if NotAdopted() != nil { // there is no agent
		server = "https://" + apiAddress(c)
	}
	api, err := newAdministrator(server)
	if err != nil {
		return err
	}
	if ok && d.Clock.Since(newest.Time) < o.Every {
		fmt.Fprintf(d.Out, "The newest backup, %s, is younger than %s.\n", newest.Path, o.Every)
		return o.settle(ctx, c, api.client, newest.Time, d)
	}
	made, err := makeBackup(ctx, o, c, api, d)
	if err != nil {
		made = newest.Time
	}
	return errors.Join(err, o.settle(ctx, c, api.client, made, d))
}

// makeBackup makes a backup, and returns its time.
func makeBackup(ctx context.Context, o *BackupOptions, c *config.KeelsonConfiguration, api administrator, d Deps) (
	made time.Time, err error) {
	files, err := backupFiles()
	if err != nil {
		return made, err
	}
	store, err := api.snapshotStore(ctx)
	if err != nil {
		return made, err
	}
	defer store.Close()
	contents, err := backup.Inspect(ctx, descriptor(store), encryptionKeys(files))
	if err != nil {
		return made, err
	}
	m := &backup.Manifest{
		Cluster: c.ClusterName, Node: c.Node.Name, Release: daemon.Version, Time: d.Clock.Now().UTC(),
		Revision: contents.Revision, Epoch: contents.Epoch,
	}
	path, err := backup.Write(ctx, o.Location, m, store, files, o.To...)
	if err == nil {
		fmt.Fprintln(d.Out, path)
	}
	return m.Time, err
}

// settle records that a backup was made at the given time, unless it is zero, and removes old ones.
func (o *BackupOptions) settle(ctx context.Context, c *config.KeelsonConfiguration, client kubernetes.Interface,
	made time.Time, d Deps) error {
	var errs []error
	if !made.IsZero() {
		errs = append(errs, backup.Record(ctx, client, made))
	}
	if o.Keep > 0 {
		removed, err := backup.Prune(ctx, o.Location, c.ClusterName, c.Node.Name, o.Keep, d.Clock.Now())
		for _, r := range removed {
			fmt.Fprintln(d.Out, "removed "+r)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hasControlPlane reports whether this machine has a control plane.
func hasControlPlane() bool { return hasFlags(provision.APIServer) }

// ownConfiguration returns the configuration of this machine, which must have a control plane.
func ownConfiguration() (*config.KeelsonConfiguration, error) {
	if !hasControlPlane() {
		return nil, certs.ErrNoControlPlane
	}
	return readConfiguration()
}

// oldPrefix is the prefix of the names of directories with what a restore has replaced.
const oldPrefix = "before-restore-"

// backupFiles returns the files that make this machine a control plane of the cluster: its configuration,
// the authorities, all other keys and certificates, the encryption keys, the programs' flags, and the files at other
// places that these name.
func backupFiles() ([]backup.File, error) {
	var out []backup.File
	for _, dir := range []string{ownConfig, string(controlDir)} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if e.IsDir() && strings.HasPrefix(e.Name(), oldPrefix) {
				return fs.SkipDir
			}
			if !e.Type().IsRegular() || !belongs(path) {
				return nil
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			out = append(out, backup.File{Name: strings.TrimPrefix(path, "/"), Mode: info.Mode().Perm(), Data: data})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("files of the control plane: %w", err)
		}
	}
	return addNamed(out)
}

// belongs reports whether a file belongs into backups. What a write that was interrupted has left does not. The
// keys of a bucket do not, so that a person who opens one backup cannot remove the others.
func belongs(path string) bool { return !strings.HasSuffix(path, ".new") && path != bucketEnv }

// snapshotStore reads the store from the API server into a file without a name.
func (a administrator) snapshotStore(ctx context.Context) (*os.File, error) {
	in, err := a.client.CoreV1().RESTClient().Get().AbsPath(storesnapshot.Path).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	defer in.Close()
	out, err := nameless(state)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(out, in); err != nil {
		return nil, errors.Join(fmt.Errorf("read the store: %w", err), out.Close())
	}
	return out, nil
}

// nameless returns a new file in a directory that is already removed, so that nothing remains of it when
// the process ends.
func nameless(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".store-*")
	if err != nil {
		return nil, fmt.Errorf("file for the store: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("file for the store: %w", err), f.Close())
	}
	return f, nil
}

// descriptor returns a path of an open file, also if it has no name.
func descriptor(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// Schedule lets systemd run "ctl backup create" with the given arguments periodically. env has the settings
// for a bucket as NAME=VALUE. They are not among the arguments, because the list of processes shows those.
func Schedule(ctx context.Context, every time.Duration, args, env []string) error {
	if _, err := ownConfiguration(); err != nil {
		return err
	}
	if every < timerInterval {
		return errInterval
	}
	content, err := argsContent(backupName, append([]string{"backup", "create", "--every=" + every.String()}, args...))
	if err != nil {
		return err
	}
	if err := writeBucketEnv(env); err != nil {
		return err
	}
	if err := atomicfile.WriteDurably(argsFile(backupName), content, 0o600); err != nil {
		return err
	}
	if err := linkUnits(ctx); err != nil { // an older release had no such unit
		return err
	}
	return systemctl(ctx, "enable", "--now", backupTimer)
}

// writeBucketEnv writes the file with the settings for a bucket, or removes it if there are none.
func writeBucketEnv(env []string) error {
	if len(env) == 0 {
		return removeFile(bucketEnv)
	}
	content, err := envContent(env)
	if err != nil {
		return err
	}
	return atomicfile.WriteDurably(bucketEnv, content, 0o600)
}

var errValue = errors.New("single quotes, backslashes and line breaks are not supported")

// envContent returns the content of a file with environment variables, for systemd and for shells. Its error does
// not have the value of a variable, which may be a key.
func envContent(env []string) ([]byte, error) {
	var out []byte
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if strings.ContainsAny(value, "'\\\n\r") {
			return nil, fmt.Errorf("value of %s: %w", name, errValue)
		}
		out = fmt.Appendf(out, "%s='%s'\n", name, value)
	}
	return out, nil
}

// Unschedule ends the scheduled backups. It keeps the backups.
func Unschedule(ctx context.Context) error {
	if err := systemctl(ctx, "disable", "--now", backupTimer); err != nil {
		return err
	}
	return errors.Join(removeFile(argsFile(backupName)), removeFile(bucketEnv))
}
