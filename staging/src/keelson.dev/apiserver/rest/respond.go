// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/wire"
)

// errNoList has no Status, so clients get status code 500, as in Kubernetes.
var errNoList = errors.New("content is not a list")

// respondRecord sends one object, and adds it to the audit event.
func (s *Server) respondRecord(w http.ResponseWriter, r *http.Request, out negotiate.Output, code int, t *target,
	rec *store.Record) error {
	s.auditResponse(r, out, t.view, rec)
	t.span.Event(eventRespond)
	defer t.span.Event(eventResponded)
	w, r, span := serialize(w, r, out, t.view.gvk.GroupVersion())
	defer span.end()
	return s.writeRecord(w, r, out, code, t.view, rec)
}

// writeRecord sends one object.
func (s *Server) writeRecord(w http.ResponseWriter, r *http.Request, out negotiate.Output, code int, v *view,
	rec *store.Record) error {
	switch {
	case out.As == "PartialObjectMetadataList" && v.dynamic:
		return errNoList
	case out.As == "PartialObjectMetadataList":
		return notAList(v.internalName(v.gvk.Kind))
	case out.As == "Table":
		return s.respondTable(w, r, out, code, v, v.row,
			&store.Page{Records: []*store.Record{rec}, Revision: rec.Revision})
	case out.MediaType == negotiate.Protobuf:
		return s.pools.withBuffer(func(dst []byte) ([]byte, error) { return v.appendProtoAs(dst, rec, out) },
			func(data []byte) error {
				return s.send(w, r, code, negotiate.Protobuf, data)
			})
	case out.As == "" && out.MediaType == negotiate.JSON && !out.Pretty:
		return s.pools.withBuffer(func(dst []byte) ([]byte, error) { return v.appendOnce(dst, rec) },
			func(item []byte) error {
				return s.sendItem(w, r, code, v, item)
			})
	}
	doc, err := v.appendAs(nil, rec, out)
	if err != nil {
		return err
	}
	return s.pools.writeJSON(w, r, out, code, doc)
}

// appendProtoAs appends the object of a record, or its metadata, in a protobuf envelope. An envelope
// that can be made from the stored bytes is not kept in the record.
func (v *view) appendProtoAs(dst []byte, rec *store.Record, out negotiate.Output) ([]byte, error) {
	if out.As == "" && v.splice(rec, func(item wire.Item) { dst = v.header.AppendItem(dst, &item) }) {
		return dst, nil
	}
	data, err := v.protoAs(rec, out)
	return append(dst, data...), err
}

// appendOnce appends an item (see view.item) for a single response. An item that can be made from the
// stored bytes is not kept in the record, because that would take much memory and save little time.
func (v *view) appendOnce(dst []byte, rec *store.Record) ([]byte, error) {
	if v.program != nil && v.program() != nil {
		return v.appendItem(dst, rec)
	}
	item, err := v.item(rec)
	return append(dst, item...), err
}

// protoAs returns the object of a record, or its metadata, in a protobuf envelope.
func (v *view) protoAs(rec *store.Record, out negotiate.Output) ([]byte, error) {
	if out.As == "PartialObjectMetadata" {
		return v.partialProto(rec, out.AsVersion)
	}
	return v.proto(rec)
}

// appendAs appends the object of a record, or its metadata, as JSON with kind and apiVersion.
func (v *view) appendAs(dst []byte, rec *store.Record, out negotiate.Output) ([]byte, error) {
	if out.As != "PartialObjectMetadata" {
		return v.appendObject(dst, rec)
	}
	b, err := v.partialJSON(rec, out.AsVersion)
	return append(dst, b...), err
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, code int, mediaType string, data []byte) error {
	a := s.pools.answer(w, r, code, mediaType)
	_, _ = a.Write(data)
	_ = a.Close() // fails if the client has closed the connection
	return nil
}

// sendItem sends a JSON item with its kind and apiVersion inserted. It avoids copying the item.
func (s *Server) sendItem(w http.ResponseWriter, r *http.Request, code int, v *view, item []byte) error {
	a := s.pools.answer(w, r, code, negotiate.JSON)
	a.item(v, item)
	_, _ = a.Write([]byte{'\n'})
	_ = a.Close()
	return nil
}

func (a *answer) item(v *view, item []byte) {
	if v.dynamic {
		_, _ = a.Write(item)
		return
	}
	_, _ = a.Write([]byte{'{'})
	_, _ = a.Write(v.jsonHead)
	if len(item) > 2 {
		_, _ = a.Write([]byte{','})
	}
	_, _ = a.Write(item[1:])
}

// unrecorded returns the offer for objects that have no store record. They cannot be sent as a
// Table.
func unrecorded() negotiate.Offer {
	offer := negotiate.Standard()
	offer.Transforms, offer.NoTables = true, true
	return offer
}

// respond sends an object that has no store record, or its metadata.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, code int, obj runtime.Object) error {
	out, err := negotiate.Accept(r, unrecorded())
	if err != nil {
		return err
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		kinds, _, err := s.cfg.Scheme.ObjectKinds(obj)
		if err != nil {
			return err
		}
		gvk = kinds[0]
	}
	s.auditObject(r, obj, gvk)
	// A Status has no metadata, so it is always sent as a whole.
	if meta, ok := obj.(metav1.Object); ok && out.As != "" {
		if out.As == "PartialObjectMetadataList" {
			return notAList(resource.InternalName(gvk))
		}
		obj, gvk = partial(meta), schema.GroupVersionKind{Group: metav1.GroupName, Version: out.AsVersion, Kind: out.As}
	}
	return s.pools.writeObject(w, r, out, code, obj, gvk)
}

// notAList returns the error for a client that requests one object in the form of a list. name is
// the type of the object.
func notAList(name string) error {
	return negotiate.NotAcceptableMessage(
		fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (*%s)", name))
}
