// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"keelson.dev/keelson/pkg/halfclose"
)

// pod returns the pod in the path of the request. If there is none it writes the response.
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
	s.stream(w, r, func(pod *v1.Pod, o StreamOptions) (*url.URL, error) {
		return s.cfg.Runtime.Exec(r.Context(), pod, r.PathValue("container"), r.URL.Query()["command"], o)
	})
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, func(pod *v1.Pod, o StreamOptions) (*url.URL, error) {
		return s.cfg.Runtime.Attach(r.Context(), pod, r.PathValue("container"), o)
	})
}

// stream proxies the connection to the runtime's streaming server at the URL that open returns.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, open func(*v1.Pod, StreamOptions) (*url.URL, error)) {
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
	w = halfclose.Linger(w, s.cfg.Clock, halfclose.Patience)
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		// The runtime's server supports SPDY and older WebSocket protocols only.
		opts := translator.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}
		translator.NewStreamTranslatorHandler(to, nil, 0, opts).ServeHTTP(w, r)
		return
	}
	s.upgrade(to).ServeHTTP(w, r)
}

// upgrade proxies a connection to the runtime's streaming server. Its transport only dials and
// keeps no connections.
func (s *Server) upgrade(to *url.URL) http.Handler {
	transport := &http.Transport{DialContext: halfclose.Dial((&net.Dialer{}).DialContext)}
	return proxy.NewUpgradeAwareHandler(to, transport, false, true, responder{s.cfg.Log})
}

// streamError writes the HTTP status that corresponds to the runtime's error.
func (s *Server) streamError(w http.ResponseWriter, err error) {
	if writeErr := streaming.WriteError(err, w); writeErr != nil {
		s.cfg.Log.Debug("Failed to send the response", "err", writeErr)
	}
}

// responder writes the response when the runtime's streaming server cannot be reached.
type responder struct{ log *slog.Logger }

// Error implements proxy.ErrorResponder.
func (r responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	r.log.Error("Failed to proxy a stream", "err", err)
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

// run runs a command without streams. For historical reasons the command is one parameter that is
// split at spaces.
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
	// Kubernetes' label, although the content is the output of the command.
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out) // the client may have disconnected
}
