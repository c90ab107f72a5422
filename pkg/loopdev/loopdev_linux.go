// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loopdev attaches files to the kernel's loop devices, through which a file can be used as a
// block device.
//
// The package attaches at most one device to a file: if a file already has a device, Attach returns
// it. The package keeps no state. It finds a device by its backing file, so that it also finds
// devices that another process has attached.
package loopdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// attempts is how many times Attach requests a free device, because another process may take it
// first.
const attempts = 32

const major = 7

var errNoDevice = errors.New("no free loop device")

// Device is a loop device with an open descriptor.
type Device struct {
	// Path is the device's path in /dev.
	Path string
	file *os.File
}

// Close closes the descriptor. A transient device is freed when it has no other user.
func (d *Device) Close() error { return d.file.Close() }

// Attach returns the device of a file. If the file has none, Attach attaches one. A transient
// device is freed when its last user, a mount or an open descriptor, has ended. Other devices stay
// until Detach is called.
func Attach(path string, transient bool) (*Device, error) {
	if d, err := open(path); d != nil || err != nil {
		return d, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop device: %w", err)
	}
	defer func() { _ = f.Close() }() // the device keeps the file open
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop device: %w", err)
	}
	defer func() { _ = control.Close() }()
	config := &unix.LoopConfig{Fd: uint32(f.Fd())}
	// Use direct I/O. Without it, data would be in the page cache twice: once for the device and
	// once for the file.
	config.Info.Flags = unix.LO_FLAGS_DIRECT_IO
	if transient {
		config.Info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], path)
	for range attempts {
		d, err := configure(control, config)
		if !errors.Is(err, unix.EBUSY) {
			return d, err
		}
	}
	return nil, errNoDevice
}

// configure attaches a free device. It returns EBUSY if another process has taken the device first.
func configure(control *os.File, config *unix.LoopConfig) (*Device, error) {
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("free loop device: %w", err)
	}
	path := fmt.Sprintf("/dev/loop%d", n)
	// On some systems the kernel does not create the device file.
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(major, uint32(n)))); err != nil &&
		!errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	dev, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop device: %w", err)
	}
	if err := unix.IoctlLoopConfigure(int(dev.Fd()), config); err != nil {
		_ = dev.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Device{Path: path, file: dev}, nil
}

// open opens the device of a file. It returns nil if the file has no device.
func open(path string) (*Device, error) {
	var want unix.Stat_t
	if err := unix.Stat(path, &want); err != nil {
		return nil, fmt.Errorf("file of loop device %s: %w", path, err)
	}
	return find(func(f identity) bool { return f == identityOf(&want) })
}

// identity identifies a file by its device and inode number, independently of its name.
type identity struct{ device, inode uint64 }

func identityOf(s *unix.Stat_t) identity { return identity{s.Dev, s.Ino} }

// find returns the first device for whose backing file match returns true, or nil.
func find(match func(identity) bool) (*Device, error) {
	found, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("loop devices: %w", err)
	}
	for _, f := range found {
		path := "/dev/" + strings.Split(f, "/")[3]
		dev, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // the device was detached meanwhile
		}
		info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		if err == nil && match(identity{info.Device, info.Inode}) {
			return &Device{Path: path, file: dev}, nil
		}
		_ = dev.Close()
	}
	return nil, nil
}

// DeviceOf returns the path of the device of a file, or "" if the file has no device or does not exist.
func DeviceOf(path string) (string, error) {
	d, err := open(path)
	if d == nil || err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return "", err
	}
	return d.Path, d.Close()
}

// Detach frees the device of a file, if it has one. A device in use is freed when its last user
// closes it.
func Detach(path string) error { return on(path, unix.LOOP_CLR_FD) }

// DetachBelow frees the devices of all files in a directory and its subdirectories. Callers must
// call it before they remove the files, because the device of a removed file cannot be found.
func DetachBelow(dir string) error {
	used := map[identity]bool{}
	_, err := find(func(f identity) bool {
		used[f] = true
		return false
	})
	if err != nil || len(used) == 0 {
		return err
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		var s unix.Stat_t
		if err == nil && e.Type().IsRegular() {
			err = unix.Lstat(path, &s)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the file or directory was removed meanwhile
		}
		if err == nil && used[identityOf(&s)] {
			err = Detach(path)
		}
		if err != nil {
			err = fmt.Errorf("loop devices below %s: %w", dir, err)
		}
		return err
	})
}

// Resize adapts the size of a file's device, if it has one, to the size of the file.
func Resize(path string) error { return on(path, unix.LOOP_SET_CAPACITY) }

func on(path string, request uint) error {
	d, err := open(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && d == nil {
		return nil
	}
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(int(d.file.Fd()), request, 0)
	if err != nil {
		err = fmt.Errorf("%s: %w", d.Path, err)
	}
	return errors.Join(err, d.Close())
}
