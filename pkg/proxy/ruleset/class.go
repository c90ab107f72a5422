// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import "encoding/binary"

// Action is what the rules do with a packet whose service has a class (a way to choose an
// endpoint).
type Action uint8

// The actions of classes (ways to choose an endpoint).
const (
	// Pick sends the connection to one of the class's N endpoints.
	Pick Action = iota + 1
	// Reject sends an error to the client, because the service has no endpoint.
	Reject
	// Drop drops the packet. It is the action for the traffic policy Local if only other nodes have
	// endpoints; the client should connect to one of those nodes.
	Drop
	// Split is the action for the external traffic policy Local: pods and the node itself use all
	// endpoints, other clients only those on this node.
	Split
	// SplitDrop is like Split, for a service without endpoints on this node.
	SplitDrop
)

// Source says how the chain of a class finds the cluster IP of a packet's service. The cluster IP
// is a part of the key under which the endpoints map has an endpoint.
type Source uint8

// The ways in which a chain finds the cluster IP.
const (
	// Direct means that the packet's destination is the cluster IP.
	Direct Source = iota
	// Address means that the packet's destination is another address of the service. The chain
	// looks up this address, with the protocol and port, in the map Frontends, which returns the
	// cluster IP.
	Address
	// NodePort means that the packet's destination is a node port. The chain looks up only its
	// protocol and port in the map Frontends, which returns the cluster IP.
	NodePort
)

// Class is a way to choose an endpoint, for example: at random, one of three endpoints, without
// session affinity. All services whose endpoints are chosen in the same way share a class. In a
// class with an action other than Pick, only Action and Source are set.
type Class struct {
	Action     Action
	Source     Source
	List       List
	Masquerade bool
	Sticky     uint32 // timeout of session affinity in seconds; 0 means no affinity
	N          uint32 // number of endpoints to choose from
}

const stickyShift = 8

// Key returns the class as a key in the kernel's map of classes.
func (c Class) Key() string {
	kind := uint32(c.Action) | uint32(c.Source)<<3 | uint32(c.List)<<5 | c.Sticky<<stickyShift
	if c.Masquerade {
		kind |= 1 << 6
	}
	return mark(kind) + mark(c.N)
}

// Value returns the class as a value in the maps Services and Externals. Values begin with four
// bytes of padding.
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
