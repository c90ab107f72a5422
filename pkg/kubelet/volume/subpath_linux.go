// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/beneath"
)

// subpathsName is the name of the directory, in the pod's directory, for bind mounts of subPaths.
const subpathsName = "volume-subpaths"

// subpath is a subPath of a volume that one container mounts.
type subpath struct {
	podDir    string
	volume    string // name of the volume
	dir       string // path of the volume on the node
	path      string // path in the volume
	container string
	index     int // index in the container's volumeMounts
}

// bind bind-mounts the file or directory at the subPath into the pod's directory and returns the
// mount point. The runtime then mounts exactly the file that the kubelet has checked. Containers
// that use the volume may replace any part of the path by a symbolic link at any time, so a path is
// not enough.
func (s subpath) bind() (string, error) {
	source, err := s.open()
	if err != nil {
		return "", err
	}
	defer unix.Close(source)
	var stat unix.Stat_t
	if err := unix.Fstat(source, &stat); err != nil {
		return "", fmt.Errorf("stat subPath: %w", err)
	}
	target := filepath.Join(s.podDir, subpathsName, s.volume, s.container, strconv.Itoa(s.index))
	if done, err := s.bound(target, stat); err != nil || done {
		return target, err
	}
	if err := makeTarget(target, stat.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return "", err
	}
	if err := unix.Mount(beneath.Path(source), target, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind subPath: %w", err)
	}
	return target, nil
}

// bound reports whether the file with the identity want is already mounted at target. If another
// file is mounted there since a previous run of the container, bound unmounts it.
func (s subpath) bound(target string, want unix.Stat_t) (bool, error) {
	mounted, err := isMount(target)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !mounted {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var have unix.Stat_t
	if err := unix.Lstat(target, &have); err == nil && have.Dev == want.Dev && have.Ino == want.Ino {
		return true, nil
	}
	if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return false, fmt.Errorf("unmount old subPath: %w", err)
	}
	return false, nil
}

// makeTarget creates an empty directory (if dir is true) or an empty file as a mount point.
func makeTarget(target string, dir bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return fmt.Errorf("make subPath's mount point: %w", err)
	}
	if info, err := os.Lstat(target); err == nil && info.IsDir() != dir {
		// In the previous run of the container the path was a file and now it is a directory, or
		// the reverse.
		if err := os.Remove(target); err != nil {
			return fmt.Errorf("remove old mount point: %w", err)
		}
	}
	if dir {
		if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make subPath's mount point: %w", err)
		}
		return nil
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return fmt.Errorf("make subPath's mount point: %w", err)
	}
	return f.Close()
}

// open opens the subPath in the volume. It creates missing directories with the mode of the
// volume's root directory.
func (s subpath) open() (int, error) {
	root, err := unix.Open(s.dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open volume: %w", err)
	}
	defer unix.Close(root)
	path := s.path
	fd, err := beneath.OpenAt(root, path, unix.O_PATH)
	// EXDEV means that the path contains an absolute link, or a link that leads out of the volume.
	if errors.Is(err, unix.EXDEV) {
		if path, err = s.resolve(); err != nil {
			return -1, err
		}
		fd, err = beneath.OpenAt(root, path, unix.O_PATH)
	}
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(root, &stat); err != nil {
		return -1, fmt.Errorf("stat volume: %w", err)
	}
	if err := makeDirsBeneath(root, path, stat.Mode&0o7777); err != nil {
		return -1, err
	}
	return beneath.OpenAt(root, path, unix.O_PATH)
}

// resolve returns the path with its symbolic links resolved, up to the first element that does not
// exist. As in Kubernetes, an absolute link starts at the node's root, and a link may lead out of
// the volume and back into it. resolve is not a security check: the caller opens the result beneath
// the volume's root.
func (s subpath) resolve() (string, error) {
	parts := strings.Split(filepath.Clean(s.path), "/")
	for n := len(parts); n > 0; n-- {
		existing, err := beneath.Resolve(s.dir, filepath.Join(parts[:n]...))
		if err == nil {
			return filepath.Join(existing, filepath.Join(parts[n:]...)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("resolve subPath: %w", err)
		}
	}
	return s.path, nil
}

func makeDirsBeneath(root int, path string, mode uint32) error {
	parts := strings.Split(filepath.Clean(path), "/")
	for i := range parts {
		fd, err := beneath.OpenAt(root, filepath.Join(parts[:i+1]...), unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			unix.Close(fd)
			continue
		}
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		if err := makeDirBeneath(root, filepath.Join(append([]string{"."}, parts[:i]...)...), parts[i], mode); err != nil {
			return err
		}
	}
	return nil
}

func makeDirBeneath(root int, parent, name string, mode uint32) error {
	in, err := beneath.OpenAt(root, parent, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if err := unix.Mkdirat(in, name, mode); err != nil {
		// A container has created an entry of this name meanwhile. The caller opens it beneath the
		// root, whatever its type is.
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		return fmt.Errorf("make subPath: %w", err)
	}
	made, err := beneath.OpenAt(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(made)
	if err := unix.Fchmod(made, mode); err != nil { // sets the mode independently of the umask
		return fmt.Errorf("make subPath: %w", err)
	}
	return nil
}
