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

// Ages makes table rows that can be cached although they contain ages. It writes a placeholder for
// each age, as a whole cell or within a text. Fill replaces the placeholders each time a row is
// sent.
type Ages struct{ mark []byte }

// openSize is the length of the time in a placeholder, in bytes: seconds and nanoseconds as
// hexadecimal digits.
const openSize = 24

// NewAges returns Ages whose placeholders begin with secret, which must consist of letters and
// digits. Clients must not be able to guess it, because they could write placeholders into objects.
func NewAges(secret string) *Ages { return &Ages{[]byte(secret)} }

// LineOf returns the line of obj, with placeholders instead of ages.
func (a *Ages) LineOf(row *resource.Row, obj resource.Object) Line {
	return line(row, obj, a.open)
}

// open returns the placeholder for the time since t, or the age of the zero time as text.
func (a *Ages) open(t metav1.Time) string {
	if t.IsZero() {
		return Age(t, time.Time{})
	}
	var moment [openSize / 2]byte
	binary.BigEndian.PutUint64(moment[:], uint64(t.Unix()))
	binary.BigEndian.PutUint32(moment[8:], uint32(t.Nanosecond()))
	return string(a.mark) + hex.EncodeToString(moment[:])
}

// Fill replaces the placeholders in rows by the present ages. It passes the result to emit in
// pieces.
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
		_, _ = hex.Decode(moment[:], rows[:openSize]) // cannot fail, because the method open has encoded it
		rows = rows[openSize:]
		t := time.Unix(int64(binary.BigEndian.Uint64(moment[:])), int64(binary.BigEndian.Uint32(moment[8:])))
		emit(appendWithin(scratch[:0], Age(metav1.NewTime(t), now)))
	}
	emit(rows)
}

// appendWithin appends text as part of a JSON string.
func appendWithin(dst []byte, text string) []byte {
	if !strings.ContainsAny(text, `<>&"\`) {
		return append(dst, text...)
	}
	quoted, _ := json.Marshal(text) //nolint:errchkjson // never fails for a string
	return append(dst, quoted[1:len(quoted)-1]...)
}
