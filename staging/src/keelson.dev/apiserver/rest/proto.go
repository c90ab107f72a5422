// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/wire"
)

// protoItems makes the items of a protobuf list.
type protoItems struct {
	v   *view
	out negotiate.Output
}

// item returns a record's message: spliced where its bytes allow, else made.
func (p protoItems) item(rec *store.Record) (spliced wire.Item, made []byte, err error) {
	if spliced, ok := p.v.splice(rec); ok {
		if p.out.As != "" {
			spliced.Metadata()
		}
		return spliced, nil, nil
	}
	var data []byte
	if p.out.As != "" {
		data, err = p.v.partialProto(rec, p.out.AsVersion)
	} else {
		data, err = p.v.proto(rec)
	}
	if err != nil {
		return spliced, nil, err
	}
	e, err := wire.Parse(data)
	return spliced, e.Raw, err
}

// append appends a record's item as a list holds it.
func (p protoItems) append(dst []byte, rec *store.Record) ([]byte, error) {
	item, made, err := p.item(rec)
	if err != nil {
		return nil, err
	}
	if made != nil {
		return append(wire.AppendItemHeader(dst, len(made)), made...), nil
	}
	return item.Append(wire.AppendItemHeader(dst, item.Size())), nil
}

// size is the size of the list without its envelope.
func (p protoItems) size(meta int, page *store.Page) (int, error) {
	var failed error
	size := wire.ListSize(meta, func(yield func(int) bool) {
		for _, rec := range page.Records {
			item, made, err := p.item(rec)
			n := item.Size()
			if made != nil {
				n = len(made)
			}
			if err != nil {
				failed = err
				return
			}
			if !yield(n) {
				return
			}
		}
	})
	return size, failed
}

func (p protoItems) form() store.Form {
	if p.out.As != "" {
		return partialForm(negotiate.Protobuf, p.out.AsVersion)
	}
	return p.v.formProto
}

// respondProtoPage sends a protobuf list made of the objects' messages.
func (s *Server) respondProtoPage(w http.ResponseWriter, r *http.Request, out negotiate.Output, v *view, page *store.Page) error {
	p := protoItems{v, out}
	m := listMeta(page)
	meta, err := m.Marshal()
	if err != nil {
		return err
	}
	size, err := p.size(len(meta), page)
	if err != nil {
		return err
	}
	header := wire.NewHeader(v.listGVK.GroupVersion().String(), v.listGVK.Kind)
	if out.As != "" {
		header = wire.NewHeader(metav1.GroupName+"/"+out.AsVersion, out.As)
	}
	a := s.pools.answer(w, r, http.StatusOK, negotiate.Protobuf)
	scratch := header.Begin(make([]byte, 0, 128), size)
	_, _ = a.Write(wire.AppendListMeta(scratch, meta))
	if a.gzip && size > bufferSize {
		err = a.items(page, &items{Joiner: store.Joiner{Form: p.form(), Append: p.append}}, nil)
	} else {
		err = a.protoItems(page, p)
	}
	if err != nil {
		return a.fail(err)
	}
	_, _ = a.Write(header.End(scratch[:0]))
	_ = a.Close()
	return nil
}

// protoItems puts items together where they are sent from.
func (a *answer) protoItems(page *store.Page, p protoItems) error {
	for _, rec := range page.Records {
		var err error
		if *a.held, err = p.append(*a.held, rec); err != nil {
			return err
		}
		if len(*a.held) > bufferSize {
			a.flush()
		}
		if a.err != nil {
			return nil // the client is gone
		}
	}
	return nil
}
