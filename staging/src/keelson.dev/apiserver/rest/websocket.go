// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"net/http"

	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/store"
)

func isWebSocket(r *http.Request) bool { return wsstream.IsWebSocketRequest(r) }

// sendMessages sends events as WebSocket messages, one event in each message.
func (wt *watch) sendMessages(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", wt.enc.contentType())
	websocket.Handler(func(conn *websocket.Conn) {
		defer func() { _ = conn.Close() }()
		go func() { // this goroutine ends when conn is closed, at the latest by the deferred Close above
			defer wt.cancel()
			wsstream.IgnoreReceives(conn, 0)
		}()
		wt.sendTo(conn)
	}).ServeHTTP(w, r)
	return nil
}

func (wt *watch) sendTo(conn *websocket.Conn) {
	s, enc := wt.s, wt.enc
	var buf []byte
	for {
		events, err := wt.watcher.Next(wt.ctx)
		if err != nil {
			if wt.ctx.Err() == nil && !errors.Is(err, context.Canceled) {
				if buf, err = enc.appendError(buf[:0], err); err == nil {
					_ = s.sendMessage(conn, enc, buf)
				}
			}
			return
		}
		for i := range events {
			if buf, err = enc.append(buf[:0], &events[i]); err != nil {
				return
			}
			enc.count.event(len(buf))
			if err := s.sendMessage(conn, enc, buf); err != nil {
				return
			}
		}
	}
}

// sendMessage sends one frame: in JSON as a text message, in protobuf as a binary message without
// the frame's length.
func (s *Server) sendMessage(conn *websocket.Conn, enc *eventEncoder, frame []byte) error {
	if limit := s.cfg.StallTimeout; limit > 0 {
		if err := conn.SetWriteDeadline(s.cfg.Clock.Now().Add(limit)); err != nil {
			return err
		}
	}
	if enc.out.MediaType == negotiate.Protobuf {
		return websocket.Message.Send(conn, frame[4:])
	}
	return websocket.Message.Send(conn, string(frame))
}

// fillList copies the objects of a page into a list of the view's version.
func fillList(list runtime.Object, v *view, page *store.Page) error {
	items := make([]runtime.Object, 0, len(page.Records))
	for _, rec := range page.Records {
		obj, err := v.object(rec)
		if err != nil {
			return err
		}
		items = append(items, obj.DeepCopyObject())
	}
	return meta.SetList(list, items)
}
