// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"keelson.dev/apiserver/store"
)

// audited reports whether somebody listens: what is logged is costly to make.
func audited(r *http.Request, level auditapi.Level) bool {
	ac := audit.AuditContextFrom(r.Context())
	// A context that no policy has looked at counts as enabled, at no level.
	return ac != nil && ac.Enabled() && !ac.GetEventLevel().Less(level)
}

// newAuditCodecs are what audit events encode objects with.
func newAuditCodecs(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

// auditRequest notes the object a client sent, its defaults filled in; of its body,
// if that is not wanted, what it is called.
func (s *Server) auditRequest(r *http.Request, t *target, obj runtime.Object) {
	if !audited(r, auditapi.LevelMetadata) {
		return
	}
	gvk := t.view.gvk
	gvr := gvk.GroupVersion().WithResource(t.row.Resource)
	audit.LogRequestObject(r.Context(), obj, gvk.GroupVersion(), gvr, t.subresource(), s.auditCodecs)
}

func (s *Server) auditConnect(r *http.Request, req *Request, obj runtime.Object) {
	if audited(r, auditapi.LevelMetadata) {
		audit.LogRequestObject(r.Context(), obj, req.Kind.GroupVersion(), req.resource(), req.subresource(), s.auditCodecs)
	}
}

func auditPatch(r *http.Request, body []byte) {
	if audited(r, auditapi.LevelRequest) {
		audit.LogRequestPatch(r.Context(), body)
	}
}

// auditResponse notes the object a client gets.
func (s *Server) auditResponse(r *http.Request, v *view, rec *store.Record) {
	if !audited(r, auditapi.LevelRequestResponse) {
		return
	}
	obj, err := rec.Object()
	if err != nil {
		return
	}
	obj.GetObjectKind().SetGroupVersionKind(v.gvk)
	audit.LogResponseObject(r.Context(), obj, v.gvk.GroupVersion(), s.auditCodecs)
}

// auditStatus notes a Status that a client gets, an error or not.
func auditStatus(r *http.Request, status *metav1.Status) {
	if !audited(r, auditapi.LevelMetadata) {
		return
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	var body *runtime.Unknown
	if audited(r, auditapi.LevelRequestResponse) {
		if data, err := json.Marshal(status); err == nil {
			body = &runtime.Unknown{Raw: data, ContentType: runtime.ContentTypeJSON}
		}
	}
	audit.AuditContextFrom(r.Context()).LogResponseObject(status, body)
}

// auditObject notes an object that no record holds.
func (s *Server) auditObject(r *http.Request, obj runtime.Object, gvk schema.GroupVersionKind) {
	if audited(r, auditapi.LevelRequestResponse) {
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		audit.LogResponseObject(r.Context(), obj, gvk.GroupVersion(), s.auditCodecs)
	}
}

// auditPage notes the list a client gets.
func (s *Server) auditPage(r *http.Request, v *view, page *store.Page) {
	if !audited(r, auditapi.LevelRequestResponse) || v.row.NewList == nil {
		return
	}
	list := v.row.NewList()
	if err := fillList(list, page); err != nil {
		return
	}
	list.GetObjectKind().SetGroupVersionKind(v.listGVK)
	if m, err := meta.ListAccessor(list); err == nil {
		m.SetResourceVersion(strconv.FormatInt(page.Revision, 10))
		m.SetContinue(page.Continue)
		m.SetRemainingItemCount(page.Remaining)
	}
	audit.LogResponseObject(r.Context(), list, v.gvk.GroupVersion(), s.auditCodecs)
}
