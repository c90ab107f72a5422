// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// addresses is a directory with a file for each address that is given, named after it, with the
// owner in it; one that is locked while it is read or changed; and one for each range with the
// address that was given last.
type addresses struct{ dir string }

// lineBreak is between the sandbox's ID and the interface's name.
const lineBreak = "\r\n"

// gateway is the first address of a range.
func gateway(subnet netip.Prefix) netip.Addr { return subnet.Addr().Next() }

// last is the last address of a range that can be given: IPv4's very last is that of all.
func last(subnet netip.Prefix) netip.Addr {
	b := subnet.Addr().AsSlice()
	for bit := subnet.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	if a.Is4() {
		return a.Prev()
	}
	return a
}

// lock returns what unlocks.
func (a addresses) lock() (unlock func(), err error) {
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return nil, fmt.Errorf("directory of addresses: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(a.dir, "lock"), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock addresses: %w", err)
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock addresses: %w", err)
	}
	return func() { f.Close() }, nil
}

// give gives an owner an address of each range, or of none. An address that has come back is
// given again as late as can be.
func (a addresses) give(to types.GCAttachment, subnets []netip.Prefix) (given []netip.Prefix, err error) {
	unlock, err := a.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	defer func() {
		if err != nil {
			given, err = nil, errors.Join(err, a.takeBack(given))
		}
	}()
	taken, err := a.taken()
	if err != nil {
		return nil, err
	}
	for i, subnet := range subnets {
		latest := filepath.Join(a.dir, "last_reserved_ip."+strconv.Itoa(i))
		text, err := os.ReadFile(latest)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return given, fmt.Errorf("last address: %w", err)
		}
		after, _ := netip.ParseAddr(strings.TrimSpace(string(text))) // none: from the beginning
		free, ok := next(subnet, after, taken)
		if !ok {
			return given, fmt.Errorf("no IP addresses available in range set: %s-%s", gateway(subnet), last(subnet))
		}
		if err := os.WriteFile(a.file(free), []byte(to.ContainerID+lineBreak+to.IfName), 0o600); err != nil {
			return given, fmt.Errorf("give address: %w", err)
		}
		given = append(given, netip.PrefixFrom(free, subnet.Bits()))
		if err := os.WriteFile(latest, []byte(free.String()), 0o600); err != nil {
			return given, fmt.Errorf("last address: %w", err)
		}
	}
	return given, nil
}

// takeBack takes back what was just given.
func (a addresses) takeBack(given []netip.Prefix) error {
	var errs []error
	for _, p := range given {
		errs = append(errs, os.Remove(a.file(p.Addr())))
	}
	return errors.Join(errs...)
}

// next is the first address of a range after another, in a circle, that is free.
func next(subnet netip.Prefix, after netip.Addr, taken map[netip.Addr]bool) (netip.Addr, bool) {
	first, end := gateway(subnet).Next(), last(subnet)
	if !subnet.Contains(after) || after.Less(first) {
		after = end
	}
	// Of one more than are taken one is free, unless the circle is shorter.
	for a, tries := after, 0; tries <= len(taken); tries++ {
		if a = a.Next(); !a.IsValid() || end.Less(a) {
			a = first
		}
		if !taken[a] {
			return a, true
		}
		if a == after {
			break
		}
	}
	return netip.Addr{}, false
}

func (a addresses) file(addr netip.Addr) string { return filepath.Join(a.dir, addr.String()) }

// taken are the addresses that are given.
func (a addresses) taken() (map[netip.Addr]bool, error) {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := make(map[netip.Addr]bool, len(entries))
	for _, e := range entries {
		if addr, err := netip.ParseAddr(e.Name()); err == nil {
			out[addr] = true
		}
	}
	return out, nil
}

// owner is who an address was given to.
func (a addresses) owner(addr netip.Addr) (types.GCAttachment, error) {
	content, err := os.ReadFile(a.file(addr))
	if err != nil {
		return types.GCAttachment{}, fmt.Errorf("owner of address: %w", err)
	}
	id, ifName, _ := strings.Cut(strings.TrimSpace(string(content)), lineBreak)
	return types.GCAttachment{ContainerID: id, IfName: ifName}, nil
}

// owners returns the addresses in use by their owners.
func (a addresses) owners() (map[types.GCAttachment][]netip.Addr, error) {
	taken, err := a.taken()
	if err != nil {
		return nil, err
	}
	out := map[types.GCAttachment][]netip.Addr{}
	var errs []error
	for addr := range taken {
		owner, err := a.owner(addr)
		if err == nil {
			out[owner] = append(out[owner], addr)
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// unbind revokes an owner's permission to send from addresses.
type unbind func(types.GCAttachment, []netip.Addr) error

// release unbinds and then frees the addresses of all owners for which keeps returns false.
func (a addresses) release(keeps func(types.GCAttachment) bool, unbind unbind) error {
	unlock, err := a.lock()
	if err != nil {
		return err
	}
	defer unlock()
	owners, err := a.owners()
	errs := []error{err}
	for owner, list := range owners {
		if keeps(owner) {
			continue
		}
		if err := unbind(owner, list); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, addr := range list {
			errs = append(errs, os.Remove(a.file(addr)))
		}
	}
	return errors.Join(errs...)
}

// releaseOf frees the addresses of one owner.
func (a addresses) releaseOf(gone types.GCAttachment, unbind unbind) error {
	return a.release(func(owner types.GCAttachment) bool { return owner != gone }, unbind)
}

// releaseBut frees the addresses of all owners except the given ones.
func (a addresses) releaseBut(owners []types.GCAttachment, unbind unbind) error {
	return a.release(func(owner types.GCAttachment) bool { return slices.Contains(owners, owner) }, unbind)
}
