// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What linux/userfaultfd.h has of it.
const (
	uffdAPI          = 0xaa
	uffdUserModeOnly = 1
	uffdWriteProtect = 1 << 1  // mode of a registration
	uffdAsync        = 1 << 15 // feature: the kernel answers faults itself, and any mapping will do
	uffdioAPI        = 0xc018aa3f
	uffdioRegister   = 0xc020aa00
)

// uffdioAPIArgs and uffdioRegisterArgs are the arguments of those calls.
type (
	uffdioAPIArgs      struct{ api, features, ioctls uint64 }
	uffdioRegisterArgs struct{ start, length, mode, ioctls uint64 }
)

// faultSingly has the kernel map the pages of ranges one by one, where they are needed, for as
// long as the process lives. It would map the fifteen around each as well: of a program that is large and
// does little, most of what is resident would then be what nobody asked for.
//
// There is no call for just this. What the kernel maps singly are ranges in which it looks out for
// writes on behalf of userfaultfd; here none come, and it is told to answer them by itself,
// which Linux can since 6.7. Where the page cache has two megabytes of the program in one
// piece it would even so map them at once, if it were not told that none are wanted.
func faultSingly(ranges []addresses) error {
	for _, r := range ranges {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, r.from, r.to-r.from, unix.MADV_NOHUGEPAGE); errno != 0 && errno != unix.EINVAL {
			return fmt.Errorf("refuse huge pages: %w", errno) // EINVAL: the kernel has none
		}
	}
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|uffdUserModeOnly, 0, 0)
	if errno != 0 {
		return fmt.Errorf("userfaultfd: %w", errno)
	}
	err := register(fd, ranges)
	if err != nil {
		_ = unix.Close(int(fd))
	}
	return err // the descriptor stays open, that it holds
}

func register(fd uintptr, ranges []addresses) error {
	api := uffdioAPIArgs{api: uffdAPI, features: uffdAsync}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioAPI, uintptr(unsafe.Pointer(&api))); errno != 0 {
		return fmt.Errorf("features of userfaultfd: %w", errno)
	}
	for _, r := range ranges {
		args := uffdioRegisterArgs{start: uint64(r.from), length: uint64(r.to - r.from), mode: uffdWriteProtect}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioRegister, uintptr(unsafe.Pointer(&args))); errno != 0 {
			return fmt.Errorf("registration with userfaultfd: %w", errno)
		}
	}
	return nil
}
