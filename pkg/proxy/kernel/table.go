// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"keelson.dev/keelson/pkg/nft"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// Ranges are the elements of the nftables sets of address ranges.
type Ranges struct {
	Pods, Services, NodePorts, Announced []netip.Prefix
}

// Config describes a Table.
type Config struct {
	Family   ruleset.Family
	Settings Settings
	// Interface is the interface's name for the detector ByInterface, or the prefix of its name for
	// ByPrefix.
	Interface string
	// NetNS is the file descriptor of a network namespace. 0 means the namespace of the process.
	NetNS int
}

// Table is the proxy's nftables table of one IP family in the kernel.
type Table struct {
	layout
	conn   *nft.Conn
	table  *nftables.Table
	sets   map[string]*nftables.Set
	order  []*nftables.Set
	chains map[ruleset.Class]bool
}

// Open connects to the kernel. It changes nothing in the kernel.
func Open(c Config) (*Table, error) {
	if c.Settings.Pods >= ByInterface && (c.Interface == "" || len(c.Interface) > 15) {
		return nil, fmt.Errorf("interface name %q: must have 1 to 15 bytes", c.Interface)
	}
	conn, err := nft.Open(c.NetNS)
	if err != nil {
		return nil, err
	}
	t := &Table{
		layout: layout{Packet: nft.Packet{IPv6: c.Family == ruleset.IPv6}, settings: c.Settings, iface: c.Interface},
		conn:   conn, sets: map[string]*nftables.Set{}, chains: map[ruleset.Class]bool{},
	}
	t.table = &nftables.Table{Name: tableName, Family: t.TableFamily()}
	t.order = t.layout.sets(t.table)
	for _, s := range t.order {
		t.sets[s.Name] = s
	}
	return t, nil
}

// Close closes the connection to the kernel. The table stays.
func (t *Table) Close() error { return t.conn.Close() }

// Read returns the elements in the kernel, and reports whether the nftables table has the expected
// layout. If it has another layout, because an older or newer version of the proxy created it, Read
// returns only the frontends. Then the next change must be a Replace.
func (t *Table) Read() (*ruleset.Contents, bool, error) {
	chains, err := t.conn.ListChainsOfTableFamily(t.TableFamily())
	if err != nil {
		return nil, false, fmt.Errorf("list chains: %w", err)
	}
	clear(t.chains)
	found, marker := map[string]bool{}, t.marker()
	for _, c := range chains {
		if c.Table.Name == tableName {
			found[c.Name] = true
		}
	}
	out := ruleset.NewContents()
	if !found[marker] {
		if len(found) > 0 {
			// Ignore an error: a set that an older or newer version of the proxy made may have
			// another form.
			_ = t.readSet(ruleset.Services, out[ruleset.Services])
		}
		return out, false, nil
	}
	for s := range ruleset.NumSets {
		if err := t.readSet(s, out[s]); err != nil {
			return nil, false, err
		}
	}
	return out, true, t.readClasses(found)
}

func (t *Table) readSet(s ruleset.Set, into map[string]string) error {
	elements, err := t.conn.GetSetElements(t.sets[s.String()])
	if err != nil {
		return fmt.Errorf("list set %s: %w", s, err)
	}
	for _, e := range elements {
		into[string(e.Key)+string(e.KeyEnd)] = string(e.Val)
	}
	return nil
}

// readClasses records the classes (ways to choose an endpoint) that have both a chain and an
// element of the map that maps classes to chains.
func (t *Table) readClasses(chains map[string]bool) error {
	elements, err := t.conn.GetSetElements(t.sets[setClasses])
	if err != nil {
		return fmt.Errorf("list set %s: %w", setClasses, err)
	}
	for _, e := range elements {
		if c, ok := ruleset.ParseClass(string(e.Key)); ok && c.Action == ruleset.Pick && chains[className(c)] {
			t.chains[c] = true
		}
	}
	return nil
}

// Apply applies changes in one transaction. If r is not nil, Apply also replaces the contents of
// the sets of ranges.
func (t *Table) Apply(ch ruleset.Changes, r *Ranges) error {
	added := t.addClasses(ch.Add)
	err := errors.Join(t.elements(ch.Delete, t.conn.Take), t.elements(ch.Add, t.conn.Put))
	if r != nil {
		err = errors.Join(err, t.putRanges(r, true))
	}
	if err := t.conn.Commit(err); err != nil {
		for _, c := range added {
			delete(t.chains, c)
		}
		return fmt.Errorf("apply %d changes: %w", ch.Len(), err)
	}
	return nil
}

// Replace replaces the whole table in one transaction. The new table has the given elements and
// ranges.
func (t *Table) Replace(all []ruleset.Element, r *Ranges) error {
	clear(t.chains)
	t.conn.Renew(t.table)
	var errs []error
	for _, s := range t.order {
		errs = append(errs, t.conn.AddSet(s, nil))
	}
	chains := t.layout.chains()
	for _, c := range chains {
		t.addChain(c)
	}
	t.addChain(plain(t.marker()))
	for _, c := range chains {
		t.addRules(c.name, c.rules)
	}
	errs = append(errs, t.conn.SetAddElements(t.sets[setFilter], filterVerdicts()),
		t.conn.SetAddElements(t.sets[setSplits], splitVerdicts()))
	t.addClasses(all)
	errs = append(errs, t.elements(all, t.conn.Put), t.putRanges(r, false))
	if err := t.conn.Commit(errors.Join(errs...)); err != nil {
		clear(t.chains)
		return fmt.Errorf("replace table: %w", err)
	}
	return nil
}

// Remove deletes the nftables table.
func (t *Table) Remove() error {
	t.conn.Drop(t.table)
	if err := t.conn.Commit(nil); err != nil {
		return fmt.Errorf("remove table: %w", err)
	}
	return nil
}

// Present reports whether the nftables table exists in the kernel. It is missing after another
// program has flushed the ruleset.
func (t *Table) Present() (bool, error) {
	return t.conn.Present(t.table)
}

// Prune deletes the chains of the classes (ways to choose an endpoint) for which used returns
// false. It returns how many chains it deleted. A map of the table has one element for each class,
// which refers to the class's chain. Prune deletes these elements first, in a transaction of their
// own, because kernels before 6.2 notice with a delay that no element refers to a chain any more.
func (t *Table) Prune(used func(ruleset.Class) bool) (int, error) {
	var unused []ruleset.Class
	var elements []nftables.SetElement
	for c := range t.chains {
		if !used(c) {
			unused = append(unused, c)
			elements = append(elements, classElement(c))
		}
	}
	if len(unused) == 0 {
		return 0, nil
	}
	if err := t.conn.Commit(t.conn.Take(t.sets[setClasses], elements)); err != nil {
		return 0, fmt.Errorf("prune classes: %w", err)
	}
	for _, c := range unused {
		delete(t.chains, c)
		t.conn.DelChain(&nftables.Chain{Table: t.table, Name: className(c)})
	}
	if err := t.conn.Commit(nil); err != nil {
		return len(unused), fmt.Errorf("prune chains: %w", err)
	}
	return len(unused), nil
}

func (t *Table) addChain(c chain) {
	t.conn.AddChain(&nftables.Chain{Table: t.table, Name: c.name, Type: c.typ, Hooknum: c.hook, Priority: c.priority})
}

func (t *Table) addRules(chain string, rules [][]expr.Any) {
	for _, r := range rules {
		t.conn.AddRule(&nftables.Rule{Table: t.table, Chain: &nftables.Chain{Table: t.table, Name: chain}, Exprs: r})
	}
}

// addClasses creates the missing chains for the classes (ways to choose an endpoint) that the
// elements use. It returns these classes.
func (t *Table) addClasses(elements []ruleset.Element) []ruleset.Class {
	var added []ruleset.Class
	var entries []nftables.SetElement
	for _, e := range elements {
		if e.Set != ruleset.Services && e.Set != ruleset.Externals {
			continue
		}
		c, ok := ruleset.ParseValue(e.Value)
		if !ok || c.Action != ruleset.Pick || t.chains[c] {
			continue
		}
		t.chains[c] = true
		added = append(added, c)
		// The chain may exist already, if Prune failed to delete it.
		t.addChain(plain(className(c)))
		t.conn.FlushChain(&nftables.Chain{Table: t.table, Name: className(c)})
		t.addRules(className(c), t.classRules(c))
		entries = append(entries, classElement(c))
	}
	// Put returns no error here, because all keys have eight bytes.
	_ = t.conn.Put(t.sets[setClasses], entries)
	return added
}

func classElement(c ruleset.Class) nftables.SetElement {
	return nftables.SetElement{Key: []byte(c.Key()),
		VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: className(c)}}
}

type setFunc = func(*nftables.Set, []nftables.SetElement) error

// elements adds elements to their nftables sets or deletes them. do is the function that does this.
func (t *Table) elements(list []ruleset.Element, do setFunc) error {
	var of [ruleset.NumSets][]nftables.SetElement
	for _, e := range list {
		of[e.Set] = append(of[e.Set], element(e))
	}
	var errs []error
	for s := range ruleset.NumSets {
		errs = append(errs, do(t.sets[s.String()], of[s]))
	}
	return errors.Join(errs...)
}

func element(e ruleset.Element) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.Key), Val: []byte(e.Value)}
	if e.Set == ruleset.Sources {
		half := len(e.Key) / 2
		out.Key, out.KeyEnd = []byte(e.Key[:half]), []byte(e.Key[half:])
	}
	return out
}

// putRanges writes the contents of the sets of ranges. If flush is true, it removes the old
// contents first.
func (t *Table) putRanges(r *Ranges, flush bool) error {
	var errs []error
	for name, list := range map[string][]netip.Prefix{setPods: r.Pods, setServices: r.Services,
		setNodePorts: r.NodePorts, setAnnounced: r.Announced} {
		if flush {
			t.conn.FlushSet(t.sets[name])
		}
		errs = append(errs, t.conn.Put(t.sets[name], nft.Elements(nft.Ranges(list), t.IPv6)))
	}
	return errors.Join(errs...)
}
