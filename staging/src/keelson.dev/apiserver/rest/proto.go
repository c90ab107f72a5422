// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/wire"
)

// protoItems encodes the items of a protobuf list.
type protoItems struct {
	v   *view
	out negotiate.Output
}

// message returns a record's protobuf message. The record keeps it.
func (p protoItems) message(rec *store.Record) ([]byte, error) {
	encode := p.v.proto
	if p.out.As != "" {
		encode = func(rec *store.Record) ([]byte, error) { return p.v.partialProto(rec, p.out.AsVersion) }
	}
	data, err := encode(rec)
	if err != nil {
		return nil, err
	}
	e, err := wire.Parse(data)
	return e.Raw, err
}

// itemsFirst reports whether the encoding of the list has its items in field 1 and its metadata in
// field 2.
func (p protoItems) itemsFirst() bool { return p.out.As != "" && p.out.AsVersion == "v1beta1" }

// head appends the protobuf tag and the length for an item of n bytes.
func (p protoItems) head(dst []byte, n int) []byte {
	if p.itemsFirst() {
		return wire.AppendFirstItemHeader(dst, n)
	}
	return wire.AppendItemHeader(dst, n)
}

// append appends a record's item. If possible, it copies the stored bytes and inserts the
// resourceVersion.
func (p protoItems) append(dst []byte, rec *store.Record) ([]byte, error) {
	whole := p.out.As == "" || len(p.v.row.HiddenAnnotations) == 0
	if whole && p.v.splice(rec, func(item wire.Item) {
		if p.out.As != "" {
			item.Metadata()
		}
		dst = item.Append(p.head(dst, item.Size()))
	}) {
		return dst, nil
	}
	raw, err := p.message(rec)
	if err != nil {
		return nil, err
	}
	return append(p.head(dst, len(raw)), raw...), nil
}

// size returns the size in bytes of the encoded list, without its envelope.
func (p protoItems) size(meta []byte, page *store.Page, j *items) (int, error) {
	size := len(wire.AppendListMeta(nil, meta))
	records := page.Records
	for _, run := range runs(page) {
		n, err := 0, error(nil)
		if j.blocked(page, run) {
			n, err = runSize(run, j)
		} else {
			n, err = p.sum(records[:run.N])
		}
		if err != nil {
			return 0, err
		}
		size += n
		records = records[run.N:]
	}
	return size, nil
}

// runSize returns the size in bytes of the encoded items of a run of records.
func runSize(run store.Run, j *items) (int, error) {
	ends, err := run.Block.Ends(&j.Joiner)
	if err != nil {
		return 0, err
	}
	n := int(ends[run.From+run.N-1])
	if run.From > 0 {
		n -= int(ends[run.From-1])
	}
	return n, nil
}

// sum returns the size in bytes of the encoded items of records.
func (p protoItems) sum(records []*store.Record) (int, error) {
	size := 0
	for _, rec := range records {
		raw, err := p.message(rec)
		if err != nil {
			return 0, err
		}
		size += 1 + protowire.SizeBytes(len(raw))
	}
	return size, nil
}

func (p protoItems) form() store.Form {
	if p.out.As != "" {
		return partialForm(negotiate.Protobuf, p.out.AsVersion)
	}
	return p.v.formProto
}

// respondProtoPage sends a list in protobuf.
func (s *Server) respondProtoPage(w http.ResponseWriter, r *http.Request, out negotiate.Output, v *view,
	page *store.Page) error {
	p := protoItems{v, out}
	m := listMeta(page)
	meta, err := m.Marshal()
	if err != nil {
		return err
	}
	j := &items{Joiner: store.Joiner{Form: p.form(), Append: p.append}, one: p.message, head: p.head}
	size, err := p.size(meta, page, j)
	if err != nil {
		return err
	}
	header := wire.NewHeader(v.listGVK.GroupVersion().String(), v.listGVK.Kind)
	if out.As != "" {
		header = wire.NewHeader(metav1.GroupName+"/"+out.AsVersion, out.As)
	}
	a := s.pools.answer(w, r, http.StatusOK, negotiate.Protobuf)
	scratch := header.Begin(make([]byte, 0, 128), size)
	tail := []byte(nil)
	if p.itemsFirst() {
		tail = wire.AppendLastListMeta(nil, meta)
	} else {
		scratch = wire.AppendListMeta(scratch, meta)
	}
	_, _ = a.Write(scratch)
	if err := a.items(page, j, nil); err != nil {
		return a.fail(err)
	}
	_, _ = a.Write(header.End(tail))
	_ = a.Close()
	return nil
}
