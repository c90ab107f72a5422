// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history keeps what clients of a cluster did and saw while its processes
// were being killed, and judges whether a correct API server could have answered so.
//
// Four kinds of client are judged:
//
//   - [Registers]: keys with one writer and any number of readers. What was
//     acknowledged is there, nothing comes back, nobody sees the past.
//   - [Counters]: numbers that several clients increment, each with the version it
//     has read. No acknowledged increment is lost or counted twice.
//   - [Watches]: every version that was acknowledged while a watch went on was told
//     by it, once, in order, over all its connections.
//   - [Files]: lines appended to a file in a volume. Those acknowledged are there,
//     once, in order.
//
// Versions are the resource versions of one store: a greater one is a later one,
// whatever the key. An operation whose answer was lost may have had its effect at any
// time after its beginning, or not at all; how much later is limited by what it was
// conditional on. Clients therefore update and delete conditionally, as [Op] says.
//
// The checkers are functions of the history alone and hold nothing.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Kind is what an operation does.
type Kind string

// The kinds of operations. Create succeeds only on an absent key, Update only on the
// version in Op.Base, Delete only on the object that the writer saw last.
const (
	Create Kind = "create"
	Update Kind = "update"
	Delete Kind = "delete"
	Read   Kind = "read"
	Append Kind = "append"
)

// Outcome is what a client knows of its operation.
type Outcome string

// The outcomes: it had its effect; it had none and will have none; nobody said.
const (
	Acknowledged Outcome = "acknowledged"
	Refused      Outcome = "refused"
	Unknown      Outcome = "unknown"
)

// Op is one operation of one client on one key.
type Op struct {
	Client string
	Kind   Kind
	Key    string
	// Value is what was written, different for each write of a key; or what was read, empty
	// when the key was absent.
	Value string
	// Base is the version that an update was conditional on.
	Base int64
	// Version is that which the write was given, or the read saw. Deletes have none.
	Version int64
	// Begin and End are times since the beginning of the history.
	Begin, End time.Duration
	Outcome    Outcome
	// Note is the error, for people.
	Note string
}

func (o *Op) String() string {
	s := fmt.Sprintf("%s of %s by %s at %v to %v (%s", o.Kind, o.Key, o.Client, o.Begin.Round(time.Millisecond), o.End.Round(time.Millisecond), o.Outcome)
	if o.Value != "" {
		s += fmt.Sprintf(", value %s", o.Value)
	}
	if o.Version != 0 {
		s += fmt.Sprintf(", version %d", o.Version)
	}
	return s + ")"
}

func (o *Op) write() bool { return o.Kind == Create || o.Kind == Update }

// Violation is an answer that no correct server gives.
type Violation struct {
	// Rule is the promise that was broken.
	Rule string
	Key  string
	// What happened, with the operations' times.
	What string
}

func (v Violation) String() string { return v.Rule + ": " + v.Key + ": " + v.What }

// verdict collects violations.
type verdict []Violation

func (v *verdict) add(rule, key, format string, args ...any) {
	*v = append(*v, Violation{rule, key, fmt.Sprintf(format, args...)})
}

// Log is a history that is being made. Its memory is that of its operations, some 200
// bytes each: clients that pause between operations bound it.
type Log struct {
	mu  sync.Mutex
	ops []Op
}

// Add adds an operation that has ended.
func (l *Log) Add(o Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, o)
}

// Ops is a copy of the history, by beginning.
func (l *Log) Ops() []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	ops := slices.Clone(l.ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.Begin, b.Begin) })
	return ops
}

// byKey divides a history, each part by beginning.
func byKey(ops []Op) (keys []string, parts map[string][]*Op) {
	parts = map[string][]*Op{}
	for i := range ops {
		o := &ops[i]
		if parts[o.Key] == nil {
			keys = append(keys, o.Key)
		}
		parts[o.Key] = append(parts[o.Key], o)
	}
	slices.Sort(keys)
	for _, part := range parts {
		slices.SortStableFunc(part, func(a, b *Op) int { return cmp.Compare(a.Begin, b.Begin) })
	}
	return keys, parts
}
