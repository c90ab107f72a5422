// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package table

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// Ages leaves open how old things are in rows that are made once and shown often,
// and fills that in when they are shown. A kind's cells hold ages as they are given
// them, alone or within words.
type Ages struct{ mark []byte }

// openSize is the size of a moment: seconds and nanoseconds, in hexadecimal digits.
const openSize = 24

// NewAges returns Ages that marks an open age by secret. That has letters and
// digits only, and nobody who makes objects knows it.
func NewAges(secret string) *Ages { return &Ages{[]byte(secret)} }

// LineOf is the line of obj, with ages open.
func (a *Ages) LineOf(row *resource.Row, obj resource.Object) Line {
	return line(row, obj, a.open)
}

// open stands for the time since t.
func (a *Ages) open(t metav1.Time) string {
	if t.IsZero() {
		return Age(t, time.Time{})
	}
	var moment [openSize / 2]byte
	binary.BigEndian.PutUint64(moment[:], uint64(t.Unix()))
	binary.BigEndian.PutUint32(moment[8:], uint32(t.Nanosecond()))
	return string(a.mark) + hex.EncodeToString(moment[:])
}

// Fill gives rows, as JSON, to emit piece by piece, with ages as of now.
func (a *Ages) Fill(rows []byte, now time.Time, emit func([]byte)) {
	var moment [openSize / 2]byte
	var scratch [32]byte
	for {
		at := bytes.Index(rows, a.mark)
		if at < 0 || len(rows) < at+len(a.mark)+openSize {
			break
		}
		emit(rows[:at])
		rows = rows[at+len(a.mark):]
		_, _ = hex.Decode(moment[:], rows[:openSize]) // open has encoded it
		rows = rows[openSize:]
		t := time.Unix(int64(binary.BigEndian.Uint64(moment[:])), int64(binary.BigEndian.Uint32(moment[8:])))
		emit(appendWithin(scratch[:0], Age(metav1.NewTime(t), now)))
	}
	emit(rows)
}

// appendWithin appends text as it is within a JSON string.
func appendWithin(dst []byte, text string) []byte {
	if !strings.ContainsAny(text, `<>&"\`) {
		return append(dst, text...)
	}
	quoted, _ := json.Marshal(text) // a string can be encoded
	return append(dst, quoted[1:len(quoted)-1]...)
}
