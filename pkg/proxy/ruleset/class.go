// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import "encoding/binary"

// Action is what a class does with a packet.
type Action uint8

// The actions.
const (
	// Pick sends the connection to one of the class's N endpoints.
	Pick Action = iota + 1
	// Reject answers the sender that the service has no endpoint.
	Reject
	// Drop is for a policy Local without local endpoints. Another node has endpoints, and the
	// sender should send to that node.
	Drop
	// Split is the external policy Local: pods and the node itself use all endpoints, other
	// clients only the local ones.
	Split
	// SplitDrop is like Split, for a service without local endpoints.
	SplitDrop
)

// Source is where a chain finds the cluster IP, which is a part of the keys of endpoints.
type Source uint8

// The sources.
const (
	// Direct means that the packet's destination is the cluster IP.
	Direct Source = iota
	// Address means that the frontends map is searched for the packet's destination address and
	// port.
	Address
	// NodePort means that the frontends map is searched for the port only.
	NodePort
)

// Class is a way to choose an endpoint. All services that choose in the same way share a class.
// Classes with an action other than Pick have only the action and the source.
type Class struct {
	Action     Action
	Source     Source
	List       List
	Masquerade bool
	Sticky     uint32 // timeout of session affinity in seconds; 0 means no affinity
	N          uint32 // number of endpoints to choose from
}

const stickyShift = 8

// Key returns the class as a key of the kernel's map of classes.
func (c Class) Key() string {
	kind := uint32(c.Action) | uint32(c.Source)<<3 | uint32(c.List)<<5 | c.Sticky<<stickyShift
	if c.Masquerade {
		kind |= 1 << 6
	}
	return mark(kind) + mark(c.N)
}

// Value returns the class as a value of Services and Externals, after a word of padding.
func (c Class) Value() string { return mark(0) + c.Key() }

// ParseValue is the inverse of Value.
func ParseValue(v string) (Class, bool) {
	if len(v) != 12 {
		return Class{}, false
	}
	return ParseClass(v[4:])
}

// ParseClass is the inverse of Key.
func ParseClass(key string) (Class, bool) {
	if len(key) != 8 {
		return Class{}, false
	}
	kind := binary.NativeEndian.Uint32([]byte(key))
	c := Class{
		Action: Action(kind & 7), Source: Source(kind >> 3 & 3), List: List(kind >> 5 & 1), Masquerade: kind>>6&1 == 1,
		Sticky: kind >> stickyShift, N: binary.NativeEndian.Uint32([]byte(key[4:])),
	}
	return c, c.Key() == key
}
