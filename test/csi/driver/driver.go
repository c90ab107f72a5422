// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package driver is a CSI driver for tests that implements most of the Container Storage Interface.
// Volumes are directories, or files that loop devices use, below one directory that all nodes can
// access, as if it were network storage. The driver can clone volumes, create volumes from
// snapshots, take snapshots of groups, and expand, measure and modify volumes. It reports its
// capacity. It attaches a volume to one node at a time if the claim requires that. If zones are
// configured, each volume belongs to a zone. All calls are idempotent.
//
// All state is in files, and each file is replaced atomically, so the process may be killed at any
// time. Several processes may use the same directory.
package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
)

// Driver implements the four services of a CSI driver.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedNodeServer
	// Name is the driver's name. Node is the name of the node on which the driver runs.
	Name, Node string
	// Zone is the zone of the node. A volume is accessible only from the zone in which it was
	// created. If Zone is empty, volumes are accessible from all nodes.
	Zone string
	// MaxVolumes is the maximum number of volumes on a node. 0 means no limit.
	MaxVolumes int64
	// NoAttach makes the driver report that volumes need not be attached to nodes.
	NoAttach bool
	// Root is the directory with the volumes. All nodes can access it.
	Root string
}

// Serve registers the driver's services with a gRPC server.
func (d *Driver) Serve(s *grpc.Server) {
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	csi.RegisterGroupControllerServer(s, d)
	csi.RegisterNodeServer(s, d)
}

// item describes a volume, a snapshot or a group of snapshots. It is stored as meta.json in the
// directory of what it describes.
type item struct {
	// Identity and size:

	Name  string `json:"name"`
	Size  int64  `json:"size"`
	Block bool   `json:"block,omitempty"`
	// Source is the ID of the volume or snapshot whose content the item got when it was created.
	Source string `json:"source,omitempty"`

	// Use on nodes:

	// Nodes has the nodes to which the volume is attached.
	Nodes []string `json:"nodes,omitempty"`
	// Staged has the nodes that use the loop device of a block volume.
	Staged []string `json:"staged,omitempty"`

	// Properties:

	// Made is the creation time, as a Unix time in seconds.
	Made int64 `json:"made,omitempty"`
	// Zone is the zone from which the volume is accessible. If it is empty, the volume is
	// accessible from all zones.
	Zone string `json:"zone,omitempty"`
	// Attributes has the modifiable attributes of a volume.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Group is the ID of the group that a snapshot belongs to. Members has the IDs of the snapshots
	// of a group.
	Group   string   `json:"group,omitempty"`
	Members []string `json:"members,omitempty"`
}

const (
	volumes   = "volumes"
	snapshots = "snapshots"
	groups    = "groups" // directory of groups of snapshots
	nodes     = "nodes"  // directory that has an empty directory for each node
	metaName  = "meta.json"
	filesName = "files" // directory with the files of a volume
	diskName  = "disk"  // file with the content of a block volume
)

var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// dir returns the directory of an item of the given kind.
func (d *Driver) dir(kind, id string) string { return filepath.Join(d.Root, kind, id) }

// locked calls f while it holds a file lock, so that no other process changes the directory.
func locked[T any](d *Driver, f func() (T, error)) (T, error) {
	var none T
	if err := os.MkdirAll(d.Root, 0o750); err != nil {
		return none, err
	}
	lock, err := os.OpenFile(filepath.Join(d.Root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return none, err
	}
	defer func() { _ = lock.Close() }() // closing the file releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return none, fmt.Errorf("lock: %w", err)
	}
	return f()
}

// find reads the description of an item. An item without meta.json is incomplete, and find returns
// NotFound for it.
func (d *Driver) find(kind, id string) (*item, error) {
	if !plain.MatchString(id) {
		return nil, status.Errorf(codes.NotFound, "no entry in %s: %q", kind, id)
	}
	b, err := os.ReadFile(filepath.Join(d.dir(kind, id), metaName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.NotFound, "no entry in %s: %q", kind, id)
	}
	if err != nil {
		return nil, err
	}
	i := &item{}
	if err := json.Unmarshal(b, i); err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, id, err)
	}
	return i, nil
}

// keep writes the description of an item to meta.json.
func (d *Driver) keep(kind, id string, i *item) error {
	b, err := json.Marshal(i)
	if err != nil {
		return err
	}
	path := filepath.Join(d.dir(kind, id), metaName)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// drop removes an item. It removes meta.json first, so that an interrupted removal leaves an
// incomplete item.
func (d *Driver) drop(kind, id string) error {
	if !plain.MatchString(id) {
		return nil
	}
	err := os.Remove(filepath.Join(d.dir(kind, id), metaName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(d.dir(kind, id))
}

// list returns the IDs of all items of a kind, sorted.
func (d *Driver) list(kind string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(d.Root, kind))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(d.dir(kind, e.Name()), metaName)); err == nil {
			out = append(out, e.Name())
		}
	}
	return out, err
}

// content creates the content of an item: a copy of the directory source, or empty content if
// source is "".
func content(dir string, i *item, source string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if i.Block {
		return disk(filepath.Join(dir, diskName), i.Size, source)
	}
	files := filepath.Join(dir, filesName)
	if err := os.RemoveAll(files); err != nil { // an interrupted attempt may have left files
		return err
	}
	if err := os.Mkdir(files, 0o750); err != nil {
		return err
	}
	if err := os.Chmod(files, 0o777); err != nil { // sets the mode regardless of the umask
		return err
	}
	if source == "" {
		return nil
	}
	return copyFiles(filepath.Join(source, filesName), files)
}

func disk(path string, size int64, source string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if source != "" {
		var from *os.File
		if from, err = os.Open(filepath.Join(source, diskName)); err == nil {
			_, err = f.ReadFrom(from)
			err = errors.Join(err, from.Close())
		}
	}
	return errors.Join(err, f.Truncate(size), f.Close())
}

// copyFiles copies directories, files and symbolic links, with their modes and owners.
func copyFiles(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		at := filepath.Join(to, rel)
		switch {
		case e.IsDir() && rel != ".":
			err = os.Mkdir(at, info.Mode().Perm())
		case info.Mode().Type() == fs.ModeSymlink:
			var target string
			if target, err = os.Readlink(path); err == nil {
				err = os.Symlink(target, at)
			}
		case info.Mode().IsRegular():
			var b []byte
			if b, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(at, b, info.Mode().Perm())
			}
		}
		if err != nil {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			return err
		}
		if err := os.Lchown(at, int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
		if info.Mode().Type() == fs.ModeSymlink {
			return nil
		}
		return os.Chmod(at, info.Mode())
	})
}
