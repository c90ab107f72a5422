// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/table"
)

// tableOptions are the query parameters of a request for a Table.
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
		return o, apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: "+
			"includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", v))
	}
	return o, nil
}

// respondTable sends a Table of the page's objects. row makes the cells.
func (s *Server) respondTable(w http.ResponseWriter, r *http.Request, out negotiate.Output, code int, v *view,
	row *resource.Row, page *store.Page) error {
	o, err := parseTableOptions(r, out)
	if err != nil {
		return err
	}
	if page, err = inOrder(v, page); err != nil {
		return err
	}
	head, err := table.AppendHead(nil, out.AsVersion, listMeta(page), table.Columns(row))
	if err != nil {
		return err
	}
	if len(page.Records) == 0 && row.Columns == nil && !v.dynamic {
		// For a built-in kind without columns of its own, an empty list of rows is null.
		return s.pools.writeJSON(w, r, out, code, append(bytes.TrimSuffix(head, []byte("[")), "null}"...))
	}
	rows := s.tableRows(v, row, out.AsVersion, o)
	if out.MediaType == negotiate.YAML {
		doc := head
		for i, rec := range page.Records {
			if i > 0 {
				doc = append(doc, ',')
			}
			if doc, err = s.appendRow(doc, v, row, rec, out.AsVersion, o); err != nil {
				return err
			}
		}
		return s.pools.writeJSON(w, r, out, code, table.AppendTail(doc))
	}
	now := s.cfg.Clock.Now()
	a := s.pools.answer(w, r, code, negotiate.JSON).pretty(out)
	_, _ = a.Write(head)
	err = a.items(page, rows, func(text []byte) {
		s.ages.Fill(text, now, func(part []byte) { _, _ = a.Write(part) })
	})
	if err != nil {
		return a.fail(err)
	}
	_, _ = a.Write(table.AppendTail(nil))
	if !out.Pretty {
		_, _ = a.Write([]byte{'\n'})
	}
	_ = a.Close()
	return nil
}

// forList returns the row of the kind table and the page for the Table of a list. If cells depend on the
// whole list, the page has no runs, because encoded blocks are kept for other lists.
func forList(row *resource.Row, page *store.Page) (*resource.Row, *store.Page, error) {
	if row.ListCells == nil {
		return row, page, nil
	}
	objects := make([]store.Object, len(page.Records))
	for i, rec := range page.Records {
		var err error
		if objects[i], err = rec.Shared(); err != nil {
			return nil, nil, err
		}
	}
	listed, list := *row, *page
	listed.Cells, list.Runs = row.ListCells(objects), nil
	return &listed, &list, nil
}

// inOrder returns the page with its records in the order of the table's rows.
func inOrder(v *view, page *store.Page) (*store.Page, error) {
	order := v.row.RowOrder
	if order == nil || len(page.Records) < 2 {
		return page, nil
	}
	objects := make(map[*store.Record]store.Object, len(page.Records))
	for _, rec := range page.Records {
		obj, err := rec.Shared()
		if err != nil {
			return nil, err
		}
		objects[rec] = obj
	}
	out := *page
	out.Runs = nil
	out.Records = slices.Clone(page.Records)
	slices.SortStableFunc(out.Records, func(a, b *store.Record) int { return order(objects[a], objects[b]) })
	return &out, nil
}

// tableRows returns the encoder for the rows of a Table. Everything in a row except ages depends
// only on the object. So the encoder writes placeholders for ages, and the rows can be cached.
func (s *Server) tableRows(v *view, row *resource.Row, metaVersion string, o tableOptions) *items {
	variant := v.gvk.Version + "/Table/" + metaVersion + "/" + string(o.include)
	cells := v.cells()
	return &items{Joiner: store.Joiner{
		Form: store.Form{MediaType: negotiate.JSON, Variant: variant}, Separator: ",",
		Append: func(dst []byte, rec *store.Record) ([]byte, error) {
			obj, err := rec.ReadPart(cells)
			if err != nil {
				return nil, err
			}
			if dst, err = table.AppendLine(dst, s.ages.LineOf(row, obj)); err != nil {
				return nil, err
			}
			dst, err = v.appendRowObject(dst, rec, metaVersion, o)
			return append(dst, '}'), err
		},
	}}
}

// appendRowObject appends the part of the object that its row includes, as o requires.
func (v *view) appendRowObject(dst []byte, rec *store.Record, metaVersion string, o tableOptions) ([]byte, error) {
	switch o.include {
	case metav1.IncludeObject:
		return v.appendObject(dst, rec)
	case metav1.IncludeMetadata:
		return v.appendPartial(dst, rec, metaVersion)
	}
	return append(dst, "null"...), nil
}

// appendRow appends the row for a record, with the present ages. row makes the cells.
func (s *Server) appendRow(dst []byte, v *view, row *resource.Row, rec *store.Record, metaVersion string,
	o tableOptions) ([]byte, error) {
	obj, err := rec.Shared()
	if err != nil {
		return nil, err
	}
	line := table.LineOf(row, obj, s.cfg.Clock.Now())
	if o.include == metav1.IncludeMetadata {
		object, err := v.partialJSON(rec, metaVersion)
		if err != nil {
			return nil, err
		}
		return table.AppendRow(dst, line, object)
	}
	if dst, err = table.AppendLine(dst, line); err != nil {
		return nil, err
	}
	dst, err = v.appendRowObject(dst, rec, metaVersion, o)
	return append(dst, '}'), err
}
