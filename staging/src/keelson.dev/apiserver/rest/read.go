// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	optionsvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/apiserver/negotiate"
)

func (s *Server) get(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output) error {
	options, err := getOptions(r)
	if err != nil {
		return err
	}
	if err := t.checkKey(); err != nil {
		return err
	}
	t.span.Event(eventRead)
	rec, err := t.registry.Get(r.Context(), t.namespace, t.name, options.ResourceVersion)
	if err == nil {
		err = s.respondRecord(w, r, out, http.StatusOK, t, rec)
	}
	return unreadable(t.row, err)
}

// getOptions returns the options of a read. It returns an error if the client requests an export,
// which Kubernetes no longer supports.
func getOptions(r *http.Request) (metav1.GetOptions, error) {
	var o metav1.GetOptions
	q := query(r)
	if said := q["export"]; len(said) > 0 && said[0] != "0" && !strings.EqualFold(said[0], "false") {
		return o, apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	return o, parameters(q, &o)
}

// listOptions returns the options of a list or a watch, after it has validated them.
func (s *Server) listOptions(r *http.Request, t *target) (metav1.ListOptions, error) {
	var o metav1.ListOptions
	if err := parameters(query(r), &o); err != nil {
		return o, err
	}
	if err := readableSelectors(&o); err != nil {
		return o, err
	}
	// The options decide here whether the request is a watch, not the path.
	internal := internalversion.ListOptions{
		Watch: o.Watch, AllowWatchBookmarks: o.AllowWatchBookmarks, ResourceVersion: o.ResourceVersion,
		ResourceVersionMatch: o.ResourceVersionMatch, Limit: o.Limit, Continue: o.Continue,
		SendInitialEvents: o.SendInitialEvents,
	}
	// This sets sendInitialEvents for a watch without a resourceVersion, even if the client has not
	// set it.
	internalversion.SetListOptionsDefaults(&internal, !s.cfg.NoWatchList)
	o.SendInitialEvents, o.ResourceVersionMatch = internal.SendInitialEvents, internal.ResourceVersionMatch
	if err := invalidOptions("ListOptions",
		optionsvalidation.ValidateListOptions(&internal, !s.cfg.NoWatchList)); err != nil {
		return o, err
	}
	if t.name == "" || t.verb == "deletecollection" {
		return o, nil
	}
	return o, nameSelector(&o, t.name)
}

// readableSelectors returns an error for selectors that cannot be parsed. Kubernetes parses
// selectors together with the other options, before it validates the options.
func readableSelectors(o *metav1.ListOptions) error {
	if _, err := labels.Parse(o.LabelSelector); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if _, err := fields.ParseSelector(o.FieldSelector); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// nameSelector restricts a list to one object: the one named in the path. It returns an error if
// the field selector requires another name.
func nameSelector(o *metav1.ListOptions, name string) error {
	selector, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if selector.Empty() { // no terms, or only an empty one
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		return nil
	}
	if selected, ok := selector.RequiresExactMatch("metadata.name"); !ok || selected != name {
		return apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return nil
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output) error {
	o, err := s.listOptions(r, t)
	if err != nil {
		return err
	}
	page, err := t.registry.List(r.Context(), t.namespace, o)
	if err != nil {
		return err
	}
	if err = page.ReadError(); err == nil {
		err = s.respondPage(w, r, out, t.view, page)
	}
	return unreadableList(t, page, err)
}
