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
	// Reject tells the sender that there is nobody.
	Reject
	// Drop is for a policy Local without local endpoints: another node
	// has some, the sender is to try that.
	Drop
	// Split is the external policy Local: pods and the node itself choose among
	// all endpoints, others among the local ones.
	Split
	// SplitDrop is Split without local endpoints.
	SplitDrop
)

// Source is where a chain finds the cluster IP that keys the endpoints.
type Source uint8

// The sources.
const (
	// Direct: the packet's destination is it.
	Direct Source = iota
	// Address: the frontends map tells, by the packet's destination.
	Address
	// NodePort: the frontends map tells, by the port only.
	NodePort
)

// Class is a way to choose an endpoint, shared by all services that choose
// alike. Classes other than Pick have the action and the source alone.
type Class struct {
	Action     Action
	Source     Source
	List       List
	Masquerade bool
	Sticky     uint32 // seconds of session affinity; 0: none
	N          uint32 // endpoints to choose from
}

const stickyShift = 8

// Key is the class's bytes, as keys of the kernel's map of classes.
func (c Class) Key() string {
	kind := uint32(c.Action) | uint32(c.Source)<<3 | uint32(c.List)<<5 | c.Sticky<<stickyShift
	if c.Masquerade {
		kind |= 1 << 6
	}
	return mark(kind) + mark(c.N)
}

// Value is the class as a value of Services and Externals, after a word of padding.
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
