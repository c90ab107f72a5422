// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"strings"
)

// Direction is a direction of packets, seen from a machine.
type Direction int

// The directions in which a machine's link can be cut.
const (
	In   Direction = 1 << iota // packets to the machine
	Out                        // packets from the machine
	Both = In | Out
)

// link is the name of the desk's end of the machine's network link.
func (m *Machine) link() string { return fmt.Sprintf("machine%d", m.number) }

// connect makes the machine's network namespace, and the link between it and the bridge.
func (m *Machine) connect(ctx context.Context) error {
	script := strings.NewReplacer("NAME", m.name, "LINK", m.link(), "ADDRESS4", m.Address().String(),
		"ADDRESS6", m.Address6().String(), "MAC", fmt.Sprintf("02:00:0a:3c:00:%02x", m.number)).Replace(`
ip netns add NAME
ip link add LINK type veth peer name eth0 address MAC netns NAME
ip link set LINK master machines up
ip netns exec NAME sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0 net.ipv6.conf.eth0.accept_ra=0
ip -n NAME link set lo up
ip -n NAME address add ADDRESS4/24 dev eth0
ip -n NAME address add ADDRESS6/64 dev eth0 nodad
ip -n NAME link set eth0 up
ip -n NAME route add default via 10.60.0.1
ip -n NAME route add default via fd60::1`)
	_, err := m.lab.Run(ctx, "sh", "-ec", script)
	return err
}

// disconnect removes the machine's network namespace and link.
func (m *Machine) disconnect() error {
	_, err := m.lab.Run(context.Background(), "sh", "-ec",
		fmt.Sprintf("ip link del %s; ip netns del %s", m.link(), m.name))
	return err
}

// Cut drops all packets of the machine in a direction, and no others, until Heal is called or the
// direction is changed by another call. It does so as well while the machine is off and boots again.
func (m *Machine) Cut(d Direction) error {
	rules := m.uncut()
	if d&Out != 0 {
		rules += m.element("add", "from")
	}
	if d&In != 0 {
		rules += m.element("add", "to")
	}
	return m.apply(rules)
}

// Heal ends what Cut began.
func (m *Machine) Heal() error { return m.apply(m.uncut()) }

// uncut returns commands that remove the machine's link from the sets of links. An element must exist
// to be removed.
func (m *Machine) uncut() string {
	return m.element("add", "from") + m.element("delete", "from") + m.element("add", "to") + m.element("delete", "to")
}

func (m *Machine) element(verb, set string) string {
	return fmt.Sprintf("%s element bridge cut %s { %q }\n", verb, set, m.link())
}

// Part drops all packets between the machines of two groups, and no others, until it is called again. Without
// machines, it drops none. It has nothing to do with Cut.
func (l *Lab) Part(left, right []*Machine) error {
	rules := "flush set bridge cut between\n"
	for _, a := range left {
		for _, b := range right {
			rules += fmt.Sprintf("add element bridge cut between { %[1]q . %[2]q, %[2]q . %[1]q }\n", a.link(), b.link())
		}
	}
	return l.filter(rules)
}

func (m *Machine) apply(rules string) error { return m.lab.filter(rules) }

// filter changes the desk's packet filter in one transaction.
func (l *Lab) filter(rules string) error {
	cmd := l.command(context.Background(), desk, l.atDesk("nft", "-f", "-")...)
	cmd.Stdin = strings.NewReader(rules)
	_, err := output(cmd, []string{"nft"})
	return err
}
