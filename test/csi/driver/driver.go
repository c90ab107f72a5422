// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package driver is a storage driver for tests, with all that the Container Storage
// Interface has: volumes are directories, or files behind loop devices, below one
// directory that all nodes see, as if it were a disk in a network. It can make
// volumes from snapshots and from each other, takes snapshots of several at once, lets
// them grow, measures them, keeps what can be changed of them, says how much room there is,
// and attaches each to one node at a time if its claim says so. Its volumes are those of a zone
// if it is told of zones. What it is told to do a second time is done already.
//
// All it knows is in files, which are replaced as a whole: it may be killed at any
// moment. Several processes may serve the same directory.
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

// Driver serves the three services of a driver.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedNodeServer
	// Name is the driver's name, Node that of the node it runs on.
	Name, Node string
	// Zone is where the node is: volumes are reached from the zone that they are made in.
	// Without it they are reached from everywhere.
	Zone string
	// MaxVolumes is how many volumes a node takes; zero: any number.
	MaxVolumes int64
	// NoAttach tells that volumes need not be attached to nodes.
	NoAttach bool
	// Root is the directory that all nodes see.
	Root string
}

// Serve makes the driver's services those of a server.
func (d *Driver) Serve(s *grpc.Server) {
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	csi.RegisterGroupControllerServer(s, d)
	csi.RegisterNodeServer(s, d)
}

// item is a volume or a snapshot: what meta.json in its directory says.
type item struct {
	Name  string `json:"name"`
	Size  int64  `json:"size"`
	Block bool   `json:"block,omitempty"`
	// Source is what it was made from: a volume or a snapshot.
	Source string `json:"source,omitempty"`
	// Nodes are where it is attached.
	Nodes []string `json:"nodes,omitempty"`
	// Staged are the nodes that use its device, if it has one.
	Staged []string `json:"staged,omitempty"`
	// Made is when, in seconds.
	Made int64 `json:"made,omitempty"`
	// Zone is from where a volume is reached; "": from everywhere.
	Zone string `json:"zone,omitempty"`
	// Attributes are what can be changed of a volume.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Group is the group that a snapshot is of, Members are the snapshots of a group.
	Group   string   `json:"group,omitempty"`
	Members []string `json:"members,omitempty"`
}

const (
	volumes   = "volumes"
	snapshots = "snapshots"
	groups    = "groups" // of snapshots
	nodes     = "nodes"  // an empty directory for each
	metaName  = "meta.json"
	filesName = "files" // of a file system
	diskName  = "disk"  // of a device
)

var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// dir is where an item is.
func (d *Driver) dir(kind, id string) string { return filepath.Join(d.Root, kind, id) }

// locked calls f while no other process changes anything.
func locked[T any](d *Driver, f func() (T, error)) (T, error) {
	var none T
	if err := os.MkdirAll(d.Root, 0o750); err != nil {
		return none, err
	}
	lock, err := os.OpenFile(filepath.Join(d.Root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return none, err
	}
	defer func() { _ = lock.Close() }() // which gives the lock back
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return none, fmt.Errorf("lock: %w", err)
	}
	return f()
}

// find reads an item. One without meta.json is half made, or half gone: there is none.
func (d *Driver) find(kind, id string) (*item, error) {
	if !plain.MatchString(id) {
		return nil, status.Errorf(codes.NotFound, "no such thing in %s: %q", kind, id)
	}
	b, err := os.ReadFile(filepath.Join(d.dir(kind, id), metaName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.NotFound, "no such thing in %s: %q", kind, id)
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

// keep writes what is known of an item.
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

// drop removes an item: first what tells that it is there.
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

// list names the items of a kind, in order.
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

// content makes what is in an item: a copy of what is in another directory, or nothing.
func content(dir string, i *item, source string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if i.Block {
		return disk(filepath.Join(dir, diskName), i.Size, source)
	}
	files := filepath.Join(dir, filesName)
	if err := os.RemoveAll(files); err != nil { // of an attempt that was not finished
		return err
	}
	if err := os.Mkdir(files, 0o750); err != nil {
		return err
	}
	if err := os.Chmod(files, 0o777); err != nil { // whatever the process masks
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

// copyFiles copies directories, files and links, with their modes and owners.
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
