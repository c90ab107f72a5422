// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history records the requests and responses of a cluster's clients while the cluster's
// processes are being killed. It checks whether a correct API server could have given these
// responses.
//
// It checks four kinds of clients:
//
//   - [Registers]: keys with one writer and any number of readers. No acknowledged write may be lost,
//     no deleted value may return, and no read may return an older value than an earlier read.
//   - [Counters]: numbers that several clients increment, on the condition that the number has not
//     changed since the client read it. No acknowledged increment may be lost or counted twice.
//   - [Watches]: a watch must report every acknowledged change while it is open, exactly once and in
//     order, over all its connections.
//   - [Files]: lines that are appended to a file in a volume. Every acknowledged line must be there,
//     exactly once and in order.
//
// Versions are the resource versions of one store: a higher version is later, also for another key.
// If the response to an operation was lost, the operation may have taken effect at any time after
// it began, or not at all. It cannot take effect once its condition no longer holds; therefore
// clients update and delete conditionally, as [Op] describes.
//
// The checkers need only the history and, for counters and files, the state at the end.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Kind is the kind of an operation: create, update, delete, read or append.
type Kind string

// The kinds of operations. A Create succeeds only if the key does not exist. An Update succeeds
// only if the object has the version Op.Base. A Delete succeeds only for the object that the writer
// saw last. An Append adds a line to a file.
const (
	Create Kind = "create"
	Update Kind = "update"
	Delete Kind = "delete"
	Read   Kind = "read"
	Append Kind = "append"
)

// Outcome is what a client knows about the effect of its operation.
type Outcome string

// The outcomes. Acknowledged means that the operation took effect. Refused means that it did not
// take effect and never will. Unknown means that the client does not know which of both is the case.
const (
	Acknowledged Outcome = "acknowledged"
	Refused      Outcome = "refused"
	Unknown      Outcome = "unknown"
)

// Op is one operation of a client on a key.
type Op struct {
	Client string
	Kind   Kind
	Key    string
	// Value is the value that was written or read. All writes of a key have different values. The
	// value is empty for deletes, and for reads that found no object.
	Value string
	// Base is the version that the object must have for an update to succeed.
	Base int64
	// Version is the version that a write created or that a read returned. Deletes have no version.
	Version int64
	// Begin and End are the times of the operation since the start of the history.
	Begin, End time.Duration
	Outcome    Outcome
	// Note is the text of an error, for reports.
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

// Violation is a response, or a sequence of responses, that a correct API server never gives.
type Violation struct {
	// Rule is the guarantee that the server has violated.
	Rule string
	Key  string
	// What describes the operations involved, with their times.
	What string
}

func (v Violation) String() string { return v.Rule + ": " + v.Key + ": " + v.What }

// verdict collects violations.
type verdict []Violation

func (v *verdict) addf(rule, key, format string, args ...any) {
	*v = append(*v, Violation{rule, key, fmt.Sprintf(format, args...)})
}

// Log records a history in memory. Each operation needs about 200 bytes. Clients pause between
// operations, so the log stays small enough.
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

// Ops returns a copy of the history, sorted by the beginning of the operations.
func (l *Log) Ops() []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	ops := slices.Clone(l.ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.Begin, b.Begin) })
	return ops
}

// byKey splits a history by key. The operations of each key are sorted by their beginning.
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
