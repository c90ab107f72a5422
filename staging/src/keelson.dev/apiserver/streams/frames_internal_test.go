// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
)

// appendFrame appends a frame of any kind.
func appendFrame(dst []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	n := len(payload)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	dst = binary.BigEndian.AppendUint32(dst, stream)
	return append(dst, payload...)
}

// TestOutbound writes frames in pieces of any size. All but tokens come through, and it is known
// whether another frame may come next.
func TestOutbound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f flow
		f.init(clock.Real(), 0)
		var in, want []byte
		block := false
		expected := map[uint32]*Stream{}
		for n := range rapid.IntRange(0, 12).Draw(t, "frames") {
			stream := uint32(2*n + 1)
			payload := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload")
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				if block {
					break
				}
				s := &Stream{known: make(chan struct{}), wake: make(chan struct{}, 1)}
				copy(s.token[:], rapid.SliceOfN(rapid.Byte(), tokenSize, tokenSize).Draw(t, "token"))
				s.token[0] = byte(n) // no two are alike
				f.expected = append(f.expected, s)
				expected[stream] = s
				in = appendFrame(in, http2.FrameData, 0, stream, s.token[:])
			case 1:
				if block {
					break
				}
				in = appendFrame(in, http2.FrameData, 0, stream, append([]byte{200}, payload...))
				want = appendFrame(want, http2.FrameData, 0, stream, append([]byte{200}, payload...))
			case 2:
				flags := http2.Flags(rapid.SampledFrom([]int{0, 4}).Draw(t, "flags"))
				kind := http2.FrameHeaders
				if block {
					kind = http2.FrameContinuation
				}
				block = flags == 0
				in = appendFrame(in, kind, flags, stream, payload)
				want = appendFrame(want, kind, flags, stream, payload)
			default:
				if block {
					break
				}
				in = appendFrame(in, http2.FramePing, 0, 0, payload)
				want = appendFrame(want, http2.FramePing, 0, 0, payload)
			}
		}
		var o outbound
		var got bytes.Buffer
		for len(in) > 0 {
			n := rapid.IntRange(1, len(in)).Draw(t, "piece")
			if err := o.pass(in[:n], &got, &f); err != nil {
				t.Fatal(err)
			}
			in = in[n:]
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("got  %x\nwant %x", got.Bytes(), want)
		}
		if o.between() == block {
			t.Fatalf("between: %v, in a block: %v", o.between(), block)
		}
		for stream, s := range expected {
			if s.id != stream {
				t.Fatalf("token of stream %d was found for %d", stream, s.id)
			}
		}
	})
}

// TestPartOfToken checks that an answer that equals a part of a token is passed on and is not taken
// for the token.
func TestPartOfToken(t *testing.T) {
	for size := 1; size < tokenSize; size++ {
		var f flow
		f.init(clock.Real(), 0)
		s := &Stream{token: [tokenSize]byte{1, 2, 3}, known: make(chan struct{})}
		f.expected = []*Stream{s}
		frame := appendFrame(nil, http2.FrameData, 0, 5, s.token[:size])
		var o outbound
		var got bytes.Buffer
		for _, b := range frame {
			if err := o.pass([]byte{b}, &got, &f); err != nil {
				t.Fatal(err)
			}
		}
		if s.id != 0 || !f.expecting() || !bytes.Equal(got.Bytes(), frame) {
			t.Errorf("stream %d, sent %x", s.id, got.Bytes())
		}
	}
}

// TestInbound reads what a client writes in pieces of any size. The server gets all of it, but
// of window updates what is not the Conn's: what was granted is spent by one of both.
func TestInbound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f flow
		f.init(clock.Real(), 0)
		f.left, f.debt = rapid.Int64Range(0, 1<<24).Draw(t, "left"), rapid.Int64Range(-tokenSize, 1<<24).Draw(t, "debt")
		server := f.left + f.debt // what it believes
		taken := &Stream{id: 3, window: 100}
		f.streams = map[uint32]*Stream{3: taken}
		var in, want []byte
		all, window, initial := f.left, int64(100), f.initial
		for range rapid.IntRange(0, 10).Draw(t, "frames") {
			granted := rapid.Uint32Range(0, 1<<23).Draw(t, "granted")
			update := binary.BigEndian.AppendUint32(nil, granted)
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0: // of the connection
				all += int64(granted)
				if told := max(0, all-server); granted == 0 || told > 0 {
					told = max(told, 0)
					if granted == 0 {
						told = 0
					}
					server += told
					want = appendFrame(want, http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(told)))
				}
				in = appendFrame(in, http2.FrameWindowUpdate, 0, 0, update)
			case 1: // of the stream that was taken
				in = appendFrame(in, http2.FrameWindowUpdate, 0, 3, update)
				window += int64(granted)
				if granted == 0 {
					want = appendFrame(want, http2.FrameWindowUpdate, 0, 3, update)
				}
			case 2: // of another
				in = appendFrame(in, http2.FrameWindowUpdate, 0, 5, update)
				want = appendFrame(want, http2.FrameWindowUpdate, 0, 5, update)
			case 3:
				now := rapid.Uint32Range(0, 1<<20).Draw(t, "initial")
				window += int64(now) - initial
				initial = int64(now)
				setting := binary.BigEndian.AppendUint32([]byte{0, 4}, now)
				in = appendFrame(in, http2.FrameSettings, 0, 0, setting)
				want = appendFrame(want, http2.FrameSettings, 0, 0, setting)
			default:
				payload := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload")
				in = appendFrame(in, http2.FrameHeaders, 4, 7, payload)
				want = appendFrame(want, http2.FrameHeaders, 4, 7, payload)
			}
		}
		var i inbound
		var got []byte
		from := iotest.OneByteReader(bytes.NewReader(in))
		for {
			buf := make([]byte, rapid.IntRange(1, 50).Draw(t, "read"))
			n, err := i.read(buf, from, &f)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("got  %x\nwant %x", got, want)
		}
		if f.left != all || f.left+f.debt != server || taken.window != window {
			t.Fatalf("left %d, want %d; debt %d, want %d; window %d, want %d", f.left, all, f.debt, server-all, taken.window, window)
		}
	})
}

// FuzzInbound reads what strangers write: whatever it is, the server gets no more than that.
func FuzzInbound(f *testing.F) {
	f.Add(appendFrame(nil, http2.FrameSettings, 0, 0, []byte{0, 4, 0, 0, 1, 0}))
	f.Add(appendFrame(nil, http2.FrameWindowUpdate, 0, 3, []byte{0, 0, 1, 0}))
	f.Add(appendFrame(nil, http2.FrameRSTStream, 0, 3, []byte{0, 0, 0, 8}))
	f.Fuzz(func(t *testing.T, in []byte) {
		var fl flow
		fl.init(clock.Real(), 0)
		fl.streams = map[uint32]*Stream{3: {id: 3, wake: make(chan struct{}, 1)}}
		var i inbound
		from := bytes.NewReader(in)
		buf := make([]byte, 64)
		total := 0
		for {
			n, err := i.read(buf, from, &fl)
			total += n
			if err != nil {
				break
			}
		}
		if total > len(in) {
			t.Errorf("%d bytes of %d", total, len(in))
		}
		if fl.left < defaultWindow || fl.debt != 0 {
			t.Errorf("left %d, debt %d", fl.left, fl.debt)
		}
	})
}
