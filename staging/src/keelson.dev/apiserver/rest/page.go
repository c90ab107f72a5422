// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// blockedPage is the minimum number of records of a page that is made from encoded blocks. Records
// of smaller pages are more likely to keep encodings of their own.
const blockedPage = 64

// listMeta returns the metadata of a page.
func listMeta(page *store.Page) metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: revision(page.Revision), Continue: page.Continue,
		RemainingItemCount: page.Remaining}
}

func revision(rev int64) string {
	if rev == 0 {
		return ""
	}
	return strconv.FormatInt(rev, 10)
}

// respondPage sends a list, and adds it to the audit event.
func (s *Server) respondPage(w http.ResponseWriter, r *http.Request, out negotiate.Output, v *view,
	page *store.Page) error {
	s.auditPage(r, out, v, page)
	w, r, span := serialize(w, r, out, v.listGVK.GroupVersion())
	defer span.end()
	return s.writePage(w, r, out, v, page)
}

// writePage sends a list.
func (s *Server) writePage(w http.ResponseWriter, r *http.Request, out negotiate.Output, v *view,
	page *store.Page) error {
	switch {
	case out.As == "PartialObjectMetadata":
		return negotiate.NotAcceptableMessage(
			fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (%s)", v.listName()))
	case out.As == "Table":
		row, page, err := forList(v.row, page)
		if err != nil {
			return err
		}
		return s.respondTable(w, r, out, http.StatusOK, v, row, page)
	case out.MediaType == negotiate.Protobuf:
		return s.respondProtoPage(w, r, out, v, page)
	case out.MediaType == negotiate.YAML:
		doc, err := v.appendPage(nil, out, page)
		if err != nil {
			return err
		}
		return s.pools.writeJSON(w, r, out, http.StatusOK, doc)
	}
	return s.streamPage(w, r, out, v, page)
}

// internalName returns Kubernetes' name for the Go type of the view's objects or lists. If the
// objects are stored as a kind of another group, that is the Go type of the other group.
func (v *view) internalName(kind string) string {
	gvk := v.gvk
	if !v.row.StoredAs.Empty() {
		gvk = v.row.StoredAs
	}
	return resource.InternalName(gvk.GroupVersion().WithKind(kind))
}

func (v *view) listName() string {
	if v.dynamic {
		return "*unstructured.UnstructuredList"
	}
	return "*" + v.internalName(v.listGVK.Kind)
}

// pageFrame returns the parts of a JSON list before and after the items.
func (v *view) pageFrame(out negotiate.Output, page *store.Page) (head, tail []byte, err error) {
	meta, err := marshalJSON(listMeta(page))
	if err != nil {
		return nil, nil, err
	}
	apiVersion, kind := v.listGVK.GroupVersion().String(), v.listGVK.Kind
	if out.As == "PartialObjectMetadataList" {
		apiVersion, kind = metav1.GroupName+"/"+out.AsVersion, out.As
		if len(page.Records) == 0 { // in Kubernetes, an empty list of metadata is null
			return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":null`, kind, apiVersion,
				meta), []byte("}"), nil
		}
	} else if v.dynamic {
		return dynamicFrame(apiVersion, kind, page)
	}
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind, apiVersion, meta),
		[]byte("]}"), nil
}

// dynamicFrame is like pageFrame, for unstructured lists, whose members have another order.
func dynamicFrame(apiVersion, kind string, page *store.Page) (head, tail []byte, err error) {
	meta := map[string]any{"continue": page.Continue, "resourceVersion": revision(page.Revision)}
	if page.Remaining != nil {
		meta["remainingItemCount"] = *page.Remaining
	}
	m, err := marshalJSON(meta)
	if err != nil {
		return nil, nil, err
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"items":[`, apiVersion),
		fmt.Appendf(nil, `],"kind":%q,"metadata":%s}`, kind, m), nil
}

func (v *view) appendPage(dst []byte, out negotiate.Output, page *store.Page) ([]byte, error) {
	head, tail, err := v.pageFrame(out, page)
	if err != nil {
		return nil, err
	}
	dst = append(dst, head...)
	j := v.jsonItems(out)
	for i, rec := range page.Records {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = j.Append(dst, rec); err != nil {
			return nil, err
		}
	}
	return append(dst, tail...), nil
}

// streamPage sends a JSON list in pieces.
func (s *Server) streamPage(w http.ResponseWriter, r *http.Request, out negotiate.Output, v *view,
	page *store.Page) error {
	head, tail, err := v.pageFrame(out, page)
	if err != nil {
		return err
	}
	a := s.pools.answer(w, r, http.StatusOK, negotiate.JSON).pretty(out)
	_, _ = a.Write(head)
	if err := a.items(page, v.jsonItems(out), nil); err != nil {
		return a.fail(err)
	}
	_, _ = a.Write(tail)
	if !out.Pretty {
		_, _ = a.Write([]byte{'\n'})
	}
	_ = a.Close()
	return nil
}

// jsonItems returns the encoder for the items of a JSON list.
func (v *view) jsonItems(out negotiate.Output) *items {
	if out.As == "PartialObjectMetadataList" {
		return &items{
			Joiner: store.Joiner{Form: partialForm(negotiate.JSON, out.AsVersion), Separator: ",",
				Append: func(dst []byte, rec *store.Record) ([]byte, error) {
					return v.appendPartial(dst, rec, out.AsVersion)
				}},
			one: func(rec *store.Record) ([]byte, error) { return v.partialJSON(rec, out.AsVersion) },
		}
	}
	return &items{
		Joiner: store.Joiner{Form: v.formJSON, Separator: ",", Append: v.appendItem},
		one:    v.item,
	}
}

// items encodes the items of a list in one form (JSON or another encoding).
type items struct {
	store.Joiner
	// one returns an item of a page with few records, and makes the record keep it. one is nil if
	// encoding the item again is as fast as using a kept one.
	one func(rec *store.Record) ([]byte, error)
	// head appends the bytes that precede an item of the given size. It may be nil.
	head func(dst []byte, size int) []byte
}

// blocked reports whether a run of records is sent by encoding its whole block (a unit in which the
// store keeps records).
func (j *items) blocked(page *store.Page, run store.Run) bool {
	return run.Block != nil && len(page.Records) >= blockedPage && run.N > run.Block.Len()/8
}

func runs(page *store.Page) []store.Run {
	if page.Runs != nil {
		return page.Runs
	}
	return []store.Run{{N: len(page.Records)}}
}

// until returns a copy of j that returns an error once ctx is done. It checks ctx for each item,
// because a webhook may have to convert each object, and the conversion ignores ctx.
func (j *items) until(ctx context.Context) *items {
	out := *j
	out.Append = func(dst []byte, rec *store.Record) ([]byte, error) {
		if err := ctx.Err(); err != nil {
			return dst, err
		}
		return j.Append(dst, rec)
	}
	if j.one != nil {
		out.one = func(rec *store.Record) ([]byte, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return j.one(rec)
		}
	}
	return &out
}

// items writes the items of a page. If fill is set, items passes each text to fill instead, which
// completes and writes it (for example with ages).
func (a *answer) items(page *store.Page, j *items, fill func(text []byte)) error {
	j = j.until(a.r.Context())
	records := page.Records
	for i, run := range runs(page) {
		if i > 0 {
			_, _ = a.Write([]byte(j.Separator))
		}
		var err error
		if j.blocked(page, run) {
			err = a.block(run, j, fill)
		} else {
			err = a.single(records[:run.N], j, fill)
		}
		if err != nil || a.err != nil {
			// err is nil if only a.err is set, because the client has closed the connection. That is
			// not an error of the server.
			return err
		}
		records = records[run.N:]
	}
	return nil
}

// block writes the items of consecutive records of a block. If the client accepts gzip and the run
// has all records of the block in their usual form, block sends the compressed bytes that the block
// keeps.
func (a *answer) block(run store.Run, j *items, fill func(text []byte)) error {
	if a.gzip && a.indent == nil && fill == nil && run.N == run.Block.Len() {
		p, err := run.Block.Deflated(&j.Joiner)
		if err != nil {
			return err
		}
		if a.begun() || len(*a.held)+p.Size > bufferSize {
			a.piece(p)
			return nil
		}
	}
	return a.pools.texts.use(func(buf []byte) ([]byte, error) {
		buf, ends, err := run.Block.Encoded(&j.Joiner, buf)
		if err != nil {
			return buf, err
		}
		text := buf[:ends[run.From+run.N-1]]
		if run.From > 0 {
			text = text[int(ends[run.From-1])+len(j.Separator):]
		}
		if fill != nil {
			fill(text)
		} else {
			_, _ = a.Write(text)
		}
		return buf, nil
	})
}

// single encodes records and writes them as items of a list, one by one instead of in whole blocks.
func (a *answer) single(records []*store.Record, j *items, fill func(text []byte)) error {
	var scratch []byte
	for i, rec := range records {
		if i > 0 {
			_, _ = a.Write([]byte(j.Separator))
		}
		var item []byte
		var err error
		if j.one != nil {
			item, err = j.one(rec)
		} else {
			item, err = j.Append(scratch[:0], rec)
			scratch = item
		}
		if err != nil {
			return err
		}
		if j.head != nil {
			scratch = j.head(scratch[:0], len(item))
			_, _ = a.Write(scratch)
		}
		if fill != nil {
			fill(item)
		} else {
			_, _ = a.Write(item)
		}
		if a.err != nil {
			return nil
		}
	}
	return nil
}

// fail ends a response that cannot be completed because of err. If nothing has been sent yet, it
// returns err for the caller to send. Otherwise it breaks the connection.
func (a *answer) fail(err error) error {
	if !a.begun() {
		a.abandon()
		return err
	}
	a.abort()
	return nil
}
