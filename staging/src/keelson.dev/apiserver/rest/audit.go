// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	autoscaling "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// audited reports whether the request's audit event includes the content of the given level.
// Callers check this first, because preparing an object for the audit log is expensive.
func audited(r *http.Request, level auditapi.Level) bool {
	ac := audit.AuditContextFrom(r.Context())
	// An audit context without an audit policy is enabled, but has no level.
	return ac != nil && ac.Enabled() && !ac.GetEventLevel().Less(level)
}

// newAuditCodecs returns the codecs that encode objects in audit events.
func newAuditCodecs(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

// auditRequest adds to the audit event the object that a client sent, with its defaults. At a level
// without bodies, it adds only the object's name.
func (s *Server) auditRequest(r *http.Request, t *target, obj runtime.Object) {
	if !audited(r, auditapi.LevelMetadata) {
		return
	}
	gvk := t.view.gvk
	gvr := gvk.GroupVersion().WithResource(t.row.Resource)
	audit.LogRequestObject(r.Context(), obj, gvk.GroupVersion(), gvr, t.subresource(), s.auditCodecs)
}

// auditConverted adds to the audit event an object that a client sent in a version other than the
// storage version. stored is the object in the storage version. auditConverted converts it back, so
// that the object in the event has the defaults that a conversion sets.
func (s *Server) auditConverted(r *http.Request, t *target, v *resource.Version, stored resource.Object) error {
	if !audited(r, auditapi.LevelMetadata) {
		return nil
	}
	obj, err := v.FromStorage(stored.DeepCopyObject().(resource.Object))
	if err != nil {
		return err
	}
	s.auditRequest(r, t, obj)
	return nil
}

// auditDeleteOptions adds to the audit event the DeleteOptions that a client sent. It records them
// in the internal version, as Kubernetes does. DeleteOptions have the same fields in all versions.
func auditDeleteOptions(r *http.Request, t *target, options metav1.DeleteOptions) {
	if !audited(r, auditapi.LevelMetadata) {
		return
	}
	internal := schema.GroupVersion{Group: metav1.GroupName, Version: runtime.APIVersionInternal}
	gvr := t.view.gvk.GroupVersion().WithResource(t.row.Resource)
	audit.LogRequestObject(r.Context(), &options, internal, gvr, t.subresource(), metascheme.Codecs.WithoutConversion())
}

// auditConnect adds to the audit event the object in the body of a request that a Create function
// answers, for example a SubjectAccessReview or an Eviction. gv is the version of the object in the
// body.
func (s *Server) auditConnect(r *http.Request, req *connection, obj runtime.Object, gv schema.GroupVersion) {
	if audited(r, auditapi.LevelMetadata) {
		audit.LogRequestObject(r.Context(), obj, gv, req.resource(), req.subresource(), s.auditCodecs)
	}
}

// auditScale adds to the audit event a Scale that a client sent.
func (s *Server) auditScale(r *http.Request, t *target, scale *autoscaling.Scale) {
	if audited(r, auditapi.LevelMetadata) {
		gvr := t.view.gvk.GroupVersion().WithResource(t.row.Resource)
		audit.LogRequestObject(r.Context(), scale, scaleKind().GroupVersion(), gvr, t.subresource(), s.auditCodecs)
	}
}

func auditPatch(r *http.Request, body []byte) {
	if audited(r, auditapi.LevelRequest) {
		audit.LogRequestPatch(r.Context(), body)
	}
}

// auditForm adds to the audit event a response that is a Table, a PartialObjectMetadata or a
// PartialObjectMetadataList. It gets this object by decoding the JSON that the function respond
// writes.
func auditForm(r *http.Request, out negotiate.Output,
	respond func(w http.ResponseWriter, r *http.Request, out negotiate.Output) error) {
	plain := r.Clone(r.Context())
	plain.Header.Del("Accept-Encoding")
	out.MediaType, out.Pretty = negotiate.JSON, false
	w := &transcript{header: http.Header{}}
	if err := respond(w, plain, out); err != nil {
		return // the client gets the error from the caller
	}
	obj := map[string]runtime.Object{
		"Table": &metav1.Table{}, "PartialObjectMetadata": &metav1.PartialObjectMetadata{},
		"PartialObjectMetadataList": &metav1.PartialObjectMetadataList{},
	}[out.As]
	if obj == nil || json.Unmarshal(w.Bytes(), obj) != nil {
		return
	}
	if table, ok := obj.(*metav1.Table); ok {
		openRows(table)
	}
	audit.LogResponseObject(r.Context(), obj, obj.GetObjectKind().GroupVersionKind().GroupVersion(),
		metascheme.Codecs.WithoutConversion())
}

// openRows decodes the objects in the rows of a table, so that the audit log can remove their
// managed fields.
func openRows(table *metav1.Table) {
	for i := range table.Rows {
		row := &table.Rows[i].Object
		if row.Raw == nil {
			continue
		}
		var obj runtime.Object = &metav1.PartialObjectMetadata{}
		if json.Unmarshal(row.Raw, obj) == nil && obj.GetObjectKind().GroupVersionKind().Kind != "PartialObjectMetadata" {
			obj = &unstructured.Unstructured{}
		}
		if json.Unmarshal(row.Raw, obj) == nil {
			*row = runtime.RawExtension{Object: obj}
		}
	}
}

// transcript is a response writer that keeps the response in memory.
type transcript struct {
	bytes.Buffer
	header http.Header
}

// Header implements http.ResponseWriter.
func (t *transcript) Header() http.Header { return t.header }

// WriteHeader implements http.ResponseWriter.
func (*transcript) WriteHeader(int) {}

// auditResponse adds to the audit event the object that is sent to a client.
func (s *Server) auditResponse(r *http.Request, out negotiate.Output, v *view, rec *store.Record) {
	if !audited(r, auditapi.LevelRequestResponse) {
		return
	}
	if out.As != "" {
		auditForm(r, out, func(w http.ResponseWriter, r *http.Request, out negotiate.Output) error {
			return s.writeRecord(w, r, out, http.StatusOK, v, rec)
		})
		return
	}
	shared, err := v.object(rec)
	if err != nil {
		return
	}
	obj := shared.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(v.gvk)
	audit.LogResponseObject(r.Context(), obj, v.gvk.GroupVersion(), s.auditCodecs)
}

// auditStatus adds to the audit event a Status that is sent to a client.
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

// auditObject adds to the audit event an object that has no store record.
func (s *Server) auditObject(r *http.Request, obj runtime.Object, gvk schema.GroupVersionKind) {
	if status, ok := obj.(*metav1.Status); ok {
		auditStatus(r, status)
	} else if audited(r, auditapi.LevelRequestResponse) {
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		audit.LogResponseObject(r.Context(), obj, gvk.GroupVersion(), s.auditCodecs)
	}
}

// auditPage adds to the audit event the list that is sent to a client.
func (s *Server) auditPage(r *http.Request, out negotiate.Output, v *view, page *store.Page) {
	if !audited(r, auditapi.LevelRequestResponse) {
		return
	}
	if out.As != "" {
		auditForm(r, out, func(w http.ResponseWriter, r *http.Request, out negotiate.Output) error {
			return s.writePage(w, r, out, v, page)
		})
		return
	}
	if v.row.NewList == nil {
		return
	}
	list := v.row.NewList()
	if v.version != nil && v.version.FromStorage != nil && s.cfg.Scheme.Recognizes(v.listGVK) {
		var err error
		if list, err = s.cfg.Scheme.New(v.listGVK); err != nil {
			return
		}
	}
	if err := fillList(list, v, page); err != nil {
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
