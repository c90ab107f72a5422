// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"keelson.dev/keelson/pkg/nft"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// tableName is the name of the proxy's nftables table in each IP family.
const tableName = "keelson-proxy"

// Names of the sets that are not about services. Package ruleset names the sets of services.
const (
	setClasses   = "classes"       // class → chain; an element is added together with its chain
	setSplits    = "splits"        // class → chain, for Split and SplitDrop, whose chains choose another class
	setFilter    = "filter"        // class → verdict, for the classes without endpoints
	setAffinity  = "affinity"      // client.cluster IP.protocol.port → endpoint; elements have timeouts
	setPods      = "pods"          // ranges of addresses of pods
	setServices  = "service-cidrs" // ranges of cluster IPs
	setNodePorts = "nodeport-ips"  // address ranges on which node ports are served
	setAnnounced = "announced-ips" // addresses of load balancers that this node answers for
)

// Names of the chains that do not belong to a class (a way to choose an endpoint).
const (
	chainServices  = "services"
	chainFirewall  = "firewall"
	chainEndpoints = "endpoints-check"
	chainNodePort  = "nodeports-check"
	chainClusterIP = "cluster-ips-check"
	chainReject    = "reject-all"
	chainSplit     = "split"
	chainSplitPort = "split-nodeport"
)

// maxAffinities is the maximum number of stored clients for session affinity. Further clients get
// endpoints as without session affinity.
const maxAffinities = 1 << 18

// Settings are the settings on which the rules depend.
type Settings struct {
	MasqueradeAll bool
	MasqueradeBit uint
	// Pods says how the rules recognize packets from pods of this cluster.
	Pods Detector
	// NodePortsOn means that only the addresses in Ranges.NodePorts have node ports, and not all
	// local addresses.
	NodePortsOn bool
}

// Detector is a way to recognize packets from pods.
type Detector uint8

// The ways to recognize packets from pods.
const (
	// Unknown means that packets from pods are not recognized.
	Unknown Detector = iota
	// ByRange means that a packet is from a pod if its source address is in Ranges.Pods.
	ByRange
	// ByInterface means that a packet is from a pod if it arrives on the interface with the configured
	// name. ByPrefix means that the interface's name begins with the configured prefix.
	ByInterface
	ByPrefix
)

// chain is a chain of the layout with its rules.
type chain struct {
	name     string
	typ      nftables.ChainType
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
	rules    [][]expr.Any
}

func base(name string, typ nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority,
	rules ...[]expr.Any) chain {
	return chain{name, typ, hook, priority, rules}
}

func plain(name string, rules ...[]expr.Any) chain { return chain{name: name, rules: rules} }

func rule(parts ...any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		switch p := p.(type) {
		case expr.Any:
			out = append(out, p)
		case []expr.Any:
			out = append(out, p...)
		}
	}
	return out
}

// layout contains what the rules of a table depend on: the IP family, the settings, and the name of
// an interface.
type layout struct {
	nft.Packet
	settings Settings
	iface    string
}

// chains returns the chains of the layout. A chain comes before the chains that jump to it.
func (l layout) chains() []chain {
	var (
		filter, nat = nftables.ChainTypeFilter, nftables.ChainTypeNAT
		in, out     = nftables.ChainHookPrerouting, nftables.ChainHookOutput
		// early is the priority of chains that run before the destination is translated
		early = nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest - 10)
		isNew = nft.NewConnection()
	)
	return []chain{
		plain(chainReject, rule(l.Reject())),
		plain(chainFirewall, l.firewall()),
		plain(chainEndpoints, rule(l.frontend(1), l.classify(ruleset.Services, setFilter))),
		plain(chainNodePort, rule(l.onNodePortAddress(), l.nodePort(1), l.classify(ruleset.Services, setFilter))),
		plain(chainClusterIP,
			rule(l.Dest(0), nft.Member(ruleset.ClusterIPs.String(), 0), l.Reject()),
			rule(l.Dest(0), nft.Member(setServices, 0), nft.Drop())),
		plain(chainSplit, l.split(ruleset.Address)...),
		plain(chainSplitPort, l.split(ruleset.NodePort)...),
		plain(chainServices, l.services()...),

		base("filter-prerouting-pre-dnat", filter, in, early, rule(isNew, nft.Jump(chainFirewall))),
		base("filter-output-pre-dnat", filter, out, early, rule(isNew, nft.Jump(chainFirewall))),
		base("filter-input", filter, nftables.ChainHookInput, nftables.ChainPriorityFilter,
			rule(isNew, nft.Jump(chainNodePort)), rule(isNew, nft.Jump(chainEndpoints)),
			// Drop packets to other ports of a load balancer's address, because they are not for
			// processes of the node.
			rule(isNew, l.Dest(0), nft.Member(setAnnounced, 0), nft.Drop())),
		base("filter-forward", filter, nftables.ChainHookForward, nftables.ChainPriorityFilter,
			rule(isNew, nft.Jump(chainEndpoints)), rule(isNew, nft.Jump(chainClusterIP))),
		base("filter-output", filter, out, nftables.ChainPriorityFilter,
			rule(isNew, nft.Jump(chainEndpoints)), rule(isNew, nft.Jump(chainClusterIP))),
		base("nat-prerouting", nat, in, nftables.ChainPriorityNATDest, rule(nft.Jump(chainServices))),
		base("nat-output", nat, out, nftables.ChainPriorityNATDest, rule(nft.Jump(chainServices))),
		base("nat-postrouting", nat, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, l.masquerade()...),
	}
}

// services returns the rules that find the class of a packet to a service (the way to choose an
// endpoint) and jump to the class's chain.
func (l layout) services() [][]expr.Any {
	var rules [][]expr.Any
	toService := rule(l.Dest(0), nft.Member(ruleset.ClusterIPs.String(), 0))
	switch {
	case l.settings.MasqueradeAll:
		rules = append(rules, rule(toService, nft.SetMark(l.bit())))
	case l.settings.Pods != Unknown:
		// A client outside of the cluster may route the service range to this node. The answers to
		// the client must pass through this node, so mark the packet for masquerading.
		rules = append(rules, rule(toService, l.fromPod(false), nft.SetMark(l.bit())))
	}
	for _, verdicts := range []string{setClasses, setSplits} {
		rules = append(rules,
			rule(l.frontend(1), l.classify(ruleset.Services, verdicts)),
			rule(l.onNodePortAddress(), l.nodePort(1), l.classify(ruleset.Services, verdicts)))
	}
	return rules
}

// classify loads the class (the way to choose an endpoint) for the key that starts in register 1,
// and looks up its verdict. The class is loaded from register 0 on, so that its first four bytes,
// which are padding, come before register 1.
func (l layout) classify(s ruleset.Set, verdicts string) []expr.Any {
	return rule(nft.Get(s.String(), 1, 0), nft.Decide(verdicts, 1))
}

// onNodePortAddress returns expressions that match if the packet's destination has node ports.
// Loopback addresses have none. If node ports are not limited to certain addresses, the announced
// addresses of load balancers have none either.
func (l layout) onNodePortAddress() []expr.Any {
	if l.settings.NodePortsOn {
		return rule(nft.IsLocal(true), l.NotLoopback(), l.Dest(0), nft.Member(setNodePorts, 0))
	}
	return rule(nft.IsLocal(true), l.NotLoopback(), l.Dest(0), nft.NotMember(setAnnounced, 0))
}

// firewall returns a rule that drops packets to a frontend in the set Guarded from sources that are
// not in the set Sources.
func (l layout) firewall() []expr.Any {
	w := l.Words()
	return rule(l.frontend(0), nft.Member(ruleset.Guarded.String(), 0),
		l.Source(w+2), nft.NotMember(ruleset.Sources.String(), 0), nft.Drop())
}

// split returns the rules of the external traffic policy Local: which clients use which list of
// endpoints.
func (l layout) split(s ruleset.Source) [][]expr.Any {
	key := l.frontend(1)
	if s == ruleset.NodePort {
		key = l.nodePort(1)
	}
	among := func(of ruleset.List) []expr.Any {
		return rule(key, list(of, l.Words()+3), l.classify(ruleset.Externals, setClasses))
	}
	all := among(ruleset.ClusterList)
	var rules [][]expr.Any
	if l.settings.Pods != Unknown {
		// Pods use all endpoints, as if their packets had left the node to a load balancer and come
		// back to another node.
		rules = append(rules, rule(l.fromPod(true), all))
	}
	return append(rules,
		rule(nft.IsLocal(false), nft.SetMark(l.bit())),
		rule(nft.IsLocal(false), all),
		among(ruleset.LocalList))
}

// frontend loads the destination's address, protocol and port into the registers that begin with r.
func (l layout) frontend(r uint32) []expr.Any {
	w := l.Words()
	return []expr.Any{l.Dest(r), l.Protocol(r + w), l.DestPort(r + w + 1)}
}

// nodePort is like frontend, but loads the unspecified address in the place of the destination's
// address.
func (l layout) nodePort(r uint32) []expr.Any {
	w := l.Words()
	return []expr.Any{
		&expr.Immediate{Register: nft.Reg(r), Data: make([]byte, l.Size())}, l.Protocol(r + w), l.DestPort(r + w + 1),
	}
}

// fromPod returns expressions that match packets from pods, or, if yes is false, all other packets.
func (l layout) fromPod(yes bool) []expr.Any {
	op := expr.CmpOpEq
	if !yes {
		op = expr.CmpOpNeq
	}
	switch l.settings.Pods {
	case ByInterface, ByPrefix:
		name := []byte(l.iface)
		if l.settings.Pods == ByInterface {
			name = append(name, make([]byte, 16-len(name))...)
		}
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: nft.Reg(0)},
			&expr.Cmp{Op: op, Register: nft.Reg(0), Data: name}}
	}
	if !yes {
		return []expr.Any{l.Source(0), nft.NotMember(setPods, 0)}
	}
	return []expr.Any{l.Source(0), nft.Member(setPods, 0)}
}

func (l layout) bit() uint32 { return 1 << l.settings.MasqueradeBit }

// masquerade returns the rules that masquerade connections whose answers must pass through this
// node.
func (l layout) masquerade() [][]expr.Any {
	const dnat = 1 << 5 // IPS_DST_NAT: the destination was translated
	w := l.Words()
	return [][]expr.Any{
		rule(nft.ClearMark(l.bit()), &expr.Masq{FullyRandom: true}),
		// If a pod reaches itself through a service, masquerade too. The pod would otherwise see
		// its own address as the sender, and its answer would not be translated back.
		rule(&expr.Ct{Key: expr.CtKeySTATUS, Register: nft.Reg(0)}, nft.AnyBit(dnat),
			l.Source(0), l.Dest(w), nft.Member(ruleset.Hairpins.String(), 0), &expr.Masq{FullyRandom: true}),
	}
}

// sets returns the nftables sets and maps of the layout.
func (l layout) sets(t *nftables.Table) []*nftables.Set {
	addr := nftables.TypeIPAddr
	if l.IPv6 {
		addr = nftables.TypeIP6Addr
	}
	proto, port, number := nftables.TypeInetProto, nftables.TypeInetService, nftables.TypeMark
	class, padded := nft.Concat(number, number), nft.Concat(number, number, number)
	frontend, endpoint := nft.Concat(addr, proto, port), nft.Concat(addr, port)
	named := func(s ruleset.Set, key nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: t, Name: s.String(), KeyType: key, Concatenation: key.Bytes > addr.Bytes}
	}
	to := func(s *nftables.Set, data nftables.SetDatatype) *nftables.Set {
		s.IsMap, s.DataType = true, data
		return s
	}
	ranges := func(name string) *nftables.Set {
		return &nftables.Set{Table: t, Name: name, KeyType: addr, Interval: true}
	}
	sources := named(ruleset.Sources, nft.Concat(addr, proto, port, addr))
	sources.Interval = true
	verdicts := func(name string) *nftables.Set {
		return &nftables.Set{Table: t, Name: name, KeyType: class, Concatenation: true, IsMap: true,
			DataType: nftables.TypeVerdict}
	}
	return []*nftables.Set{
		named(ruleset.ClusterIPs, addr), to(named(ruleset.Services, frontend), padded),
		to(named(ruleset.Externals, nft.Concat(addr, proto, port, number)), padded),
		to(named(ruleset.Frontends, frontend), nft.Concat(number, addr, proto, port)),
		to(named(ruleset.EndpointSlots, nft.Concat(addr, proto, port, number)), endpoint),
		to(named(ruleset.StickyEndpoints, nft.Concat(addr, proto, port, number)), nft.Concat(port, addr, port)),
		named(ruleset.StickyCluster, nft.Concat(addr, proto, port, addr, port)),
		named(ruleset.StickyLocal, nft.Concat(addr, proto, port, addr, port)),
		named(ruleset.Hairpins, nft.Concat(addr, addr)), named(ruleset.Guarded, frontend), sources,
		verdicts(setClasses), verdicts(setSplits), verdicts(setFilter), ranges(setPods), ranges(setServices),
		ranges(setNodePorts), ranges(setAnnounced),
		{
			Table: t, Name: setAffinity, KeyType: nft.Concat(addr, addr, proto, port), Concatenation: true,
			IsMap: true, DataType: nft.Concat(port, addr, port), HasTimeout: true, Timeout: 3 * time.Hour,
			Dynamic: true, Size: maxAffinities,
		},
	}
}

// filterVerdicts returns the elements of the map setFilter.
func filterVerdicts() []nftables.SetElement {
	verdict := func(c ruleset.Class, kind expr.VerdictKind, chain string) nftables.SetElement {
		return nftables.SetElement{Key: []byte(c.Key()), VerdictData: &expr.Verdict{Kind: kind, Chain: chain}}
	}
	return []nftables.SetElement{
		verdict(ruleset.Class{Action: ruleset.Reject}, expr.VerdictGoto, chainReject),
		verdict(ruleset.Class{Action: ruleset.Drop}, expr.VerdictDrop, ""),
		verdict(ruleset.Class{Action: ruleset.SplitDrop, Source: ruleset.Address}, expr.VerdictDrop, ""),
		verdict(ruleset.Class{Action: ruleset.SplitDrop, Source: ruleset.NodePort}, expr.VerdictDrop, ""),
	}
}

// splitVerdicts returns the elements of the map setSplits.
func splitVerdicts() []nftables.SetElement {
	var out []nftables.SetElement
	for _, a := range []ruleset.Action{ruleset.Split, ruleset.SplitDrop} {
		for source, chain := range map[ruleset.Source]string{ruleset.Address: chainSplit, ruleset.NodePort: chainSplitPort} {
			key := ruleset.Class{Action: a, Source: source}.Key()
			out = append(out, nftables.SetElement{Key: []byte(key),
				VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}})
		}
	}
	slices.SortFunc(out, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	return out
}

// marker returns the name of the chain that identifies the layout of a table. It changes with the
// settings, and when an older or newer version of this code writes other rules.
func (l layout) marker() string {
	h := sha256.New()
	for _, c := range l.chains() {
		fmt.Fprintln(h, c.name, c.typ, c.hook != nil)
		for _, r := range c.rules {
			writeRule(h, l.Packet, r)
		}
	}
	for _, s := range l.sets(nil) {
		fmt.Fprintf(h, "%+v\n", *s)
	}
	for _, c := range sampleClasses() {
		for _, r := range l.classRules(c) {
			writeRule(h, l.Packet, r)
		}
	}
	return "layout-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// list returns an expression that loads the number of a list of endpoints into register r. The
// number is a part of the keys of maps.
func list(l ruleset.List, r uint32) expr.Any {
	return &expr.Immediate{Register: nft.Reg(r), Data: binary.NativeEndian.AppendUint32(nil, uint32(l))}
}
