// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/table"
	"keelson.dev/apiserver/wire"
)

// tableOptions reads what a Table request may say.
type tableOptions struct {
	include   metav1.IncludeObjectPolicy
	noHeaders bool
}

func parseTableOptions(r *http.Request, out negotiate.Output) (tableOptions, error) {
	o := tableOptions{include: metav1.IncludeMetadata}
	if out.As != "Table" || r.URL.RawQuery == "" {
		return o, nil
	}
	switch v := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject")); v {
	case "", metav1.IncludeMetadata:
	case metav1.IncludeNone, metav1.IncludeObject:
		o.include = v
	default:
		return o, apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", v))
	}
	return o, nil
}

// errNoList has no code of its own in Kubernetes either: clients see 500.
var errNoList = errors.New("content is not a list")

// respondRecord answers with one object.
func (s *Server) respondRecord(w http.ResponseWriter, r *http.Request, out negotiate.Output, code int, v *view, rec *store.Record) error {
	s.auditResponse(r, v, rec)
	switch {
	case out.As == "PartialObjectMetadataList" && v.dynamic:
		return errNoList
	case out.As == "PartialObjectMetadataList":
		return negotiate.NotAcceptableMessage(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (*%s)", resource.InternalName(v.gvk)))
	case out.As == "Table":
		return s.respondTable(w, r, out, code, v, &store.Page{Records: []*store.Record{rec}, Revision: rec.Revision})
	case out.MediaType == negotiate.Protobuf:
		data, err := v.protoAs(rec, out)
		if err != nil {
			return err
		}
		return s.send(w, r, code, negotiate.Protobuf, data)
	case out.As == "" && out.MediaType == negotiate.JSON && !out.Pretty:
		item, err := v.item(rec)
		if err != nil {
			return err
		}
		return s.sendItem(w, r, code, v, item)
	}
	doc, err := v.appendAs(nil, rec, out)
	if err != nil {
		return err
	}
	return s.pools.writeJSON(w, r, out, code, doc)
}

// protoAs is the record as an envelope, or its metadata's.
func (v *view) protoAs(rec *store.Record, out negotiate.Output) ([]byte, error) {
	if out.As == "PartialObjectMetadata" {
		return v.partialProto(rec, out.AsVersion)
	}
	return v.proto(rec)
}

// appendAs appends the record as JSON with its kind, or its metadata's.
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
	_ = a.Close() // the client is gone: nobody to tell
	return nil
}

// sendItem sends a JSON item with its kind, without putting the two together first.
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

// listMeta is the metadata of a page.
func listMeta(page *store.Page) metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: revision(page.Revision), Continue: page.Continue, RemainingItemCount: page.Remaining}
}

func revision(rev int64) string {
	if rev == 0 {
		return ""
	}
	return strconv.FormatInt(rev, 10)
}

// respondPage answers with a list.
func (s *Server) respondPage(w http.ResponseWriter, r *http.Request, out negotiate.Output, v *view, page *store.Page) error {
	switch {
	case out.As == "PartialObjectMetadata":
		return negotiate.NotAcceptableMessage(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (%s)", v.listName()))
	case out.As == "Table":
		return s.respondTable(w, r, out, http.StatusOK, v, page)
	case out.MediaType == negotiate.Protobuf:
		return s.respondProtoPage(w, r, out, v, page)
	case out.MediaType == negotiate.YAML || out.Pretty:
		doc, err := v.appendPage(nil, out, page)
		if err != nil {
			return err
		}
		return s.pools.writeJSON(w, r, out, http.StatusOK, doc)
	}
	return s.streamPage(w, r, out, v, page)
}

func (v *view) listName() string {
	if v.dynamic {
		return "*unstructured.UnstructuredList"
	}
	return "*" + resource.InternalName(v.listGVK)
}

// pageFrame is what stands before and after the items of a JSON list.
func (v *view) pageFrame(out negotiate.Output, page *store.Page) (head, tail []byte, err error) {
	meta, err := marshalJSON(listMeta(page))
	if err != nil {
		return nil, nil, err
	}
	apiVersion, kind := v.listGVK.GroupVersion().String(), v.listGVK.Kind
	if out.As == "PartialObjectMetadataList" {
		apiVersion, kind = metav1.GroupName+"/"+out.AsVersion, out.As
	} else if v.dynamic {
		return dynamicFrame(apiVersion, kind, page)
	}
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind, apiVersion, meta), []byte("]}"), nil
}

// dynamicFrame has the order of keys that an unstructured list has.
func dynamicFrame(apiVersion, kind string, page *store.Page) (head, tail []byte, err error) {
	meta := map[string]any{"continue": page.Continue, "resourceVersion": revision(page.Revision)}
	if page.Remaining != nil {
		meta["remainingItemCount"] = *page.Remaining
	}
	m, err := marshalJSON(meta)
	if err != nil {
		return nil, nil, err
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"items":[`, apiVersion), fmt.Appendf(nil, `],"kind":%q,"metadata":%s}`, kind, m), nil
}

// listItem is one item of a JSON list.
func (v *view) listItem(rec *store.Record, out negotiate.Output) ([]byte, error) {
	if out.As == "PartialObjectMetadataList" {
		return v.partialJSON(rec, out.AsVersion)
	}
	return v.item(rec)
}

func (v *view) appendPage(dst []byte, out negotiate.Output, page *store.Page) ([]byte, error) {
	head, tail, err := v.pageFrame(out, page)
	if err != nil {
		return nil, err
	}
	dst = append(dst, head...)
	for i, rec := range page.Records {
		item, err := v.listItem(rec, out)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, item...)
	}
	return append(dst, tail...), nil
}

// streamPage sends a JSON list item by item.
func (s *Server) streamPage(w http.ResponseWriter, r *http.Request, out negotiate.Output, v *view, page *store.Page) error {
	head, tail, err := v.pageFrame(out, page)
	if err != nil {
		return err
	}
	a := s.pools.answer(w, r, http.StatusOK, negotiate.JSON)
	_, _ = a.Write(head)
	for i, rec := range page.Records {
		item, err := v.listItem(rec, out)
		if err != nil {
			return a.fail(err)
		}
		if i > 0 {
			_, _ = a.Write([]byte{','})
		}
		if _, err := a.Write(item); err != nil {
			break // the client is gone
		}
	}
	_, _ = a.Write(tail)
	_, _ = a.Write([]byte{'\n'})
	_ = a.Close()
	return nil
}

// fail ends an answer that cannot be completed: with an error to send where
// nothing has left, or by breaking the connection.
func (a *answer) fail(err error) error {
	if !a.begun() {
		a.abandon()
		return err
	}
	panic(http.ErrAbortHandler)
}

// respondProtoPage sends a protobuf list made of the objects' envelopes.
func (s *Server) respondProtoPage(w http.ResponseWriter, r *http.Request, out negotiate.Output, v *view, page *store.Page) error {
	raws := make([][]byte, len(page.Records))
	for i, rec := range page.Records {
		data, err := v.protoItem(rec, out)
		if err != nil {
			return err
		}
		raws[i] = data
	}
	m := listMeta(page)
	meta, err := m.Marshal()
	if err != nil {
		return err
	}
	size := wire.ListSize(len(meta), func(yield func(int) bool) {
		for _, raw := range raws {
			if !yield(len(raw)) {
				return
			}
		}
	})
	header := wire.NewHeader(v.listGVK.GroupVersion().String(), v.listGVK.Kind)
	if out.As != "" {
		header = wire.NewHeader(metav1.GroupName+"/"+out.AsVersion, out.As)
	}
	a := s.pools.answer(w, r, http.StatusOK, negotiate.Protobuf)
	scratch := header.Begin(make([]byte, 0, 128), size)
	_, _ = a.Write(wire.AppendListMeta(scratch, meta))
	for _, raw := range raws {
		_, _ = a.Write(wire.AppendItemHeader(scratch[:0], len(raw)))
		if _, err := a.Write(raw); err != nil {
			break
		}
	}
	_, _ = a.Write(header.End(scratch[:0]))
	_ = a.Close()
	return nil
}

// protoItem is the message of one object, as a list holds it.
func (v *view) protoItem(rec *store.Record, out negotiate.Output) ([]byte, error) {
	var data []byte
	var err error
	if out.As == "PartialObjectMetadataList" {
		data, err = v.partialProto(rec, out.AsVersion)
	} else {
		data, err = v.proto(rec)
	}
	if err != nil {
		return nil, err
	}
	e, err := wire.Parse(data)
	return e.Raw, err
}

// respondTable answers with a Table of the page's objects.
func (s *Server) respondTable(w http.ResponseWriter, r *http.Request, out negotiate.Output, code int, v *view, page *store.Page) error {
	o, err := parseTableOptions(r, out)
	if err != nil {
		return err
	}
	doc, err := table.AppendHead(nil, out.AsVersion, listMeta(page), table.Columns(v.row))
	if err != nil {
		return err
	}
	for i, rec := range page.Records {
		if i > 0 {
			doc = append(doc, ',')
		}
		if doc, err = s.appendRow(doc, v, rec, out.AsVersion, o); err != nil {
			return err
		}
	}
	return s.pools.writeJSON(w, r, out, code, table.AppendTail(doc))
}

func (s *Server) appendRow(dst []byte, v *view, rec *store.Record, metaVersion string, o tableOptions) ([]byte, error) {
	obj, err := rec.Shared()
	if err != nil {
		return nil, err
	}
	var object []byte
	switch o.include {
	case metav1.IncludeObject:
		object, err = v.appendObject(nil, rec)
	case metav1.IncludeMetadata:
		object, err = v.partialJSON(rec, metaVersion)
	}
	if err != nil {
		return nil, err
	}
	return table.AppendRow(dst, table.Cells(v.row, obj, s.cfg.Clock.Now()), object)
}

// respond answers with an object that no record holds.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, code int, obj runtime.Object) error {
	out, err := negotiate.Accept(r, negotiate.Standard())
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
	return s.pools.writeObject(w, r, out, code, obj, gvk)
}
