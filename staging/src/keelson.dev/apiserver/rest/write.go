// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/wire"
)

func (s *Server) create(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output) error {
	if _, err := negotiate.ContentType(r, negotiate.Standard().MediaTypes); err != nil {
		return err
	}
	body, err := s.readBodyOf(r, t)
	if err != nil {
		return err
	}
	var options metav1.CreateOptions
	if err := parameters(query(r), &options); err != nil {
		return err
	}
	if err := invalidOptions("CreateOptions", validation.ValidateCreateOptions(&options)); err != nil {
		return err
	}
	obj, err := s.decodeObject(r, t, body, options.FieldValidation)
	if err != nil {
		return err
	}
	t.span.Event(eventStore)
	rec, err := t.registry.CreateIn(r.Context(), t.info.APIVersion, t.namespace, obj, options)
	t.wrote(err)
	if err != nil {
		return err
	}
	return s.respondRecord(w, r, out, http.StatusCreated, t, rec)
}

// decodeObject decodes a body into an object, applies defaults, and converts the object to the
// storage version.
func (s *Server) decodeObject(r *http.Request, t *target, body []byte, fieldValidation string) (_ resource.Object,
	err error) {
	t.span.Event(eventConvert)
	defer func() {
		if err == nil {
			t.span.Event(eventConverted)
		}
	}()
	v := t.view.version
	into := t.row.New
	if v != nil && v.New != nil {
		into = v.New
	}
	obj := into()
	if fieldValidation == "" {
		fieldValidation = metav1.FieldValidationWarn
	}
	if t.options.Structure != nil {
		err = s.decodeCustom(r, t, body, obj, fieldValidation)
	} else {
		_, err = s.decode(r, body, t.view.gvk, obj, fieldValidation, nil)
	}
	if err != nil {
		return nil, err
	}
	if readable := t.row.Readable; readable != nil {
		if err := readable(obj); err != nil {
			return nil, decodeError(err, t.view.gvk, &t.view.gvk, body)
		}
	}
	switch {
	case v != nil && v.Default != nil:
		v.Default(obj)
	case v == nil || v.New == nil:
		if t.row.Default != nil {
			t.row.Default(obj)
		}
	}
	if v == nil || v.ToStorage == nil {
		s.auditRequest(r, t, obj)
		return obj, nil
	}
	stored, err := v.ToStorage(obj)
	if err != nil {
		return nil, err
	}
	return stored, s.auditConverted(r, t, v, stored)
}

// decodeCustom decodes a body into obj, for a resource whose options have a Structure function. The
// registry later rejects objects of another kind.
func (s *Server) decodeCustom(r *http.Request, t *target, body []byte, obj resource.Object,
	fieldValidation string) error {
	mediaType, err := negotiate.ContentType(r, negotiate.Standard().MediaTypes)
	if err != nil {
		return err
	}
	strict := fieldValidation != metav1.FieldValidationIgnore
	var findings []error
	want := t.view.gvk
	gvk, err := s.decodeAs(mediaType, body, want, obj, strict)
	if err != nil {
		found, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return decodeError(err, want, gvk, body)
		}
		findings = found.Errors()
		want.Kind = obj.GetObjectKind().GroupVersionKind().Kind
	}
	more, err := t.options.Structure(t.info.APIVersion, obj, strict)
	if err != nil {
		return decodeError(err, want, gvk, body)
	}
	if findings = append(findings, more...); len(findings) > 0 {
		if fieldValidation == metav1.FieldValidationStrict {
			return decodeError(runtime.NewStrictDecodingError(findings), want, gvk, body)
		}
		registry.WarnStrict(r.Context(), findings)
	}
	return checkVersion(gvk.GroupVersion(), t.view.gvk.GroupVersion())
}

func (s *Server) update(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output) error {
	body, err := s.readBodyOf(r, t)
	if err != nil {
		return err
	}
	var options metav1.UpdateOptions
	if err := parameters(query(r), &options); err != nil {
		return err
	}
	if err := invalidOptions("UpdateOptions", validation.ValidateUpdateOptions(&options)); err != nil {
		return err
	}
	obj, err := s.decodeObject(r, t, body, options.FieldValidation)
	if err != nil {
		return err
	}
	if err := matchNamespace(t.namespace, obj); err != nil {
		return err
	}
	if err := registry.CheckName(obj, t.namespace, t.name); err != nil {
		return err
	}
	if err := t.checkKey(); err != nil {
		return err
	}
	uid := obj.GetUID()
	u := registry.Update{
		Namespace: t.namespace, Name: t.name, Subresource: t.subresource(), Version: t.info.APIVersion, Options: options,
		Blind: true,
		Transform: func(context.Context, resource.Object) (resource.Object, error) {
			if next := obj; next != nil {
				obj = nil // from here on the registry may modify the object
				return next, nil
			}
			next, err := s.decodeObject(r, t, body, metav1.FieldValidationIgnore)
			if err != nil {
				return nil, err
			}
			return next, matchNamespace(t.namespace, next)
		},
	}
	if uid != "" {
		u.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	t.span.Event(eventStore)
	rec, created, err := t.registry.Update(r.Context(), u)
	t.wrote(err)
	if err != nil {
		return err
	}
	return s.respondRecord(w, r, out, codeOf(created), t, rec)
}

func codeOf(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// matchNamespace sets obj's namespace to that of the path, which may be empty. It returns an error
// if both are set and differ.
func matchNamespace(namespace string, obj metav1.Object) error {
	switch have := obj.GetNamespace(); {
	case have == namespace:
		return nil
	case have == "", namespace == "":
		obj.SetNamespace(namespace)
		return nil
	}
	return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
}

// patchTypes returns the content types that patches may have. Strategic merge patches need a Go
// type.
func patchTypes(dynamic bool) []string {
	if dynamic {
		return []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}
	}
	return []string{
		string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType),
		string(types.ApplyYAMLPatchType),
	}
}

// patchType returns the type of a patch. It is the part of the Content-Type header before the
// parameters, and must match exactly.
func patchType(r *http.Request, dynamic bool) (types.PatchType, error) {
	header := r.Header.Get("Content-Type")
	allowed := patchTypes(dynamic)
	if mediaType, _, _ := strings.Cut(header, ";"); slices.Contains(allowed, mediaType) {
		return types.PatchType(mediaType), nil
	}
	if dynamic || namesOneOf(header, allowed) {
		return "", negotiate.UnsupportedMediaType(allowed)
	}
	return "", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "415: Unsupported Media Type", Details: &metav1.StatusDetails{},
	}}
}

// namesOneOf reports whether a header contains one of the types in allowed. It reads the header as
// a list, as Kubernetes' router does; the handler then rejects lists with another error.
func namesOneOf(header string, allowed []string) bool {
	for part := range strings.SplitSeq(header, ",") {
		mediaType, _, _ := strings.Cut(part, ";")
		if slices.Contains(allowed, strings.TrimSpace(mediaType)) {
			return true
		}
	}
	return false
}

// patchOptions returns the type, the body and the options of a patch.
func (s *Server) patchOptions(r *http.Request, t *target) (kind types.PatchType, body []byte,
	options metav1.PatchOptions, err error) {
	if kind, err = patchType(r, t.view.dynamic); err != nil {
		return "", nil, options, err
	}
	if body, err = s.readBodyOf(r, t); err != nil {
		return "", nil, options, err
	}
	if err = parameters(query(r), &options); err != nil {
		return "", nil, options, err
	}
	return kind, body, options, invalidOptions("PatchOptions", validation.ValidatePatchOptions(&options, kind))
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output) error {
	kind, body, options, err := s.patchOptions(r, t)
	if err != nil {
		return err
	}
	auditPatch(r, body)
	t.span.Event(eventRecorded)
	if err := t.checkKey(); err != nil {
		return err
	}
	rec, created, err := t.registry.Patch(r.Context(), registry.Patch{
		Namespace: t.namespace, Name: t.name, Subresource: t.subresource(), Version: t.info.APIVersion,
		Type: kind, Data: body, Options: options,
	})
	if err != nil {
		return err
	}
	t.span.Event("Object stored in database")
	return s.respondRecord(w, r, out, codeOf(created), t, rec)
}

// deleteOptions returns the options of a delete, from its body or its query.
func (s *Server) deleteOptions(r *http.Request, t *target) (metav1.DeleteOptions, error) {
	var options metav1.DeleteOptions
	body, err := s.readBodyOf(r, t)
	if err != nil {
		return options, err
	}
	if len(body) > 0 {
		mediaType, err := negotiate.ContentType(r, negotiate.Standard().MediaTypes)
		if err != nil {
			return options, err
		}
		if err := decodeDeleteOptions(mediaType, body, &options); err != nil {
			return options, apierrors.NewBadRequest(err.Error())
		}
		t.span.Event("Decoded delete options")
		auditDeleteOptions(r, t, options)
		t.span.Event(eventRecorded)
	} else if err := parameters(query(r), &options); err != nil {
		return options, err
	}
	if err := invalidOptions("DeleteOptions", validation.ValidateDeleteOptions(&options)); err != nil {
		return options, err
	}
	if t.row.OrphanWarning != "" && options.PropagationPolicy == nil &&
		options.OrphanDependents == nil { //nolint:staticcheck // part of the API
		warning.AddWarning(r.Context(), "", t.row.OrphanWarning)
	}
	return options, nil
}

// decodeDeleteOptions decodes the options of a delete. They may declare any API group version,
// because the kind is the same in all of them.
func decodeDeleteOptions(mediaType string, body []byte, into *metav1.DeleteOptions) error {
	info, _ := runtime.SerializerInfoForMediaType(metascheme.Codecs.SupportedMediaTypes(), mediaType)
	kind := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	obj, _, err := metascheme.Codecs.DecoderToVersion(info.Serializer, kind.GroupVersion()).Decode(body, &kind, into)
	if err == nil && obj != into {
		return errors.New("decoded object cannot be converted to DeleteOptions")
	}
	return err
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output) error {
	options, err := s.deleteOptions(r, t)
	if err != nil {
		return err
	}
	if err := t.checkKey(); err != nil {
		return err
	}
	if ignore := options.IgnoreStoreReadErrorWithClusterBreakingPotential; ignore != nil && *ignore {
		return s.deleteCorrupt(w, r, t, out, options)
	}
	orphan := options.OrphanDependents // deprecated, but a part of the API
	t.span.Event(eventDelete)
	rec, gone, err := t.registry.DeleteIn(r.Context(), t.info.APIVersion, t.namespace, t.name, options)
	if err != nil {
		return unreadable(t.row, err)
	}
	t.span.Event(eventDeleted)
	code := http.StatusOK
	if !gone && orphan != nil && !*orphan {
		code = http.StatusAccepted
	}
	if !gone || t.row.ReturnsDeleted(t.info.APIVersion) || rec.Revision == 0 {
		return s.respondRecord(w, r, out, code, t, rec)
	}
	status := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: t.name, Group: t.row.Group, Kind: t.row.Resource, // Kubernetes has the resource in this field
	}}
	status.Details.UID = uidOf(rec)
	return s.respondStatus(w, r, t, out, code, status)
}

// deleteCorrupt removes an object that cannot be read.
func (s *Server) deleteCorrupt(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output,
	options metav1.DeleteOptions) error {
	t.span.Event(eventDelete)
	if err := t.registry.DeleteCorrupt(r.Context(), t.info.APIVersion, t.namespace, t.name, options); err != nil {
		return err
	}
	t.span.Event(eventDeleted)
	return s.respondStatus(w, r, t, out, http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK,
		Details: &metav1.StatusDetails{Name: t.name, Kind: t.view.gvk.Kind}})
}

// respondStatus sends a Status, and adds it to the audit event.
func (s *Server) respondStatus(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output, code int,
	status *metav1.Status) error {
	auditStatus(r, status)
	t.span.Event(eventRespond)
	defer t.span.Event(eventResponded)
	return s.pools.writeObject(w, r, out, code, status, schema.GroupVersionKind{Version: "v1", Kind: "Status"})
}

// uidOf returns the uid of a record's object. If possible, it does not decode the whole object.
func uidOf(rec *store.Record) types.UID {
	if uid, ok := wire.UID(rec.Bytes()); ok {
		return types.UID(uid)
	}
	obj, err := rec.Read()
	if err != nil {
		return ""
	}
	return obj.GetUID()
}

func (s *Server) deleteCollection(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output) error {
	list, err := s.listOptions(r, t)
	if err != nil {
		return err
	}
	options, err := s.deleteOptions(r, t)
	if err != nil {
		return err
	}
	if ignore := options.IgnoreStoreReadErrorWithClusterBreakingPotential; ignore != nil && *ignore {
		return invalidOptions("DeleteOptions", field.ErrorList{field.Invalid(
			field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true,
			"is not allowed with DELETECOLLECTION, try again after removing the option")})
	}
	page, err := t.registry.DeleteCollectionIn(r.Context(), t.info.APIVersion, t.namespace, options, list)
	if err != nil {
		return unreadableList(t, cmp.Or(page, &store.Page{}), err)
	}
	t.span.Event(eventRespond)
	defer t.span.Event(eventResponded)
	return s.respondPage(w, r, out, t.view, page)
}
