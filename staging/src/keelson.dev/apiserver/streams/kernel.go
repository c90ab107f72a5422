// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of the kernel below are made for each event of each watch, of sockets that never
// wait. So Go's scheduler is not told of them: what it does for a thread that may be away for long takes a
// twelfth of what sending an event takes.

// send writes b, which is not empty, as far as the kernel takes it at once.
func send(fd uintptr, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// setLowWater sets how many bytes have to lie in a socket until who reads is woken.
func setLowWater(fd uintptr, bytes int32) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, uintptr(unsafe.Pointer(&bytes)), unsafe.Sizeof(bytes), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// unreadBytes returns how many bytes lie in a socket.
func unreadBytes(fd uintptr) (int, error) {
	var bytes int32
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, fd, unix.TIOCINQ, uintptr(unsafe.Pointer(&bytes)))
	if errno != 0 {
		return 0, errno
	}
	return int(bytes), nil
}
