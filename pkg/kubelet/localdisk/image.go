// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package localdisk

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

const (
	diskName   = "disk"
	recordName = "volume.json"
	// fsType is the file system of all volumes that have one.
	fsType = "ext4"
	// making and going are the prefixes of the directory names of volumes that are being created or
	// deleted.
	making, going = ".making-", ".going-"
)

const (
	// smallest is the minimum size of a volume in bytes. A smaller ext4 file system has no journal.
	smallest    = 16 << 20
	largest     = 1 << 50
	defaultSize = 1 << 30
	// The sizes of volumes are multiples of unit, in bytes. block is the block size of file systems
	// in bytes.
	unit  = 1 << 20
	block = 4096
)

// image is a volume. The fields with JSON names are stored in the volume's record file.
type image struct {
	ID    string `json:"id"`
	Size  int64  `json:"size"`
	Block bool   `json:"block,omitempty"`
	dir   string
}

func (i *image) disk() string { return filepath.Join(i.dir, diskName) }

var identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func (d *Driver) volumes() string { return filepath.Join(Dir(d.cfg.RootDir), "volumes") }

// find returns the volume with an ID by reading its record file.
func (d *Driver) find(id string) (*image, error) {
	if !identifier.MatchString(id) {
		return nil, status.Errorf(codes.NotFound, "no such volume: %q", id)
	}
	i := &image{dir: filepath.Join(d.volumes(), id)}
	b, err := os.ReadFile(filepath.Join(i.dir, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.NotFound, "no such volume on node %s: %q", d.cfg.NodeName, id)
	}
	if err == nil {
		err = json.Unmarshal(b, i)
	}
	if err != nil {
		return nil, fmt.Errorf("record of volume %s: %w", id, err)
	}
	return i, nil
}

// make creates a volume. It builds the volume in a directory with another name, and renames this
// directory at the end. So an interrupted call leaves no volume with this ID.
func (d *Driver) make(ctx context.Context, i *image) error {
	final := filepath.Join(d.volumes(), i.ID)
	i.dir = filepath.Join(d.volumes(), making+i.ID)
	if err := os.RemoveAll(i.dir); err != nil {
		return fmt.Errorf("incomplete volume: %w", err)
	}
	if err := os.Mkdir(i.dir, 0o750); err != nil {
		return fmt.Errorf("directory of volume: %w", err)
	}
	if err := i.fill(ctx); err != nil {
		return errors.Join(err, os.RemoveAll(i.dir))
	}
	if err := checkpoint.WriteDurably(filepath.Join(i.dir, recordName), i); err != nil {
		return fmt.Errorf("record of volume: %w", err)
	}
	if err := os.Rename(i.dir, final); err != nil {
		return fmt.Errorf("rename volume: %w", err)
	}
	i.dir = final
	return syncDir(d.volumes())
}

// fill creates the volume's file and, unless it is a block volume, the file system in it.
func (i *image) fill(ctx context.Context) error {
	f, err := os.OpenFile(i.disk(), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("disk of volume: %w", err)
	}
	defer func() { _ = f.Close() }() // an error of Close can be ignored: the content was synced before
	if err := f.Truncate(i.Size); err != nil {
		return fmt.Errorf("size of volume: %w", err)
	}
	if !i.Block {
		// The root directory of the file system belongs to root, no blocks are reserved, and unused
		// blocks take no space on the node's disk.
		if err := command(ctx, "mkfs."+fsType, "-q", "-F", "-m", "0", "-b", strconv.Itoa(block), "-E",
			"root_owner=0:0,nodiscard", i.disk()); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("disk of volume: %w", err)
	}
	return nil
}

// remove deletes a volume. It first renames the directory, so that a volume whose deletion is
// interrupted no longer exists under its ID.
func (d *Driver) remove(i *image) error {
	aside := filepath.Join(d.volumes(), going+i.ID)
	if err := os.Rename(i.dir, aside); err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	if err := syncDir(d.volumes()); err != nil {
		return err
	}
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	return nil
}

// enlarge enlarges the file of a volume. The node service later grows the file system in it.
func (i *image) enlarge(size int64) error {
	if err := os.Truncate(i.disk(), size); err != nil {
		return fmt.Errorf("size of volume: %w", err)
	}
	i.Size = size
	if err := checkpoint.WriteDurably(filepath.Join(i.dir, recordName), i); err != nil {
		return fmt.Errorf("record of volume: %w", err)
	}
	return nil
}

// room returns how many bytes of the node's disk are free and not promised to any volume.
func (d *Driver) room() (int64, error) {
	var fsys unix.Statfs_t
	if err := unix.Statfs(d.volumes(), &fsys); err != nil {
		return 0, fmt.Errorf("free space on the node's disk: %w", err)
	}
	left := int64(fsys.Bavail) * fsys.Bsize
	disks, err := filepath.Glob(filepath.Join(d.volumes(), "*", diskName))
	if err != nil {
		return 0, fmt.Errorf("volumes: %w", err)
	}
	for _, disk := range disks {
		var has unix.Stat_t
		if err := unix.Stat(disk, &has); err != nil {
			continue // the volume is being deleted
		}
		left -= max(has.Size-has.Blocks*512, 0)
	}
	return max(left, 0), nil
}

// prepare checks and repairs a file system before it is mounted, and grows it to the size of the
// volume.
func (i *image) prepare(ctx context.Context) error {
	has, err := i.filled()
	if err != nil {
		return err
	}
	args := []string{"-p", i.disk()}
	if has < i.Size {
		args = append(args, "-f") // resize2fs requires that the file system was checked fully
	}
	err = command(ctx, "e2fsck", args...)
	// The exit codes 1 and 2 mean that errors were found and corrected.
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 2) {
		return err
	}
	if has < i.Size {
		return command(ctx, "resize2fs", i.disk())
	}
	return nil
}

// filled returns the size of the volume's file system in bytes according to its superblock.
func (i *image) filled() (int64, error) {
	f, err := os.Open(i.disk())
	if err != nil {
		return 0, fmt.Errorf("disk of volume: %w", err)
	}
	defer func() { _ = f.Close() }() // an error of Close can be ignored: the file was only read
	const at, low, high = 1024, 0x4, 0x150
	super := make([]byte, 1024)
	if _, err := f.ReadAt(super, at); err != nil {
		return 0, fmt.Errorf("superblock of volume %s: %w", i.ID, err)
	}
	blocks := int64(binary.LittleEndian.Uint32(super[high:]))<<32 | int64(binary.LittleEndian.Uint32(super[low:]))
	return blocks * block, nil
}

// resizeFS is the number of the ioctl EXT4_IOC_RESIZE_FS.
const resizeFS = 0x40086610

// fillDisk grows a mounted file system to the size of the volume. If the kernel does not permit
// this, fillDisk returns FailedPrecondition; the file system then grows before it is mounted the
// next time.
func (i *image) fillDisk(path string) error {
	if has, err := i.filled(); err != nil || has >= i.Size {
		return err // check the size first, because the kernel rejects a resize to the present size
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("root of volume: %w", err)
	}
	defer func() { _ = f.Close() }() // an error of Close can be ignored: the file was only read
	blocks := uint64(i.Size / block)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), resizeFS, uintptr(unsafe.Pointer(&blocks)))
	switch {
	case errno == 0:
		return nil
	case errno == unix.EPERM:
		return status.Errorf(codes.FailedPrecondition, "volume %s grows when its pods are restarted: "+
			"without CAP_SYS_RESOURCE the kubelet cannot grow a mounted file system", i.ID)
	}
	return fmt.Errorf("grow volume: %w", errno)
}

// command runs a program. Its error contains the program's output.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out[:min(len(out), 1024)])
	}
	return nil
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}
