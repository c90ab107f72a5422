// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"keelson.dev/keelson/pkg/nft"
)

// tableName is the name of the nftables table in each address family.
const tableName = "keelson-policy"

// Names of what every table has: the chain for packets between interfaces (or ports of a bridge),
// the chain for packets to the node, and the set of pairs of equal addresses, by which a pod can
// reach itself. Every table also has the maps of protected addresses (see type gate).
const (
	chainForward = "forward"
	chainInput   = "input"
	setSelf      = "self"
)

// chainPassed returns the name of the chain for packets in direction d that the Admin tier passes
// to later policies.
func chainPassed(d Direction) string { return "after-admin-" + d.String() }

// table is the agent's nftables table of one IP family in the kernel. It must be used by one
// goroutine only.
type table struct {
	nft.Packet
	conn   *nft.Conn
	table  *nftables.Table
	guards gates[*nftables.Set]
	self   *nftables.Set

	// sets and guarded are the sets, and the chain of each address, that the kernel has.
	sets    map[string]*nftables.Set
	guarded gates[map[netip.Addr]string]
	// trash contains the names of sets and chains that are not used any more. The method sweep
	// deletes them later, because kernels before 6.2 notice with a delay that a chain has no
	// references.
	trash struct{ sets, chains map[string]bool }
}

// openTable connects to the kernel. It changes nothing.
func openTable(p nft.Packet, netNS int) (*table, error) {
	conn, err := nft.Open(netNS)
	if err != nil {
		return nil, err
	}
	t := &table{Packet: p, conn: conn, table: &nftables.Table{Name: tableName, Family: p.TableFamily()}}
	for g := range t.guards {
		t.guards[g] = &nftables.Set{Table: t.table, Name: gate(g).String(), KeyType: t.addr(), IsMap: true,
			DataType: nftables.TypeVerdict}
	}
	t.self = &nftables.Set{Table: t.table, Name: setSelf, KeyType: nft.Concat(t.addr(), t.addr()), Concatenation: true}
	t.forget()
	return t, nil
}

func (t *table) forget() {
	t.sets = map[string]*nftables.Set{}
	t.guarded = gates[map[netip.Addr]string]{{}, {}, {}, {}}
	t.trash.sets, t.trash.chains = map[string]bool{}, map[string]bool{}
}

func (t *table) addr() nftables.SetDatatype {
	if t.IPv6 {
		return nftables.TypeIP6Addr
	}
	return nftables.TypeIPAddr
}

// replace replaces the whole table in one transaction. The argument all are the new contents.
func (t *table) replace(all Changes) error {
	t.forget()
	t.conn.Renew(t.table)
	err := t.conn.AddSet(t.self, nil)
	for _, s := range t.guards {
		err = errors.Join(err, t.conn.AddSet(s, nil))
	}
	for _, d := range []Direction{Ingress, Egress} {
		t.conn.AddChain(&nftables.Chain{Table: t.table, Name: chainPassed(d)})
		t.rule(chainPassed(d), []expr.Any{t.end(d), nft.Decide(passed(d).String(), 0)})
	}
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	t.base(chainForward, nftables.ChainHookForward)
	t.rule(chainForward, []expr.Any{t.Source(0), t.Dest(t.Words()), nft.Member(setSelf, 0), accept})
	t.rule(chainForward, []expr.Any{t.end(Egress), nft.Decide(entrance(Egress).String(), 0)})
	t.rule(chainForward, []expr.Any{t.end(Ingress), nft.Decide(entrance(Ingress).String(), 0)})
	t.base(chainInput, nftables.ChainHookInput)
	for _, protocol := range []byte{protocolTCP, protocolUDP} {
		t.rule(chainInput, []expr.Any{
			t.Protocol(0), &expr.Cmp{Op: expr.CmpOpEq, Register: nft.Reg(0), Data: []byte{protocol}},
			t.DestPort(0), &expr.Cmp{Op: expr.CmpOpEq, Register: nft.Reg(0), Data: []byte{0, dnsPort}}, accept,
		})
	}
	t.rule(chainInput, []expr.Any{t.end(Egress), nft.Decide(entrance(Egress).String(), 0)})
	return t.commit(errors.Join(err, t.tell(all)))
}

// end returns an expression that loads the address of the protected pod: the packet's source for
// egress, and its destination for ingress.
func (t *table) end(d Direction) expr.Any {
	if d == Egress {
		return t.Source(0)
	}
	return t.Dest(0)
}

// base creates a base chain. Its first rules accept packets to which policies do not apply: packets
// of existing connections, and neighbour discovery, without which no connection can begin.
func (t *table) base(name string, hook *nftables.ChainHook) {
	t.conn.AddChain(&nftables.Chain{Table: t.table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook,
		Priority: nftables.ChainPriorityFilter})
	const establishedOrRelated = 2 | 4
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	t.rule(name, append(append([]expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: nft.Reg(0)}},
		nft.AnyBit(establishedOrRelated)...), accept))
	if t.IPv6 {
		t.rule(name, append(nft.NeighborDiscovery(), accept))
	}
}

// apply applies changes in one transaction. After an error, the caller must call replace next.
func (t *table) apply(ch Changes) error { return t.commit(t.tell(ch)) }

func (t *table) commit(told error) error {
	if err := t.conn.Commit(told); err != nil {
		return fmt.Errorf("network policies of %v: %w", t.table.Family, err)
	}
	return nil
}

func (t *table) tell(ch Changes) error {
	var errs []error
	for _, d := range ch.Sets {
		errs = append(errs, t.addSet(d))
	}
	for _, c := range ch.Chains {
		t.addChain(c)
	}
	for name, elements := range ch.Members {
		errs = append(errs, t.change(name, elements))
	}
	for g, guards := range ch.Guards {
		errs = append(errs, t.guard(gate(g), guards))
	}
	for _, name := range ch.GoneChains {
		t.trash.chains[name] = true
	}
	for _, name := range ch.GoneSets {
		t.trash.sets[name] = true
	}
	return errors.Join(errs...)
}

// addSet creates a set. If the set still exists because it waits for its deletion, addSet uses it
// again.
func (t *table) addSet(d setDef) error {
	if t.trash.sets[d.name] {
		delete(t.trash.sets, d.name)
		if d.kind.kept() {
			t.conn.FlushSet(t.sets[d.name]) // removes the outdated elements
		}
		return nil
	}
	s := &nftables.Set{Table: t.table, Name: d.name, KeyType: t.addr()}
	var elements []nftables.SetElement
	switch d.kind {
	case portsOf:
		s.KeyType, s.Concatenation = nft.Concat(t.addr(), nftables.TypeInetProto, nftables.TypeInetService), true
	case blocks:
		s.Interval = true
		elements = nft.Elements(d.ranges, t.IPv6)
	case numbered:
		s.KeyType, s.Concatenation, s.Interval = nft.Concat(nftables.TypeInetProto, nftables.TypeInetService), true, true
		for _, r := range d.numbers {
			elements = append(elements, nftables.SetElement{Key: portKey(r.protocol, r.from), KeyEnd: portKey(r.protocol, r.to)})
		}
	}
	t.sets[d.name] = s
	return errors.Join(t.conn.AddSet(s, nil), t.conn.Put(s, elements))
}

// portKey returns a protocol and a port as parts of a key. Each fills a register of four bytes.
func portKey(protocol uint8, port uint16) []byte {
	return []byte{protocol, 0, 0, 0, byte(port >> 8), byte(port), 0, 0}
}

// addChain creates a chain with a rule for each term, and a rule for all other packets. If the
// chain still exists because it waits for its deletion, addChain uses it again: it cannot have
// changed.
func (t *table) addChain(c *chain) {
	if t.trash.chains[c.name] {
		delete(t.trash.chains, c.name)
		return
	}
	t.conn.AddChain(&nftables.Chain{Table: t.table, Name: c.name})
	for _, m := range c.terms {
		t.rule(c.name, t.term(c.direction, m))
	}
	if c.otherwise == deny && c.direction == Egress {
		// A pod can reach its own node unless a term denies it.
		t.rule(c.name, append(nft.IsLocal(true), t.verdict(c.direction, allow)...))
	}
	if c.otherwise != allow {
		t.rule(c.name, t.verdict(c.direction, c.otherwise))
	}
}

func (t *table) term(d Direction, m term) []expr.Any {
	var out []expr.Any
	if m.peers.kind != none {
		out = append(out, t.end(1-d), nft.Member(m.peers.name, 0))
	}
	if m.ports.kind != none {
		out = append(out, t.Protocol(0), t.DestPort(1), nft.Member(m.ports.name, 0))
	}
	if m.named.kind != none {
		w := t.Words()
		out = append(out, t.Dest(0), t.Protocol(w), t.DestPort(w+1), nft.Member(m.named.name, 0))
	}
	return append(out, t.verdict(d, m.verdict)...)
}

func (t *table) verdict(d Direction, v verdict) []expr.Any {
	switch v {
	case deny:
		return []expr.Any{&expr.Counter{}, nft.Drop()}
	case pass:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chainPassed(d)}}
	}
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}
}

func (t *table) rule(chain string, exprs []expr.Any) {
	t.conn.AddRule(&nftables.Rule{Table: t.table, Chain: &nftables.Chain{Table: t.table, Name: chain}, Exprs: exprs})
}

// change adds elements to a set of pods, nodes or named ports, and deletes elements from it.
func (t *table) change(set string, elements map[element]bool) error {
	var add, del []nftables.SetElement
	for e, there := range elements {
		if e.addr.Is6() != t.IPv6 {
			continue
		}
		k := nftables.SetElement{Key: e.addr.AsSlice()}
		if e.protocol != 0 {
			k.Key = append(k.Key, portKey(e.protocol, e.port)...)
		}
		if there {
			add = append(add, k)
		} else {
			del = append(del, k)
		}
	}
	s := t.sets[set]
	return errors.Join(t.conn.Take(s, del), t.conn.Put(s, add))
}

// guard assigns chains to addresses of this node's pods in the gate g (an nftables map in which the
// rules look up addresses).
func (t *table) guard(g gate, guards map[netip.Addr]string) error {
	var errs []error
	for a, chain := range guards {
		have := t.guarded[g][a]
		if a.Is6() != t.IPv6 || have == chain {
			continue
		}
		one := func(e nftables.SetElement) []nftables.SetElement { return []nftables.SetElement{e} }
		was := t.isGuarded(a)
		if have != "" {
			errs = append(errs, t.conn.Take(t.guards[g], one(nftables.SetElement{Key: a.AsSlice()})))
			delete(t.guarded[g], a)
		}
		if chain != "" {
			verdict := &expr.Verdict{Kind: expr.VerdictJump, Chain: chain}
			errs = append(errs, t.conn.Put(t.guards[g], one(nftables.SetElement{Key: a.AsSlice(), VerdictData: verdict})))
			t.guarded[g][a] = chain
		}
		self := one(nftables.SetElement{Key: append(a.AsSlice(), a.AsSlice()...)})
		switch is := t.isGuarded(a); {
		case is && !was:
			errs = append(errs, t.conn.Put(t.self, self))
		case was && !is:
			errs = append(errs, t.conn.Take(t.self, self))
		}
	}
	return errors.Join(errs...)
}

func (t *table) isGuarded(a netip.Addr) bool {
	for _, chains := range t.guarded {
		if chains[a] != "" {
			return true
		}
	}
	return false
}

// sweep deletes the sets and chains in trash.
func (t *table) sweep() error {
	if len(t.trash.chains)+len(t.trash.sets) == 0 {
		return nil
	}
	for name := range t.trash.chains {
		t.conn.DelChain(&nftables.Chain{Table: t.table, Name: name})
	}
	for name := range t.trash.sets {
		t.conn.DelSet(t.sets[name])
		delete(t.sets, name)
	}
	clear(t.trash.chains)
	clear(t.trash.sets)
	return t.commit(nil)
}

// remove deletes the nftables table if it exists.
func (t *table) remove() error {
	t.forget()
	t.conn.Drop(t.table)
	return t.commit(nil)
}

func (t *table) present() (bool, error) { return t.conn.Present(t.table) }

func (t *table) close() error { return t.conn.Close() }
