// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/tracing"
)

var errNoObject = errors.New("object does not implement the Object interfaces")

// connection is a request that the function Create or Connect of a resource or subresource answers.
type connection struct {
	resource.Request
	server *Server
	span   *tracing.Span
}

// connect passes a request to the function Create or Connect of its resource or subresource.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, t *target) error {
	req := &connection{server: s, span: t.span, Request: resource.Request{
		Info: t.info, Row: t.row, Version: t.info.APIVersion, Kind: t.view.gvk, Subresource: t.sub,
		Namespace: t.namespace, Name: t.name,
	}}
	req.Gate = req
	create, connect := t.row.Create, t.row.Connect
	if t.sub != nil {
		create, connect = t.sub.Create, t.sub.Connect
		if !t.sub.Kind.Empty() {
			req.Kind = t.sub.Kind
		}
	}
	r = r.WithContext(registry.WithUserAgent(r.Context(), r.UserAgent()))
	switch {
	case connect != nil:
		return connect(w, r, &req.Request)
	case create != nil:
		return req.create(w, r, create)
	case t.sub != nil && t.sub.Scale != nil:
		return s.scale(w, r, t)
	}
	return errNotFound()
}

// resource returns the group, version and resource of the request's path.
func (req *connection) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: req.Row.Group, Version: req.Version, Resource: req.Row.Resource}
}

func (req *connection) subresource() string {
	if req.Subresource == nil {
		return ""
	}
	return req.Subresource.Name
}

// decode decodes r's body, up to the server's size limit, into a new object. It applies the
// request's content type and fieldValidation, sets defaults, and adds the object to the audit
// event.
func (req *connection) decode(r *http.Request, into runtime.Object, defaults func(runtime.Object)) error {
	if _, err := negotiate.ContentType(r, negotiate.Standard().MediaTypes); err != nil {
		return err
	}
	body, err := req.server.readBody(r)
	req.span.Sized("limitedReadBody", len(body), err)
	if err != nil {
		return err
	}
	req.span.Event(eventConvert)
	mode := ""
	if q := query(r); q != nil {
		mode = q.Get("fieldValidation")
	}
	if mode == "" {
		mode = metav1.FieldValidationWarn
	}
	if done, err := req.decodeOld(r, body, into, mode); done {
		return err
	}
	if _, err = req.server.decode(r, body, req.Kind, into, mode, nil); err != nil {
		return err
	}
	if defaults != nil {
		defaults(into)
	}
	req.span.Event(eventConverted)
	req.server.auditConnect(r, req, into, req.Kind.GroupVersion())
	if obj, ok := into.(metav1.Object); ok && req.Row.Ephemeral && !req.Row.Namespaced {
		obj.SetNamespace("") // the kind is not namespaced
	}
	return nil
}

// decodeOld decodes a body that declares another version of the endpoint's kind than the served
// one. It reports whether it did. For other bodies it returns false and does nothing.
func (req *connection) decodeOld(r *http.Request, body []byte, into runtime.Object, mode string) (bool, error) {
	mediaType, err := negotiate.ContentType(r, negotiate.Standard().MediaTypes)
	if err != nil {
		return true, err
	}
	for _, version := range req.alsoAccepts() {
		kind := req.Kind
		kind.Version = version
		old, err := req.server.cfg.Scheme.New(kind)
		if err != nil {
			return true, err
		}
		gvk, err := req.server.decodeAs(mediaType, body, req.Kind, old, false)
		if err != nil || *gvk != kind || mediaType != negotiate.Protobuf && old.GetObjectKind().GroupVersionKind() != kind {
			continue
		}
		if old, err = req.server.cfg.Scheme.New(kind); err != nil {
			return true, err
		}
		if _, err := req.server.decode(r, body, kind, old, mode, nil); err != nil {
			return true, err
		}
		req.server.auditConnect(r, req, old, kind.GroupVersion())
		data, err := json.Marshal(old)
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return true, err
	}
	return false, nil
}

// alsoAccepts returns further versions of a subresource's kind in which bodies may be sent. For
// example, evictions have two versions.
func (req *connection) alsoAccepts() []string {
	var versions []string
	if req.Subresource == nil {
		return nil
	}
	for gvk := range req.server.cfg.Scheme.AllKnownTypes() {
		if gvk.Group == req.Kind.Group && gvk.Kind == req.Kind.Kind &&
			gvk.Version != runtime.APIVersionInternal && gvk.Version != req.Kind.Version {
			versions = append(versions, gvk.Version)
		}
	}
	return versions
}

// Streams implements resource.Gate.
func (req *connection) Streams(r *http.Request, stream string) error {
	out, err := negotiate.Accept(r, unrecorded())
	switch {
	case err != nil || out.As == "":
		return err
	case out.As == "PartialObjectMetadataList":
		return notAList(stream)
	}
	return errNoObject
}

// attributes returns the admission attributes of the request.
func (req *connection) attributes(ctx context.Context, operation admission.Operation, obj, old,
	options runtime.Object, dryRun bool) admission.Attributes {
	user, _ := request.UserFrom(ctx)
	name := req.Name
	if meta, ok := obj.(metav1.Object); ok && name == "" {
		name = meta.GetName()
	}
	return admission.NewAttributesRecord(obj, old, req.Kind, req.Namespace, name, req.resource(),
		req.subresource(), operation, options, dryRun, user)
}

// Connect implements resource.Gate.
func (req *connection) Connect(r *http.Request, options runtime.Object) error {
	attrs := req.attributes(r.Context(), admission.Connect, options, nil, nil, false)
	if err := req.admit(r.Context(), attrs); err != nil {
		return err
	}
	return req.validate(r.Context(), attrs)
}

// admit runs the mutating admission plugins on the object of the request.
func (req *connection) admit(ctx context.Context, attrs admission.Attributes) error {
	plugin, ok := req.server.cfg.Admission.(admission.MutationInterface)
	if !ok || !plugin.Handles(attrs.GetOperation()) {
		return nil
	}
	wrapped, _ := admission.WithAudit(plugin).(admission.MutationInterface)
	return wrapped.Admit(ctx, attrs, registry.SchemeInterfaces(req.server.cfg.Scheme))
}

// validate runs the validating admission plugins on the object of the request.
func (req *connection) validate(ctx context.Context, attrs admission.Attributes) error {
	plugin, ok := req.server.cfg.Admission.(admission.ValidationInterface)
	if !ok || !plugin.Handles(attrs.GetOperation()) {
		return nil
	}
	wrapped, _ := admission.WithAudit(plugin).(admission.ValidationInterface)
	return wrapped.Validate(ctx, attrs, registry.SchemeInterfaces(req.server.cfg.Scheme))
}

// create answers a POST request with the Creator c, the resource's function for creates.
func (req *connection) create(w http.ResponseWriter, r *http.Request, c *resource.Creator) error {
	ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
	defer cancel()
	if _, err := negotiate.Accept(r, unrecorded()); err != nil {
		return err
	}
	var options metav1.CreateOptions
	if err := parameters(query(r), &options); err != nil {
		return err
	}
	if err := invalidOptions("CreateOptions", validation.ValidateCreateOptions(&options)); err != nil {
		return err
	}
	options.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}
	obj := c.New()
	if err := req.decode(r, obj, c.Default); err != nil {
		return err
	}
	if meta, ok := obj.(metav1.Object); ok && !c.Preconditions {
		wipe(meta)
	}
	if err := req.identify(obj); err != nil {
		return err
	}
	obj = req.own(ctx, c.New(), obj, options.FieldManager)
	attrs := req.attributes(ctx, admission.Create, obj, nil, &options, len(options.DryRun) > 0)
	if err := req.admit(ctx, attrs); err != nil {
		return err
	}
	validate := func(ctx context.Context, obj runtime.Object) error {
		return req.validate(ctx, req.attributes(ctx, admission.Create, obj.DeepCopyObject(), nil, &options,
			len(options.DryRun) > 0))
	}
	req.span.Event(eventStore)
	result, err := c.Create(ctx, &req.Request, obj, validate, &options)
	req.span.Result("Write to database call", err)
	if err != nil {
		return err
	}
	code := c.Status
	if code == 0 {
		code = http.StatusCreated
	}
	if status, ok := result.(*metav1.Status); ok && status.Code == 0 {
		status.Code = int32(code) // an HTTP status code fits
	}
	req.span.Event(eventRespond)
	defer req.span.Event(eventResponded)
	return req.server.respond(w, r, code, result)
}

// own records in obj's managedFields that manager has set all fields. The argument empty is an
// empty object of the same type. The result is obj.
func (req *connection) own(ctx context.Context, empty, obj runtime.Object, manager string) runtime.Object {
	live, ok := empty.(resource.Object)
	if !ok || req.server.cfg.TypeConverter == nil {
		return obj
	}
	version := req.Kind.GroupVersion()
	row := &resource.Row{
		Group: req.Kind.Group, Kind: req.Kind.Kind, Version: req.Kind.Version,
		Versions: []resource.Version{{Name: req.Kind.Version}},
		New:      func() resource.Object { return live.DeepCopyObject().(resource.Object) },
	}
	o := registry.InterfacesOf(row, req.server.cfg.Scheme)
	fields, err := managedfields.NewDefaultFieldManager(req.server.cfg.TypeConverter, o.GetObjectConvertor(),
		o.GetObjectDefaulter(), o.GetObjectCreater(),
		req.Kind, version, req.subresource(), nil)
	if err != nil {
		return obj
	}
	out := fields.UpdateNoErrors(live, obj, registry.ManagerName(ctx, manager))
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return out
}

// wipe clears the metadata that only the server sets on a new object.
func wipe(obj metav1.Object) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// identify sets obj's namespace to that of the path. The Creator checks the name.
func (req *connection) identify(obj runtime.Object) error {
	meta, ok := obj.(metav1.Object)
	if !ok || !req.Row.Namespaced {
		return nil
	}
	return matchNamespace(req.Namespace, meta)
}
