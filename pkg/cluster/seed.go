// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/provision"
)

// The seed is a containerd root directory with the unpacked images of ImagesDir. It is created once
// on a machine. Each new node starts with a copy that shares the seed's files by hard links. So
// images are unpacked only once per machine, and the page cache has their files only once. Sharing
// is safe, because containerd never changes a blob, and an overlay mount never changes its lower
// layers.
const (
	seedName   = ".seed"
	seedMarker = "keelson-images" // file in the seed and its copies that has the digest of the image archives
)

// ensureSeed creates the seed (a containerd root directory with the cluster's images, which new
// nodes copy), unless a seed of the current image archives exists.
func ensureSeed(ctx context.Context, c *Config, deps Deps) error {
	digest, archives, err := archiveDigest(c.ImagesDir)
	if err != nil {
		return err
	}
	unlock, err := lockFile(filepath.Join(c.ImagesDir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	seed := filepath.Join(c.ImagesDir, seedName)
	if have, err := os.ReadFile(filepath.Join(seed, seedMarker)); err == nil && string(have) == digest {
		return nil
	}
	fmt.Fprintf(deps.Out, "unpacking %d images\n", len(archives))
	work := seed + ".new"
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("old seed: %w", err)
	}
	if err := os.MkdirAll(work, 0o711); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if err := runSeedHost(ctx, c, work); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, seedMarker), []byte(digest), 0o644); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if err := os.RemoveAll(seed); err != nil {
		return fmt.Errorf("old seed: %w", err)
	}
	return os.Rename(work, seed)
}

// archiveDigest returns a hash of the names, sizes and modification times of the image archives in
// dir and of the label that their images get, and the archives' paths.
func archiveDigest(dir string) (string, []string, error) {
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil || len(archives) == 0 {
		return "", nil, fmt.Errorf("images in %s: %w", dir, errors.Join(err, errNoImages))
	}
	slices.Sort(archives)
	h := sha256.New()
	fmt.Fprintln(h, provision.Pinned)
	for _, a := range archives {
		info, err := os.Stat(a)
		if err != nil {
			return "", nil, fmt.Errorf("image: %w", err)
		}
		fmt.Fprintln(h, filepath.Base(a), info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)), archives, nil
}

var errNoImages = errors.New("no image archives; build them with make images")

// runSeedHost runs SeedHost in new namespaces, to import the image archives into root. Its
// containerd has no access to the machine's network, and its mounts vanish with the namespaces.
func runSeedHost(ctx context.Context, c *Config, root string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "cluster", "seed-host", c.ToolsDir, c.ImagesDir, root)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:  syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("unpack images: %w\n%s", err, tail(out, 20))
	}
	return nil
}

// SeedHost imports all image archives in the directory images into the containerd root directory
// root. It must be the first process of new namespaces.
func SeedHost(ctx context.Context, tools, images, root string, deps Deps) error {
	for _, m := range []mount{
		{source: "none", target: "/", flags: unix.MS_REC | unix.MS_PRIVATE},
		{source: "tmpfs", target: "/run", kind: "tmpfs"},
		{source: "proc", target: "/proc", kind: "proc"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	cfg, err := provision.Containerd{Root: root, Tools: insideTools, Runtime: provision.Crun}.Config()
	if err != nil {
		return err
	}
	if err := atomicfile.WriteDurably("/run/containerd.toml", cfg, 0o644); err != nil {
		return err
	}
	daemon := exec.CommandContext(ctx, filepath.Join(tools, "containerd"), "--config", "/run/containerd.toml",
		"--log-level", "warn")
	daemon.Stdout, daemon.Stderr = deps.Out, deps.Out
	daemon.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
	if err := daemon.Start(); err != nil {
		return fmt.Errorf("containerd: %w", err)
	}
	if err := awaitSocket(ctx, provision.ContainerdSocket, deps); err != nil {
		return err
	}
	_, archives, err := archiveDigest(images)
	if err != nil {
		return err
	}
	seeded := provision.Images{Tools: tools, Socket: provision.ContainerdSocket}
	for _, a := range archives {
		if err := seeded.Import(ctx, a, provision.Pinned); err != nil { // a node may have no registry
			return err
		}
	}
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end containerd: %w", err)
	}
	if err := daemon.Wait(); err != nil {
		return fmt.Errorf("containerd: %w", err)
	}
	return nil
}

// seedNode copies the seed (see ensureSeed) into the containerd root directory of a new node.
func seedNode(c *Config, n Node) error {
	root := c.dirs().node(n.Name).path(provision.ContainerdRoot)
	if exists(root) {
		return nil
	}
	seed := filepath.Join(c.ImagesDir, seedName)
	if !exists(seed) {
		return nil // the cluster was started without nodes, so there is no seed; the node pulls all images
	}
	work := root + ".new"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := copyTree(seed, work); err != nil {
		return err
	}
	return os.Rename(work, root)
}

// copyTree copies a containerd root directory. It hard-links ordinary files, and copies databases,
// which containerd changes in place.
func copyTree(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return copyDirectory(target, info)
		case !strings.HasSuffix(path, ".db"):
			err := os.Link(path, target)
			if !errors.Is(err, syscall.EXDEV) && !errors.Is(err, syscall.EMLINK) && !errors.Is(err, syscall.EPERM) {
				return err
			}
		}
		return copyFile(path, target, info)
	})
}

func copyDirectory(target string, info fs.FileInfo) error {
	if err := os.Mkdir(target, 0o700); err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(target, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(target, info.Mode())
}

// copyFile copies a file, a symbolic link or a device, with its owner and mode. copyTree calls it
// for databases, and for files that cannot be hard-linked.
func copyFile(from, to string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: %w", from, errors.ErrUnsupported)
	}
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.Symlink(link, to); err != nil {
			return err
		}
		return os.Lchown(to, int(st.Uid), int(st.Gid))
	case 0:
		if err := copyContent(from, to); err != nil {
			return err
		}
	default:
		if err := unix.Mknod(to, st.Mode, int(st.Rdev)); err != nil {
			return fmt.Errorf("%s: %w", to, err)
		}
	}
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	return os.Chmod(to, info.Mode())
}

func copyContent(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// lockFile locks a file against other processes, and holds the lock until unlock is called. It makes the
// directory of the file.
func lockFile(file string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("directory of lock: %w", err)
	}
	return filelock.Lock(file)
}

// tail returns the last lines of a program's output, at most the given number.
func tail(out []byte, lines int) string {
	all := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
