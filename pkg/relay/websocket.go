// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/mxk/go-flowrate/flowrate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

const (
	// idleTimeout is how long a WebSocket connection may carry no data before it is closed.
	idleTimeout = 4 * time.Hour
	// statusTimeout limits the write of the result to the client.
	statusTimeout = 10 * time.Second
)

// Options select which streams a request has.
type Options struct {
	Stdin, Stdout, Stderr, TTY bool
}

// ServeWebSocket serves version 5 of the stream protocol over WebSocket. In this version, clients
// can end the input. It connects the streams to those of the target.
func (t Target) ServeWebSocket(w http.ResponseWriter, r *http.Request, o Options) {
	channels := make([]wsstream.ChannelType, constants.StreamResize+1) // the zero value means that a channel is ignored
	for channel, c := range map[int]struct {
		on   bool
		kind wsstream.ChannelType
	}{
		constants.StreamStdIn:  {o.Stdin, wsstream.ReadChannel},
		constants.StreamStdOut: {o.Stdout, wsstream.WriteChannel},
		constants.StreamStdErr: {o.Stderr, wsstream.WriteChannel},
		constants.StreamErr:    {true, wsstream.WriteChannel},
		constants.StreamResize: {o.TTY, wsstream.ReadChannel},
	} {
		if c.on {
			channels[channel] = c.kind
		}
	}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		constants.StreamProtocolV5Name: {Binary: true, Channels: channels},
	})
	conn.SetIdleTimeout(idleTimeout)
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return // Open has already answered with an error
	}
	defer conn.Close() //nolint:errcheck // an error only means that the client has closed it
	var s remotecommand.StreamOptions
	first := streams[constants.StreamErr]
	if o.Stdin {
		s.Stdin = t.limitReader(streams[constants.StreamStdIn])
	}
	if o.Stderr {
		first = streams[constants.StreamStdErr]
		s.Stderr = t.limitWriter(first)
	}
	if o.Stdout {
		first = streams[constants.StreamStdOut]
		s.Stdout = t.limitWriter(first)
	}
	if o.TTY {
		s.Tty, s.TerminalSizeQueue = true, sizes{json.NewDecoder(streams[constants.StreamResize])}
	}
	// In the protocol, an empty message on the first channel means that the connection is established.
	if _, err := first.Write(nil); err != nil {
		return
	}
	status, err := json.Marshal(statusOf(t.Stream(r.Context(), s)))
	if err != nil {
		return // cannot happen, because a Status can be encoded
	}
	conn.SetWriteDeadline(statusTimeout)
	_, _ = streams[constants.StreamErr].Write(status) // fails if the client has closed the connection
}

// statusOf converts the error of Stream to the Status that is the result for clients.
func statusOf(err error) metav1.Status {
	if err == nil {
		return metav1.Status{Status: metav1.StatusSuccess}
	}
	var exit exec.CodeExitError
	if !errors.As(err, &exit) {
		return apierrors.NewInternalError(err).Status()
	}
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Reason:  constants.NonZeroExitCodeReason,
		Message: fmt.Sprintf("command terminated with non-zero exit code: %v", exit),
		Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: constants.ExitCodeCauseType, Message: strconv.Itoa(exit.Code)}},
		},
	}
}

func (t Target) limitReader(r io.Reader) io.Reader {
	if t.BytesPerSecond == 0 {
		return r
	}
	return flowrate.NewReader(r, t.BytesPerSecond)
}

func (t Target) limitWriter(w io.Writer) io.Writer {
	if t.BytesPerSecond == 0 {
		return w
	}
	return flowrate.NewWriter(w, t.BytesPerSecond)
}

// sizes is the queue of the sizes of the client's terminal.
type sizes struct{ *json.Decoder }

// Next implements remotecommand.TerminalSizeQueue.
func (s sizes) Next() *remotecommand.TerminalSize {
	size := &remotecommand.TerminalSize{}
	if s.Decode(size) != nil {
		return nil
	}
	return size
}
