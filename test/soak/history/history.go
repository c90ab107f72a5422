// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history records what clients of a cluster did and saw while its processes were being
// killed, and checks whether a correct API server could have given these answers.
//
// It checks four kinds of client:
//
//   - [Registers]: keys with one writer and any number of readers. No acknowledged write is lost,
//     no deleted value returns, and no read returns an older value than an earlier read returned.
//   - [Counters]: numbers that several clients increment, each conditional on the version it has
//     read. No acknowledged increment is lost or counted twice.
//   - [Watches]: a watch reports every version that was acknowledged while it was open, once and in
//     order, over all its connections.
//   - [Files]: lines appended to a file in a volume. Every acknowledged line is there, once, in
//     order.
//
// Versions are the resource versions of one store: a greater version is a later one, whatever the
// key. An operation whose answer was lost may have taken effect at any time after its beginning, or
// not at all. It cannot take effect when its condition no longer holds. Therefore clients update
// and delete conditionally, as [Op] describes.
//
// The checkers are pure functions of the history.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Kind is the kind of an operation.
type Kind string

// The kinds of operations. Create succeeds only if the key is absent, Update only on the version in
// Op.Base, Delete only on the object that the writer saw last.
const (
	Create Kind = "create"
	Update Kind = "update"
	Delete Kind = "delete"
	Read   Kind = "read"
	Append Kind = "append"
)

// Outcome is what a client knows about the effect of its operation.
type Outcome string

// The outcomes: the operation took effect; it did not take effect and never will; or this is
// unknown.
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
	// Value is the value written, which is different for each write of a key, or the value that was
	// read. It is empty if the key was absent.
	Value string
	// Base is the version that an update was conditional on.
	Base int64
	// Version is the version that a write got or that a read returned. Deletes have none.
	Version int64
	// Begin and End are times since the beginning of the history.
	Begin, End time.Duration
	Outcome    Outcome
	// Note is the error text, for reports.
	Note string
}

func (o *Op) String() string {
	s := fmt.Sprintf("%s of %s by %s at %v to %v (%s", o.Kind, o.Key, o.Client, o.Begin.Round(time.Millisecond),
		o.End.Round(time.Millisecond), o.Outcome)
	if o.Value != "" {
		s += fmt.Sprintf(", value %s", o.Value)
	}
	if o.Version != 0 {
		s += fmt.Sprintf(", version %d", o.Version)
	}
	return s + ")"
}

func (o *Op) write() bool { return o.Kind == Create || o.Kind == Update }

// Violation is an answer that a correct server never gives.
type Violation struct {
	// Rule is the guarantee that was broken.
	Rule string
	Key  string
	// What describes what happened, with the times of the operations.
	What string
}

func (v Violation) String() string { return v.Rule + ": " + v.Key + ": " + v.What }

// verdict collects violations.
type verdict []Violation

func (v *verdict) addf(rule, key, format string, args ...any) {
	*v = append(*v, Violation{rule, key, fmt.Sprintf(format, args...)})
}

// Log records a history. It needs some 200 bytes for each operation; its size is limited by the
// clients' pauses between operations.
type Log struct {
	mu  sync.Mutex
	ops []Op
}

// Add records a finished operation.
func (l *Log) Add(o Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, o)
}

// Ops returns a copy of the history, sorted by beginning.
func (l *Log) Ops() []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	ops := slices.Clone(l.ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.Begin, b.Begin) })
	return ops
}

// byKey splits a history by key, each part sorted by beginning.
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
