// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/nft"
)

// TableName is the name of the table in nftables' bridge family.
const TableName = "keelson-ports"

// priority is the priority of the chains. They run before bridge-netfilter, whose priority is 0.
const priority = -300

// Binding contains the addresses from which the pod at a port may send.
type Binding struct {
	// Port is the name of the bridge's port.
	Port string
	// MAC is the pod's hardware address.
	MAC net.HardwareAddr
	// Addresses are the pod's IP addresses. With an IPv6 address, the link-local address that is
	// derived from MAC is bound too.
	Addresses []netip.Addr
}

// ErrNoTable is returned by Bind if the nftables table does not exist.
var ErrNoTable = errors.New("no table of bound ports")

// Table is the nftables table in the kernel that filters the frames of pods. It must not be used
// concurrently, but several processes may open it at the same time.
type Table struct {
	conn  *nft.Conn
	table *nftables.Table
	sets  [3]*nftables.Set
}

// elements contains the elements of each of the three nftables sets of a Table.
type elements [3][]nftables.SetElement

// Open connects to nftables in the network namespace netNS, or in the process's namespace if netNS
// is 0. It changes nothing.
func Open(netNS int) (*Table, error) {
	conn, err := nft.Open(netNS)
	if err != nil {
		return nil, err
	}
	t := &nftables.Table{Name: TableName, Family: nftables.TableFamilyBridge}
	name, hardware := nftables.TypeIFName, nftables.TypeEtherAddr
	return &Table{conn: conn, table: t, sets: [3]*nftables.Set{
		{Table: t, Name: setPorts, KeyType: name},
		{Table: t, Name: setIPv4, KeyType: nft.Concat(name, hardware, nftables.TypeIPAddr), Concatenation: true},
		{Table: t, Name: setIPv6, KeyType: nft.Concat(name, hardware, nftables.TypeIP6Addr), Concatenation: true},
	}}, nil
}

// Close closes the connection to the kernel. The table stays.
func (t *Table) Close() error { return t.conn.Close() }

// Bind adds a binding, so that the pod can send. It returns ErrNoTable if the table does not exist;
// Restore creates it.
func (t *Table) Bind(b Binding) error {
	err := t.conn.Commit(t.each(elementsOf(b), t.conn.Put))
	if errors.Is(err, unix.ENOENT) {
		return ErrNoTable
	}
	if err != nil {
		return fmt.Errorf("bind port %s: %w", b.Port, err)
	}
	return nil
}

// Unbind removes a binding. It returns no error if elements of the binding, or the table, are
// missing.
func (t *Table) Unbind(b Binding) error {
	e := elementsOf(b)
	// Add the elements first, because deleting a missing element would fail.
	err := t.conn.Commit(errors.Join(t.each(e, t.conn.Put), t.each(e, t.conn.Take)))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unbind port %s: %w", b.Port, err)
	}
	return nil
}

// Restore creates or corrects the nftables table so that it contains exactly the given bindings. It
// reports whether it changed anything.
func (t *Table) Restore(all []Binding) (changed bool, err error) {
	var want elements
	for _, b := range all {
		for i, list := range elementsOf(b) {
			want[i] = append(want[i], list...)
		}
	}
	list := chains()
	marker, err := layout(list)
	if err != nil {
		return false, err
	}
	there, err := t.has(marker)
	if err != nil {
		return false, err
	}
	if !there {
		if err := t.conn.Commit(t.renew(list, marker, want)); err != nil {
			return false, fmt.Errorf("make table of bound ports: %w", err)
		}
		return true, nil
	}
	var missing, extra elements
	for i, s := range t.sets {
		have, err := t.conn.GetSetElements(s)
		if err != nil {
			return false, fmt.Errorf("list set %s: %w", s.Name, err)
		}
		missing[i], extra[i] = without(want[i], have), without(have, want[i])
		changed = changed || len(missing[i])+len(extra[i]) > 0
	}
	if !changed {
		return false, nil
	}
	if err := t.conn.Commit(errors.Join(t.each(extra, t.conn.Take), t.each(missing, t.conn.Put))); err != nil {
		return false, fmt.Errorf("restore bound ports: %w", err)
	}
	return true, nil
}

// Remove removes the nftables table. After that, frames are not filtered.
func (t *Table) Remove() error {
	t.conn.Drop(t.table)
	if err := t.conn.Commit(nil); err != nil {
		return fmt.Errorf("remove table of bound ports: %w", err)
	}
	return nil
}

// has reports whether the nftables table exists and has the layout that marker identifies.
func (t *Table) has(marker string) (bool, error) {
	found, err := t.conn.ListChainsOfTableFamily(t.table.Family)
	if err != nil {
		return false, fmt.Errorf("list chains: %w", err)
	}
	for _, c := range found {
		if c.Table.Name == TableName && c.Name == marker {
			return true, nil
		}
	}
	return false, nil
}

// renew replaces the nftables table by one with the given chains and elements.
func (t *Table) renew(list []chain, marker string, want elements) error {
	t.conn.Renew(t.table)
	var errs []error
	for _, s := range t.sets {
		errs = append(errs, t.conn.AddSet(s, nil))
	}
	for _, c := range append(list, chain{name: marker}) {
		made := &nftables.Chain{Table: t.table, Name: c.name}
		if c.hook != nil {
			made.Type, made.Hooknum, made.Priority = nftables.ChainTypeFilter, c.hook, nftables.ChainPriorityRef(priority)
		}
		t.conn.AddChain(made)
		for _, r := range c.rules {
			t.conn.AddRule(&nftables.Rule{Table: t.table, Chain: made, Exprs: r})
		}
	}
	return errors.Join(append(errs, t.each(want, t.conn.Put))...)
}

// each calls do for each set with its elements in e.
func (t *Table) each(e elements, do func(*nftables.Set, []nftables.SetElement) error) error {
	var errs []error
	for i, s := range t.sets {
		errs = append(errs, do(s, e[i]))
	}
	return errors.Join(errs...)
}

// without returns the elements of list that are not in other.
func without(list, other []nftables.SetElement) []nftables.SetElement {
	known := make(map[string]bool, len(other))
	for _, e := range other {
		known[string(e.Key)] = true
	}
	var out []nftables.SetElement
	for _, e := range list {
		if !known[string(e.Key)] {
			out = append(out, nftables.SetElement{Key: e.Key})
		}
	}
	return out
}

func elementsOf(b Binding) elements {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, b.Port)
	var out elements
	out[0] = []nftables.SetElement{{Key: name}}
	bind := func(set int, a netip.Addr) {
		// Each field of a key fills whole registers of four bytes, so pad the hardware address with
		// two zeros.
		key := append(append(append([]byte{}, name...), b.MAC...), 0, 0)
		out[set] = append(out[set], nftables.SetElement{Key: append(key, a.AsSlice()...)})
	}
	for _, a := range b.Addresses {
		if a.Is4() {
			bind(1, a)
			continue
		}
		if len(out[2]) == 0 {
			bind(2, LinkLocal(b.MAC))
		}
		bind(2, a)
	}
	return out
}

// LinkLocal returns the link-local address that is derived from a hardware address (RFC 4291,
// appendix A).
func LinkLocal(m net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3],
		14: m[4], 15: m[5]})
}
