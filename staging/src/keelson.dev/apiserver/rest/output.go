// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/deflate"
	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/wire"
)

// bufferSize is the number of bytes of a response that are buffered before the response is sent.
// Larger responses are compressed if the client accepts gzip. For smaller ones, the HTTP server
// sets the Content-Length, in the same cases as for Kubernetes.
const bufferSize = 128 << 10

// pools has buffers for responses. It contains no state of requests.
type pools struct {
	buffers sync.Pool // buffers of type *[]byte, which are empty; only putBuffer adds one
	texts   *texts
	deflate *deflate.Pool
}

func newPools(texts *texts) *pools {
	return &pools{
		buffers: sync.Pool{New: func() any { return new(make([]byte, 0, 16<<10)) }},
		texts:   texts,
		deflate: deflate.NewPool(),
	}
}

// putBuffer empties a buffer and returns it to the pool, so that its content cannot appear in
// another response. It drops large buffers.
func (p *pools) putBuffer(b *[]byte) {
	if cap(*b) <= 2*bufferSize {
		*b = (*b)[:0]
		p.buffers.Put(b)
	}
}

// withBuffer takes a buffer from the pool, calls the function fill to append a text to it, and then
// calls the function use with the text.
func (p *pools) withBuffer(fill func(dst []byte) ([]byte, error), use func(text []byte) error) error {
	buf := p.buffers.Get().(*[]byte)
	defer p.putBuffer(buf)
	out, err := fill((*buf)[:0])
	if err != nil {
		return err
	}
	*buf = out
	return use(out)
}

// made takes a buffer from the pool, calls fill to append a text to it, and returns a copy of the
// text without spare capacity.
func (p *pools) made(fill func(dst []byte) ([]byte, error)) (text []byte, err error) {
	err = p.withBuffer(fill, func(b []byte) error {
		text = bytes.Clone(b)
		return nil
	})
	return text, err
}

// answer is a response in progress. Close sends the rest of the response.
type answer struct {
	pools *pools
	w     http.ResponseWriter
	code  int
	gzip  bool // the client accepts gzip
	// indent indents a JSON document for people. It is nil if the document is sent unchanged.
	indent *indenter

	r    *http.Request
	held *[]byte
	to   io.Writer // nil until the header is sent
	zip  *deflate.Stream
	err  error
}

func (p *pools) answer(w http.ResponseWriter, r *http.Request, code int, mediaType string) *answer {
	w.Header().Set("Content-Type", mediaType)
	return &answer{pools: p, w: w, code: code, gzip: acceptsGzip(r), r: r, held: p.buffers.Get().(*[]byte)}
}

func acceptsGzip(r *http.Request) bool {
	header := r.Header.Get("Accept-Encoding")
	if header == "" || header == "identity" {
		return false
	}
	for token := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}

// pretty makes the response indented if out.Pretty is set.
func (a *answer) pretty(out negotiate.Output) *answer {
	if out.Pretty {
		a.indent = &indenter{}
	}
	return a
}

// Write implements io.Writer. It buffers or sends b, indented if the response is.
func (a *answer) Write(b []byte) (n int, err error) {
	if a.indent == nil {
		return a.put(b)
	}
	for ; n < len(b) && err == nil; n = min(n+indentStep, len(b)) {
		a.indent.scratch = a.indent.append(a.indent.scratch[:0], b[n:min(n+indentStep, len(b))])
		_, err = a.put(a.indent.scratch)
	}
	return n, err
}

// put buffers or sends a part of the response, b, without indenting it.
func (a *answer) put(b []byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	if len(*a.held)+len(b) <= bufferSize {
		*a.held = append(*a.held, b...)
		return len(b), nil
	}
	a.flush()
	if a.err == nil && len(b) > bufferSize/4 {
		_, a.err = a.to.Write(b)
	} else if a.err == nil {
		*a.held = append(*a.held, b...)
	}
	return len(b), a.err
}

// flush sends the header and the buffered part. It sets no Content-Length, because more data may
// follow.
func (a *answer) flush() {
	if a.to == nil {
		if a.gzip {
			h := a.w.Header()
			h.Set("Content-Encoding", "gzip")
			if !slices.Contains(h["Vary"], "Accept-Encoding") {
				h.Add("Vary", "Accept-Encoding")
			}
		}
		a.w.WriteHeader(a.code)
		a.to = untilDone{a.r.Context(), a.w}
		if a.gzip {
			a.zip = a.pools.deflate.Stream(a.to)
			a.to = a.zip
		}
	}
	if a.err == nil && len(*a.held) > 0 {
		_, a.err = a.to.Write(*a.held)
	}
	*a.held = (*a.held)[:0]
}

// piece sends a part of the response that is already compressed. It may be called only if the
// client accepts gzip.
func (a *answer) piece(p deflate.Piece) {
	a.flush()
	if a.err == nil {
		a.err = a.zip.Piece(p)
	}
}

// Close completes the response and returns its buffers to the pool.
func (a *answer) Close() error {
	if a.to == nil {
		a.w.WriteHeader(a.code)
		_, a.err = a.w.Write(*a.held)
		a.release()
		return a.err
	}
	a.flush()
	if a.zip != nil {
		if err := a.zip.Close(); a.err == nil {
			a.err = err
		}
	}
	a.release()
	if a.err != nil {
		a.abort()
	}
	return nil
}

// abort breaks the connection, so that the client does not take an incomplete response for a
// complete one.
func (a *answer) abort() { panic(http.ErrAbortHandler) }

// untilDone is a writer that returns an error once the context of the request has ended.
type untilDone struct {
	ctx context.Context
	w   http.ResponseWriter
}

// Write implements io.Writer.
func (u untilDone) Write(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(b)
}

// begun reports whether the header has been sent.
func (a *answer) begun() bool { return a.to != nil }

// abandon discards the buffered part, so that an error can be sent instead of the response.
func (a *answer) abandon() { a.release() }

func (a *answer) release() {
	a.pools.putBuffer(a.held)
	a.held = nil
}

// writeJSON sends a JSON document in the requested form: unchanged, indented, or as YAML.
func (p *pools) writeJSON(w http.ResponseWriter, r *http.Request, out negotiate.Output, code int, doc []byte) error {
	mediaType := negotiate.JSON
	switch {
	case out.MediaType == negotiate.YAML:
		var err error
		if doc, err = yamlOf(doc); err != nil {
			return err
		}
		mediaType = negotiate.YAML
	case out.Pretty:
		doc = indent(doc)
	default:
		doc = append(doc, '\n')
	}
	a := p.answer(w, r, code, mediaType)
	_, _ = a.Write(doc) // Close returns the error of Write
	_ = a.Close()       // fails if the client has closed the connection
	return nil
}

// writeObject sends an object that has no store record. It sets the object's kind and apiVersion to
// gvk.
func (p *pools) writeObject(w http.ResponseWriter, r *http.Request, out negotiate.Output, code int,
	obj runtime.Object, gvk schema.GroupVersionKind) error {
	w, r, span := serialize(w, r, out, gvk.GroupVersion())
	defer span.end()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	if out.MediaType == negotiate.Protobuf {
		message, ok := obj.(wire.Message)
		if !ok {
			return negotiate.NotAcceptable([]string{negotiate.JSON, negotiate.YAML})
		}
		data, err := wire.NewHeader(gvk.GroupVersion().String(), gvk.Kind).Marshal(message)
		if err != nil {
			return err
		}
		a := p.answer(w, r, code, negotiate.Protobuf)
		_, _ = a.Write(data)
		_ = a.Close()
		return nil
	}
	doc, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return p.writeJSON(w, r, out, code, doc)
}

// writeStatus sends a Status. It does not use the server's pools, because errors are rare and
// small.
func writeStatus(w http.ResponseWriter, r *http.Request, out negotiate.Output, code int, status *metav1.Status) {
	if err := newPools(nil).writeObject(w, r, out, code, status,
		schema.GroupVersionKind{Version: "v1", Kind: "Status"}); err != nil {
		http.Error(w, string(status.Reason)+": "+status.Message, code)
	}
}
