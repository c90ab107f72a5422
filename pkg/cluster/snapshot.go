// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"keelson.dev/keelson/pkg/provision"
)

// Snapshot writes all objects of the cluster to file, a compressed tar archive of the store's
// directory. The API server is stopped briefly meanwhile. Secrets in the archive stay encrypted.
// The archive contains the names of the encryption keys, but not the keys.
func Snapshot(ctx context.Context, c *Config, file string, deps Deps) error {
	if c.replicated() {
		return fmt.Errorf("%w: save it with etcdctl snapshot save", errOwnEtcd)
	}
	var keys []string // nil if the names of the keys are unknown
	e, err := provision.ReadEncryptionKeys(c.dirs().control().EncryptionKeys())
	switch {
	case err == nil:
		keys = e.Names()
	case !errors.Is(err, provision.ErrForeignEncryption):
		return err
	}
	return withoutServer(ctx, c, deps, func() error { return packStore(c.dirs().store(), file, keys) })
}

// Restore replaces all objects of the cluster by those of a snapshot. The nodes' kubelets then
// start and stop pods accordingly.
//
// The store's revision becomes lower than before, so clients with a watch could mistake old changes
// for new ones. Restore therefore restarts the cluster's own processes. The operator must restart
// other programs that watch.
func Restore(ctx context.Context, c *Config, file string, deps Deps) error {
	if c.replicated() {
		return fmt.Errorf("%w: restore its members with etcdutl snapshot restore", errOwnEtcd)
	}
	fresh, old := c.dirs().store()+".new", c.dirs().store()+".old"
	if err := errors.Join(os.RemoveAll(fresh), os.RemoveAll(old)); err != nil {
		return fmt.Errorf("old store: %w", err)
	}
	if err := unpackStore(file, fresh); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := acceptKeys(c.dirs().control().EncryptionKeys(), fresh); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	err := withoutServer(ctx, c, deps, func() error {
		if err := os.Rename(c.dirs().store(), old); err != nil {
			return fmt.Errorf("replace store: %w", err)
		}
		if err := os.Rename(fresh, c.dirs().store()); err != nil {
			return fmt.Errorf("replace store: %w", err)
		}
		return os.RemoveAll(old)
	})
	if err != nil {
		return err
	}
	return restartClients(ctx, c, newProgress(deps))
}

// restartClients ends the processes that watch the API server, and waits until the supervisor or
// node host has started each of them again.
func restartClients(ctx context.Context, c *Config, p *progress) error {
	st, err := Inspect(ctx, c)
	if err != nil {
		return err
	}
	maps.DeleteFunc(st.Pids, func(name string, _ int) bool {
		return name == apiserver ||
			strings.HasPrefix(name, "containerd-")
	})
	for name, pid := range st.Pids {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("restart %s: %w", name, err)
		}
	}
	for name, pid := range st.Pids {
		if err := waitRestarted(ctx, c, p, name, pid); err != nil {
			return fmt.Errorf("restart %s: %w", name, err)
		}
	}
	return nil
}

// withoutServer stops the API server, calls the function do, and starts the API server again, even
// if this function fails.
func withoutServer(ctx context.Context, c *Config, deps Deps, do func() error) error {
	name := url.Values{"name": {apiserver}}
	if err := call(ctx, c.dirs().socket(), "POST", "/control/stop", name, nil); err != nil {
		return err
	}
	err := do()
	if startErr := call(context.WithoutCancel(ctx), c.dirs().socket(), "POST", "/control/start", name,
		nil); startErr != nil {
		return errors.Join(err, startErr)
	}
	return errors.Join(err, waitControlPlane(ctx, c, newProgress(deps)))
}

// keysFile is the name of the file in a snapshot that lists the names of the encryption keys of the
// snapshot's secrets.
const keysFile = "encryption-keys"

// acceptKeys makes sure that the cluster can read the secrets of a snapshot, which is unpacked in
// dir. It returns an error if the cluster lacks keys. If the secrets in the snapshot are not
// encrypted, it permits unencrypted secrets in the file of the keys.
func acceptKeys(file, dir string) error {
	var used []string
	err := readJSON(filepath.Join(dir, keysFile), &used)
	unencrypted := errors.Is(err, os.ErrNotExist)
	if err != nil && !unencrypted {
		return fmt.Errorf("%w: %w", errSnapshot, err)
	}
	if !unencrypted {
		if err := os.Remove(filepath.Join(dir, keysFile)); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	e, err := provision.ReadEncryptionKeys(file)
	switch {
	case errors.Is(err, provision.ErrForeignEncryption):
		return nil // the keys are managed outside ctl; the operator knows which keys are needed
	case err != nil:
		return err
	case unencrypted && !e.Plain:
		e.Plain = true
		_, err := e.Write(file)
		return err
	}
	for _, name := range used {
		if !slices.Contains(e.Names(), name) {
			return fmt.Errorf("%w: %s is not in %s", errKeyGone, name, file)
		}
	}
	return nil
}

// packStore writes an archive with dir and the names of the keys to file.
func packStore(dir, file string, keys []string) (err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, out.Sync(), out.Close()) }()
	zip := gzip.NewWriter(out)
	w := tar.NewWriter(zip)
	names, err := json.Marshal(keys)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	err = w.WriteHeader(&tar.Header{Name: keysFile, Mode: 0o600, Size: int64(len(names))})
	if err == nil {
		_, err = w.Write(names)
	}
	if err := errors.Join(err, w.AddFS(os.DirFS(dir))); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return errors.Join(w.Close(), zip.Close())
}

var errSnapshot = errors.New("not a snapshot of a cluster")

func unpackStore(file, dir string) error {
	in, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer in.Close()
	zip, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", file, errSnapshot, err)
	}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %w", file, errSnapshot, err)
		}
		if err := unpackEntry(r, h, dir); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if !exists(filepath.Join(dir, "member")) {
		return fmt.Errorf("%s: %w", file, errSnapshot)
	}
	return nil
}

func unpackEntry(r io.Reader, h *tar.Header, dir string) error {
	if !filepath.IsLocal(h.Name) {
		return errSnapshot
	}
	target := filepath.Join(dir, h.Name)
	if h.FileInfo().IsDir() {
		return os.MkdirAll(target, 0o700)
	}
	if h.FileInfo().Mode().Type() != fs.FileMode(0) {
		return errSnapshot
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close())
}
