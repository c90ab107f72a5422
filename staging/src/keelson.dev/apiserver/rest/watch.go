// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/table"
	"keelson.dev/apiserver/tracing"
	"keelson.dev/apiserver/wire"
)

// flushSize is the number of bytes of a batch of events that are sent at a time.
const flushSize = 64 << 10

// watch is a watch of a client. The methods open and send are separate, so that what open needs on
// the stack is free while send waits for events: there may be many thousand watches.
type watch struct {
	s       *Server
	watcher store.Watcher
	enc     *eventEncoder

	ctx     context.Context // done when the watch must end
	cancel  context.CancelFunc
	over    context.CancelFunc // releases the timer of the watch's timeout
	removed context.Context    // done when the resource is removed; then calls cancel
	detach  func() bool        // makes removed no longer call cancel
}

// watch streams the events of a resource. It ends when the client closes the connection, the
// timeout is reached, the resource is removed, or the watcher falls behind.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t *target) error {
	wt := &watch{s: s, removed: t.done}
	defer wt.close()
	if err := wt.open(r, t); err != nil {
		return err
	}
	if isWebSocket(r) {
		return wt.sendMessages(w, r)
	}
	return wt.send(w)
}

// open checks the options of a watch and registers it in the store. The caller must close the
// watch, also after an error.
func (wt *watch) open(r *http.Request, t *target) error {
	s := wt.s
	if !t.behaviour.warnsFirst() && !oldWatch(t.info) {
		t.warnOfVersion(r)
	}
	out, err := negotiate.Accept(r, t.offer())
	if err != nil {
		return err
	}
	o, err := s.listOptions(r, t)
	if err != nil {
		return err
	}
	return wt.begin(r, t, out, o)
}

// begin registers the watch in the store.
func (wt *watch) begin(r *http.Request, t *target, out negotiate.Output, o metav1.ListOptions) error {
	s := wt.s
	var timeout time.Duration
	if o.TimeoutSeconds != nil {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	if timeout == 0 {
		// The timeout is random, so that clients do not all reconnect at the same time.
		timeout = time.Duration(float64(s.cfg.MinWatchTimeout) * (1 + s.cfg.Jitter()))
	}
	lists := o.SendInitialEvents != nil && *o.SendInitialEvents && o.AllowWatchBookmarks
	if lists {
		r = t.trace(r, "WatchList")
	}
	wt.ctx, wt.cancel = context.WithCancel(r.Context())
	wt.detach = context.AfterFunc(t.done, wt.cancel)
	listed := s.metrics.watchList(t, o.SendInitialEvents)
	watcher, err := t.registry.Watch(wt.ctx, t.namespace, o, timeout)
	if apierrors.IsResourceExpired(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		watcher, err = ended{err}, nil // send the error to the client as an event
	}
	if err != nil {
		return err
	}
	wt.watcher = watcher
	// Like Kubernetes, check the form of the response only after the watch has been opened: errors of
	// the watch take precedence.
	tables, err := parseTableOptions(r, out)
	if err != nil {
		return err
	}
	if out.MediaType == negotiate.YAML {
		return negotiate.NotAcceptable([]string{negotiate.JSON + ";stream=watch", negotiate.Protobuf + ";stream=watch"})
	}
	wt.ctx, wt.over = context.WithTimeout(wt.ctx, timeout) // the time until here does not count
	wt.enc = &eventEncoder{s: s, v: t.view, out: out, tables: tables, listed: listed, count: s.metrics.watched(t)}
	if out.As == "PartialObjectMetadataList" {
		wt.watcher = listless{wt.watcher}
	}
	if lists && !isWebSocket(r) {
		wt.enc.startStream(r, t)
	}
	return nil
}

// close ends the watch in the store, and its spans.
func (wt *watch) close() {
	if wt.over != nil {
		wt.enc.span.End()
		wt.over()
	}
	if wt.watcher != nil {
		wt.watcher.Stop()
	}
	if wt.cancel != nil {
		wt.detach()
		wt.cancel()
	}
}

// ended is a store.Watcher whose first event is an error, because the watch could not be started.
type ended struct{ err error }

// Next implements store.Watcher.
func (e ended) Next(context.Context) ([]store.Event, error) { return nil, e.err }

// Stop implements store.Watcher.
func (e ended) Stop() {}

// listless is a store.Watcher for a client that accepts only lists, so that the objects of events
// cannot be encoded. It ends with the first event, and sends no error. Errors of the watch are sent
// as usual.
type listless struct{ store.Watcher }

// Next implements store.Watcher.
func (l listless) Next(ctx context.Context) ([]store.Event, error) {
	events, err := l.Watcher.Next(ctx)
	if len(events) > 0 {
		return nil, context.Canceled
	}
	return nil, err
}

// send writes events as HTTP chunks. When the resource is removed, it ends without sending an
// error, although closing the store makes Next fail.
func (wt *watch) send(to http.ResponseWriter) error {
	w, enc := wt.s.newWatchWriter(to), wt.enc
	w.Header().Set("Content-Type", enc.contentType())
	w.WriteHeader(http.StatusOK)
	_ = w.FlushError()
	enc.span.Event(eventFirstBytes)
	defer enc.v.frames.begin()()
	for {
		events, err := wt.watcher.Next(wt.ctx)
		if err != nil {
			if last := enc.last(wt.ctx, wt.removed, err); last != nil {
				_, _ = w.Write(last)
				_ = w.FlushError()
			}
			return nil
		}
		if !wt.s.sendEvents(w, events, enc) || w.FlushError() != nil {
			return nil
		}
		enc.sent(events)
	}
}

// sendEvents writes events, and reports whether the watch can continue. A watch has a buffer only
// while it sends events.
func (s *Server) sendEvents(w io.Writer, events []store.Event, enc *eventEncoder) bool {
	failed := func(err error) bool {
		enc.log(err)
		return false
	}
	if len(events) == 1 {
		if frame, err := enc.shared(&events[0]); err != nil {
			return failed(err)
		} else if frame != nil {
			enc.count.event(len(frame))
			_, err := w.Write(frame)
			return err == nil // false if the client has closed the connection
		}
	}
	buf := s.pools.buffers.Get().(*[]byte)
	defer s.pools.putBuffer(buf)
	for i := range events {
		var err error
		before := len(*buf)
		if *buf, err = enc.append(*buf, &events[i]); err != nil {
			return failed(err)
		}
		enc.count.event(len(*buf) - before)
		if len(*buf) >= flushSize || i == len(events)-1 {
			if _, err := w.Write(*buf); err != nil {
				return false
			}
			*buf = (*buf)[:0]
		}
	}
	return true
}

// eventEncoder encodes the events of one watch. An encoded event is called a frame.
type eventEncoder struct {
	s       *Server
	v       *view
	out     negotiate.Output
	tables  tableOptions
	headers bool   // the column definitions of a Table have been sent
	listed  func() // called when the initial events have been sent; may be nil
	// The spans of the request, and of sending the initial events. They are nil if not recorded.
	request, span *tracing.Span
	count         watchMetrics
}

// sent calls e.listed once the initial events have been sent completely. The argument events has
// the events that were sent last.
func (e *eventEncoder) sent(events []store.Event) {
	if e.listed != nil && slices.ContainsFunc(events, func(ev store.Event) bool { return ev.InitialEventsEnd }) {
		e.listed()
		e.listed = nil
		e.span.Event("Writing initial events done")
		e.span.End()
		e.request.End()
	}
}

// last returns the final event of a watch that has ended with err. It returns nil if the client has
// closed the connection or the resource was removed.
func (e *eventEncoder) last(ctx, removed context.Context, err error) []byte {
	if ctx.Err() != nil || removed.Err() != nil || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	last, _ := e.appendError(nil, err)
	return last
}

func (e *eventEncoder) log(err error) {
	e.s.cfg.Log.Error("Failed to encode a watch event", "resource", e.v.row.Resource, "err", err)
}

func (e *eventEncoder) contentType() string {
	if e.out.MediaType == negotiate.Protobuf {
		return negotiate.Protobuf + ";stream=watch"
	}
	return negotiate.JSON
}

// shared returns the frame (the encoded form) of ev if several watches share it, or nil.
func (e *eventEncoder) shared(ev *store.Event) ([]byte, error) {
	return e.v.frames.of(ev, e.out, func() ([]byte, error) { return e.append(nil, ev) })
}

// append encodes ev and appends the frame, which is its encoded form.
func (e *eventEncoder) append(dst []byte, ev *store.Event) ([]byte, error) {
	if e.out.MediaType == negotiate.Protobuf {
		return e.appendProto(dst, ev)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, ev.Type...)
	dst = append(dst, `","object":`...)
	dst, err := e.appendObject(dst, ev)
	if err != nil {
		return nil, err
	}
	return append(dst, '}', '\n'), nil
}

func (e *eventEncoder) appendObject(dst []byte, ev *store.Event) ([]byte, error) {
	if e.out.As == "Table" {
		return e.appendTable(dst, ev)
	}
	if ev.Record == nil {
		mark, err := e.bookmark(ev, e.out.As == "")
		if err != nil {
			return nil, err
		}
		b, err := marshalJSON(mark)
		return append(dst, b...), err
	}
	return e.v.appendAs(dst, ev.Record, e.out)
}

// bookmark returns the object of a bookmark: an object of the view's kind if whole is set, or else
// a PartialObjectMetadata. It has only a resourceVersion and, at the end of the initial events, the
// annotation that marks it.
func (e *eventEncoder) bookmark(ev *store.Event, whole bool) (resource.Object, error) {
	var obj resource.Object = &metav1.PartialObjectMetadata{}
	gvk := schema.GroupVersionKind{Group: metav1.GroupName, Version: e.out.AsVersion, Kind: "PartialObjectMetadata"}
	if whole {
		var err error
		if obj, err = e.v.empty(); err != nil {
			return nil, err
		}
		gvk = e.v.gvk
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	obj.SetResourceVersion(revision(ev.Revision))
	if ev.InitialEventsEnd {
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = make(map[string]string, 1)
		}
		annotations[metav1.InitialEventsAnnotationKey] = "true"
		obj.SetAnnotations(annotations)
	}
	return obj, nil
}

func (e *eventEncoder) appendTable(dst []byte, ev *store.Event) ([]byte, error) {
	columns := table.Columns(e.v.row)
	if e.headers || e.tables.noHeaders {
		columns = nil
	}
	e.headers = true
	dst, err := table.AppendHead(dst, e.out.AsVersion, metav1.ListMeta{ResourceVersion: revision(ev.Revision)}, columns)
	if err != nil {
		return nil, err
	}
	if ev.Record != nil {
		dst, err = e.s.appendRow(dst, e.v, e.v.row, ev.Record, e.out.AsVersion, e.tables)
	} else {
		dst, err = e.appendBookmarkRow(dst, ev)
	}
	if err != nil {
		return nil, err
	}
	return table.AppendTail(dst), nil
}

// appendBookmarkRow appends a table row for an empty object. A bookmark in the form of a Table has
// one such row.
func (e *eventEncoder) appendBookmarkRow(dst []byte, ev *store.Event) ([]byte, error) {
	mark, err := e.bookmark(ev, e.tables.include == metav1.IncludeObject)
	if err != nil {
		return nil, err
	}
	object, err := marshalJSON(mark)
	if err != nil {
		return nil, err
	}
	if e.tables.include == metav1.IncludeNone && !ev.InitialEventsEnd {
		object = nil
	}
	return table.AppendRow(dst, table.LineOf(e.v.row, e.v.row.New(), e.s.cfg.Clock.Now()), object)
}

func (e *eventEncoder) appendProto(dst []byte, ev *store.Event) ([]byte, error) {
	if ev.Record != nil && e.out.As == "" && e.v.splice(ev.Record, func(item wire.Item) {
		dst = e.v.header.AppendWatchItem(dst, string(ev.Type), &item)
	}) {
		return dst, nil
	}
	var object []byte
	var err error
	if ev.Record == nil {
		object, err = e.protoBookmark(ev)
	} else {
		object, err = e.v.protoAs(ev.Record, e.out)
	}
	if err != nil {
		return nil, err
	}
	return wire.AppendWatchEvent(dst, string(ev.Type), object), nil
}

func (e *eventEncoder) protoBookmark(ev *store.Event) ([]byte, error) {
	mark, err := e.bookmark(ev, e.out.As == "")
	if err != nil {
		return nil, err
	}
	gvk := mark.GetObjectKind().GroupVersionKind()
	// Every object in protobuf is in an envelope.
	return wire.NewHeader(gvk.GroupVersion().String(), gvk.Kind).Marshal(mark.(wire.Message))
}

// appendError appends the event for an error that ends a watch. Its object is a Status.
func (e *eventEncoder) appendError(dst []byte, err error) ([]byte, error) {
	status := StatusOf(err)
	if e.out.MediaType == negotiate.Protobuf {
		object, err := wire.NewHeader("v1", "Status").Marshal(status)
		if err != nil {
			return nil, err
		}
		return wire.AppendWatchEvent(dst, "ERROR", object), nil
	}
	object, err := marshalJSON(status)
	if err != nil {
		return nil, err
	}
	dst = append(dst, `{"type":"ERROR","object":`...)
	dst = append(dst, object...)
	return append(dst, '}', '\n'), nil
}
