// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	client "k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"keelson.dev/keelson/pkg/halfclose"
	"keelson.dev/keelson/pkg/relay"
)

// streamIdleTimeout is how long the connection of an exec or attach may stay without data. The
// container runtime uses the same timeout.
const streamIdleTimeout = 4 * time.Hour

// pod returns the pod that the path of the request names. If it does not exist, pod writes the
// error response.
func (s *Server) pod(w http.ResponseWriter, r *http.Request) (*v1.Pod, bool) {
	pod, ok := s.cfg.Pods.Pod(r.PathValue("namespace"), r.PathValue("pod"))
	if !ok {
		writeText(w, http.StatusNotFound, "pod does not exist")
		return nil, false
	}
	if uid := types.UID(r.PathValue("uid")); uid != "" && uid != pod.UID {
		writeText(w, http.StatusNotFound, "pod not found")
		return nil, false
	}
	return pod, true
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	open := func(pod *v1.Pod, o StreamOptions) (*url.URL, error) {
		return s.cfg.Runtime.Exec(r.Context(), pod, r.PathValue("container"), r.URL.Query()["command"], o)
	}
	s.stream(w, r, open, func(w http.ResponseWriter, r *http.Request, c container) {
		remotecommand.ServeExec(w, r, c, "", "", "", nil, c.options, streamIdleTimeout,
			remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	})
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	open := func(pod *v1.Pod, o StreamOptions) (*url.URL, error) {
		return s.cfg.Runtime.Attach(r.Context(), pod, r.PathValue("container"), o)
	}
	s.stream(w, r, open, func(w http.ResponseWriter, r *http.Request, c container) {
		remotecommand.ServeAttach(w, r, c, "", "", "", c.options, streamIdleTimeout,
			remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	})
}

// stream relays the streams of the client to the runtime's streaming server, whose URL open
// returns. serve handles clients that use SPDY or an older WebSocket protocol.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, open func(*v1.Pod, StreamOptions) (*url.URL, error),
	serve func(http.ResponseWriter, *http.Request, container)) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	to, err := open(pod, StreamOptions{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY})
	if err != nil {
		s.streamError(w, err)
		return
	}
	if !httpstream.IsUpgradeRequest(r) {
		http.Error(w, "Upgrade request required", http.StatusInternalServerError)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	conn := &relay.Client{ResponseWriter: halfclose.Linger(w, s.cfg.Clock, halfclose.Patience),
		SPDY: !wsstream.IsWebSocketRequest(r), Gone: cancel}
	defer conn.Close()
	r = r.WithContext(ctx)
	target := relay.Target{URL: to, Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext},
		Paced: true, Clock: s.cfg.Clock}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		target.ServeWebSocket(conn, r, relay.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY})
		return
	}
	serve(conn, r, container{target, o})
}

// container connects the streams of a client to a container through the runtime's streaming server.
type container struct {
	target  relay.Target
	options *remotecommand.Options
}

// ExecInContainer implements remotecommand.Executor.
func (c container) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader,
	out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return c.connect(ctx, in, out, errOut, resize, "error executing command in container: ")
}

// AttachContainer implements remotecommand.Attacher.
func (c container) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize) error {
	return c.connect(ctx, in, out, errOut, resize, "error attaching to container: ")
}

// connect runs the streams until the command has ended. If an error of the runtime begins with
// prefix, connect removes the prefix, because the caller (remotecommand's server) adds it again.
func (c container) connect(ctx context.Context, in io.Reader, out, errOut io.Writer,
	resize <-chan remotecommand.TerminalSize, prefix string) error {
	var streams client.StreamOptions
	if c.options.Stdin {
		streams.Stdin = in
	}
	if c.options.Stdout {
		streams.Stdout = out
	}
	if c.options.Stderr {
		streams.Stderr = errOut
	}
	if c.options.TTY {
		streams.Tty, streams.TerminalSizeQueue = true, sizes(resize)
	}
	err := c.target.Stream(ctx, streams)
	if err == nil {
		return nil
	}
	if text, ok := strings.CutPrefix(err.Error(), "Internal error occurred: "+prefix); ok {
		return errors.New(text)
	}
	return err
}

// sizes receives the sizes of the client's terminal. It implements TerminalSizeQueue.
type sizes <-chan remotecommand.TerminalSize

// Next implements TerminalSizeQueue of client-go.
func (s sizes) Next() *client.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &client.TerminalSize{Width: size.Width, Height: size.Height}
}

// upgrade returns a proxy for a connection to the runtime's streaming server. The proxy's transport
// is used for one connection only, so it keeps no idle connections.
func (s *Server) upgrade(to *url.URL) http.Handler {
	transport := &http.Transport{DialContext: halfclose.Dial((&net.Dialer{}).DialContext)}
	return proxy.NewUpgradeAwareHandler(to, transport, false, true, responder{s.cfg.Log})
}

// streamError writes the HTTP status that corresponds to a gRPC error of the runtime.
func (s *Server) streamError(w http.ResponseWriter, err error) {
	if writeErr := streaming.WriteError(err, w); writeErr != nil {
		s.cfg.Log.Debug("Failed to send the error of a stream (exec, attach or port-forward) to the client",
			"err", writeErr)
	}
}

// responder writes the error response if the runtime's streaming server cannot be reached.
type responder struct{ log *slog.Logger }

// Error implements proxy.ErrorResponder.
func (r responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	r.log.Error("Failed to connect a stream (exec, attach or port-forward) to the container runtime", "err", err)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	o := &portforward.V4Options{}
	if !tunnel {
		var err error
		if o, err = portforward.NewV4Options(r); err != nil {
			writeText(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	to, err := s.cfg.Runtime.PortForward(r.Context(), pod, o.Ports)
	if err != nil {
		s.streamError(w, err)
		return
	}
	h := s.upgrade(to)
	w = halfclose.Linger(w, s.cfg.Clock, halfclose.Patience)
	if tunnel {
		h = translator.NewTunnelingHandler(h)
	}
	h.ServeHTTP(w, r)
}

// run runs a command and returns its output. As in Kubernetes, the command is one query parameter,
// which is split at spaces.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	out, err := s.cfg.Runtime.Run(r.Context(), pod, r.PathValue("container"), strings.Split(r.FormValue("cmd"), " "))
	if err != nil {
		writeText(w, http.StatusInternalServerError, fmt.Sprintf("%v", err))
		return
	}
	// Kubernetes sends this Content-Type too, although the content is the plain output of the
	// command.
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out) // the client may have disconnected
}
