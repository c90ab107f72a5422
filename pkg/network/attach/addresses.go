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

	"keelson.dev/keelson/pkg/filelock"
)

// addresses is a directory that stores the allocated addresses. It has one file for each address,
// which is named after the address and contains the owner. For each range it has a file with the
// address that was allocated last. It also has a lock file.
type addresses struct{ dir string }

// lineBreak separates the two parts of an address's owner in a file: the sandbox's ID and the
// interface's name.
const lineBreak = "\r\n"

// gateway returns the first address of a range, which belongs to the bridge.
func gateway(subnet netip.Prefix) netip.Addr { return subnet.Addr().Next() }

// last returns the last address of a range that can be allocated. For IPv4 it is the last but one,
// because the last address is the broadcast address.
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

// lock locks the directory against other processes and returns a function that unlocks it.
func (a addresses) lock() (unlock func(), err error) {
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return nil, fmt.Errorf("directory of addresses: %w", err)
	}
	if unlock, err = filelock.Lock(filepath.Join(a.dir, "lock")); err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	return unlock, nil
}

// give allocates an address of each range to an owner. If a range has no free address, it allocates
// none and returns an error. It searches from the address that was allocated last, so that a freed
// address is allocated again as late as possible.
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
		// If no address was allocated yet, the variable after is invalid, and the function next
		// starts with the first address.
		after, _ := netip.ParseAddr(strings.TrimSpace(string(text)))
		free, ok := next(subnet, after, taken)
		if !ok {
			return given, fmt.Errorf("no IP addresses available in range set: %s-%s", gateway(subnet), last(subnet))
		}
		if err := os.WriteFile(a.file(free), []byte(to.ContainerID+lineBreak+to.IfName), 0o600); err != nil {
			return given, fmt.Errorf("allocate address: %w", err)
		}
		given = append(given, netip.PrefixFrom(free, subnet.Bits()))
		if err := os.WriteFile(latest, []byte(free.String()), 0o600); err != nil {
			return given, fmt.Errorf("last address: %w", err)
		}
	}
	return given, nil
}

// takeBack frees addresses that the calling method give has allocated in the same call.
func (a addresses) takeBack(given []netip.Prefix) error {
	var errs []error
	for _, p := range given {
		errs = append(errs, os.Remove(a.file(p.Addr())))
	}
	return errors.Join(errs...)
}

// next returns the first free address of a range that follows the given one. From the end of the
// range it continues at the start.
func next(subnet netip.Prefix, after netip.Addr, taken map[netip.Addr]bool) (netip.Addr, bool) {
	first, end := gateway(subnet).Next(), last(subnet)
	if !subnet.Contains(after) || after.Less(first) {
		after = end
	}
	// It is enough to try one address more than the number of taken ones: unless the whole range is
	// taken, at least one of these addresses is free.
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

// taken returns the set of allocated addresses.
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

// owner returns the owner of an address: an interface of a pod sandbox.
func (a addresses) owner(addr netip.Addr) (types.GCAttachment, error) {
	content, err := os.ReadFile(a.file(addr))
	if err != nil {
		return types.GCAttachment{}, fmt.Errorf("owner of address: %w", err)
	}
	id, ifName, _ := strings.Cut(strings.TrimSpace(string(content)), lineBreak)
	return types.GCAttachment{ContainerID: id, IfName: ifName}, nil
}

// owners returns the allocated addresses of each owner (an interface of a pod sandbox).
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

// unbind revokes the permission of an owner's bridge port to send from the addresses. An owner is
// an interface of a pod sandbox.
type unbind func(types.GCAttachment, []netip.Addr) error

// release calls unbind for the addresses of all owners for which keeps returns false, and then
// frees these addresses.
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

// releaseOf frees the addresses of one owner (an interface of a pod sandbox).
func (a addresses) releaseOf(gone types.GCAttachment, unbind unbind) error {
	return a.release(func(owner types.GCAttachment) bool { return owner != gone }, unbind)
}

// releaseBut frees the addresses of all owners (interfaces of pod sandboxes) except the given ones.
func (a addresses) releaseBut(owners []types.GCAttachment, unbind unbind) error {
	return a.release(func(owner types.GCAttachment) bool { return slices.Contains(owners, owner) }, unbind)
}
