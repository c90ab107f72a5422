// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/moby/spdystream/spdy"
)

// TestFrames checks that frames are accepted up to maxFrame, whatever the sizes of the reads.
func TestFrames(t *testing.T) {
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"large reads":    func(r io.Reader) io.Reader { return r },
		"reads of bytes": iotest.OneByteReader,
	} {
		t.Run(name, func(t *testing.T) {
			var sent bytes.Buffer
			framer, err := spdy.NewFramer(&sent, &sent)
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{0, 1, maxFrame, 5} {
				frame := &spdy.DataFrame{StreamId: 1, Data: bytes.Repeat([]byte{0xff}, size)}
				if err := errors.Join(framer.WriteFrame(&spdy.PingFrame{Id: 1}), framer.WriteFrame(frame)); err != nil {
					t.Fatal(err)
				}
			}
			want := bytes.Clone(sent.Bytes())
			if got, err := io.ReadAll(&frames{Reader: reader(&sent)}); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d, error %v", len(got), len(want), err)
			}
			if err := framer.WriteFrame(&spdy.DataFrame{StreamId: 1, Data: make([]byte, maxFrame+1)}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(&frames{Reader: reader(&sent)}); !errors.Is(err, errFrame) {
				t.Errorf("long frame: error %v", err)
			}
		})
	}
}
