// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	autoscaling "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/patch"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/table"
)

func scaleKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
}

// scale answers requests for the subresource scale, which presents the replicas of an object of any
// kind as an autoscaling/v1 Scale.
func (s *Server) scale(w http.ResponseWriter, r *http.Request, t *target) error {
	out, err := negotiate.Accept(r, t.offer())
	if err != nil {
		return err
	}
	code, obj := http.StatusOK, resource.Object(nil)
	switch t.verb {
	case "get":
		obj, err = s.getScale(r, t)
	case "update":
		obj, err = s.putScale(r, t)
	case "patch":
		obj, err = s.patchScale(r, t)
	default:
		return errMethod()
	}
	if err != nil {
		return err
	}
	scale, err := scaleOf(t, obj)
	if err != nil {
		return err
	}
	scale = shown(scale)
	t.span.Event(eventRespond)
	defer t.span.Event(eventResponded)
	switch out.As {
	case "":
	case "Table":
		return s.scaleTable(w, r, t, out, scale)
	case "PartialObjectMetadata":
		kind := schema.GroupVersionKind{Group: metav1.GroupName, Version: out.AsVersion, Kind: out.As}
		return s.pools.writeObject(w, r, out, code, partial(scale), kind)
	default:
		return negotiate.NotAcceptableMessage(
			fmt.Sprintf("you requested %s, but the requested object is not a list (*%s)", out.As, t.behaviour.scaleType()))
	}
	s.auditObject(r, scale, scaleKind())
	return s.pools.writeObject(w, r, out, code, scale, scaleKind())
}

// scaleTable sends a Scale as a Table.
func (s *Server) scaleTable(w http.ResponseWriter, r *http.Request, t *target, out negotiate.Output,
	scale *autoscaling.Scale) error {
	o, err := parseTableOptions(r, out)
	if err != nil {
		return err
	}
	doc, err := table.AppendHead(nil, out.AsVersion, metav1.ListMeta{ResourceVersion: scale.ResourceVersion},
		t.behaviour.scaleColumns())
	if err != nil {
		return err
	}
	var object []byte
	switch o.include {
	case metav1.IncludeObject:
		scale.SetGroupVersionKind(scaleKind())
		object, err = marshalJSON(scale)
	case metav1.IncludeMetadata:
		p := partial(scale)
		p.SetGroupVersionKind(schema.GroupVersionKind{Group: metav1.GroupName, Version: out.AsVersion,
			Kind: "PartialObjectMetadata"})
		object, err = marshalJSON(p)
	}
	if err != nil {
		return err
	}
	cells := []any{scale.Name, scale.Spec.Replicas, scale.Status.Replicas,
		table.Age(scale.CreationTimestamp, s.cfg.Clock.Now())}
	if doc, err = table.AppendRow(doc, table.Line{Cells: cells}, object); err != nil {
		return err
	}
	w, r, span := serialize(w, r, out, scaleKind().GroupVersion())
	defer span.end()
	return s.pools.writeJSON(w, r, out, http.StatusOK, table.AppendTail(doc))
}

func (s *Server) getScale(r *http.Request, t *target) (resource.Object, error) {
	options, err := getOptions(r)
	if err != nil {
		return nil, err
	}
	if err := t.checkKey(); err != nil {
		return nil, err
	}
	t.span.Event(eventRead)
	rec, err := t.registry.Get(r.Context(), t.namespace, t.name, options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	obj, err := rec.Shared()
	if err != nil {
		return nil, err
	}
	if want, _, _, err := t.sub.Scale.Get(obj); err == nil && want == resource.NoReplicas {
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist",
			"."+t.sub.Scale.SpecPath))
	}
	return obj, nil
}

// scaleOf returns the Scale for obj.
func scaleOf(t *target, obj resource.Object) (*autoscaling.Scale, error) {
	want, have, selector, err := t.sub.Scale.Get(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return &autoscaling.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscaling.ScaleSpec{Replicas: want},
		Status: autoscaling.ScaleStatus{Replicas: have, Selector: selector},
	}, nil
}

// shown returns a Scale for the client. If the object has no number of replicas, the Scale has 0.
func shown(scale *autoscaling.Scale) *autoscaling.Scale {
	if scale.Spec.Replicas == resource.NoReplicas {
		scale.Spec.Replicas = 0
	}
	return scale
}

func (s *Server) putScale(r *http.Request, t *target) (resource.Object, error) {
	body, err := s.readBodyOf(r, t)
	if err != nil {
		return nil, err
	}
	var options metav1.UpdateOptions
	if err := parameters(query(r), &options); err != nil {
		return nil, err
	}
	if err := invalidOptions("UpdateOptions", metav1validation.ValidateUpdateOptions(&options)); err != nil {
		return nil, err
	}
	mode := options.FieldValidation
	if mode == "" {
		mode = metav1.FieldValidationWarn
	}
	want := &autoscaling.Scale{}
	t.span.Event(eventConvert)
	if _, err := s.decode(r, body, scaleKind(), want, mode, nil); err != nil {
		return nil, t.behaviour.unreadScale(err)
	}
	t.span.Event(eventConverted)
	s.auditScale(r, t, want)
	if err := sameObject(t, want); err != nil {
		return nil, err
	}
	if err := t.checkKey(); err != nil {
		return nil, err
	}
	var same *metav1.Preconditions
	if want.UID != "" {
		same = &metav1.Preconditions{UID: &want.UID}
	}
	return s.applyScale(r.Context(), t, options, same,
		func(have *autoscaling.Scale, who string) (*autoscaling.Scale, error) {
			return s.ownScale(have, want.DeepCopy(), who), nil
		})
}

// scaleChange computes the new Scale from the current one, have. It records the change in the new
// Scale's managedFields. The last argument is the name of the field manager.
type scaleChange func(have *autoscaling.Scale, who string) (*autoscaling.Scale, error)

// applyScale applies change to the Scale of the object in the request's path, and stores the
// object.
func (s *Server) applyScale(ctx context.Context, t *target, options metav1.UpdateOptions,
	same *metav1.Preconditions, change scaleChange) (resource.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	t.span.Event(eventStore)
	rec, _, err := t.registry.Update(ctx, registry.Update{
		Namespace: t.namespace, Name: t.name, Subresource: "scale", Version: t.info.APIVersion,
		Options: options, OwnFields: true,
		As: s.facadeOf(t, options.FieldManager, change), Preconditions: same,
	})
	t.wrote(err)
	if err != nil {
		return nil, err
	}
	return rec.Shared()
}

// facadeOf returns the registry.Facade that presents the object to admission as a Scale.
func (s *Server) facadeOf(t *target, manager string, change scaleChange) *registry.Facade {
	return &registry.Facade{
		Kind: scaleKind(),
		Of: func(obj resource.Object) (resource.Object, error) {
			scale, err := scaleOf(t, obj)
			if err != nil {
				return nil, err
			}
			return shown(scale), nil
		},
		Change: func(ctx context.Context, cur resource.Object, admit registry.AdmitFunc) (resource.Object, error) {
			return s.scaled(t, cur, registry.ManagerName(ctx, manager), change, admit)
		},
	}
}

// scaled applies change to the Scale of cur, runs admission on the new Scale, and returns cur with
// the new number of replicas.
func (s *Server) scaled(t *target, cur resource.Object, who string, change scaleChange,
	admit registry.AdmitFunc) (resource.Object, error) {
	have, err := scaleOf(t, cur)
	if err != nil {
		return nil, err
	}
	// The manager that owns the replicas in the object also owns the replicas in the Scale.
	fields := managedfields.NewScaleHandler(cur.GetManagedFields(), t.view.gvk.GroupVersion(), replicaPaths(t))
	if have.ManagedFields, err = fields.ToSubresource(); err != nil {
		return nil, err
	}
	want, err := change(have, who)
	if err != nil {
		return nil, err
	}
	if err := admit(want, have); err != nil {
		return nil, err
	}
	if want.Spec.Replicas == resource.NoReplicas {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty",
			"."+t.sub.Scale.SpecPath))
	}
	if err := t.behaviour.checkScale(t.name, want); err != nil {
		return nil, err
	}
	if want.UID != "" && want.UID != cur.GetUID() {
		gr := t.row.GroupResource()
		gr.Resource += "/scale"
		return nil, apierrors.NewConflict(gr, t.name,
			// This is Kubernetes' message.
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", want.UID, cur.GetUID()))
	}
	if want.ResourceVersion != "" {
		cur.SetResourceVersion(want.ResourceVersion)
	}
	t.sub.Scale.Set(cur, want.Spec.Replicas)
	if s.scaleFields == nil {
		return cur, nil
	}
	entries, err := fields.ToParent(want.ManagedFields)
	if err != nil {
		return nil, err
	}
	cur.SetManagedFields(entries)
	return cur, nil
}

// replicaPaths returns the path of the number of replicas in each version of the object.
func replicaPaths(t *target) managedfields.ResourcePathMappings {
	paths := make(managedfields.ResourcePathMappings, len(t.row.Versions))
	for _, v := range t.row.Versions {
		at := t.sub.Scale.SpecPath
		if t.sub.Scale.Paths != nil {
			at = t.sub.Scale.Paths[v.Name]
		}
		paths[schema.GroupVersion{Group: t.row.Group, Version: v.Name}.String()] = fieldPath(at)
	}
	return paths
}

func fieldPath(dotted string) fieldpath.Path {
	if dotted == "" {
		return nil
	}
	var path fieldpath.Path
	for name := range strings.SplitSeq(dotted, ".") {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	return path
}

// newScaleFields returns the field manager for the managedFields of Scales.
func newScaleFields(cfg *Config) (*managedfields.FieldManager, error) {
	if cfg.TypeConverter == nil {
		return nil, nil
	}
	row := &resource.Row{
		Group: "autoscaling", Kind: "Scale", Version: "v1", Versions: []resource.Version{{Name: "v1"}},
		New: func() resource.Object { return &autoscaling.Scale{} },
	}
	o := registry.InterfacesOf(row, cfg.Scheme)
	return managedfields.NewDefaultFieldManager(cfg.TypeConverter, o.GetObjectConvertor(),
		o.GetObjectDefaulter(), o.GetObjectCreater(),
		scaleKind(), scaleKind().GroupVersion(), "scale", nil)
}

// ownScale returns the new Scale, want, with updated managedFields: the fields that differ from the
// old Scale, have, belong to the field manager whose name is the last argument.
func (s *Server) ownScale(have, want *autoscaling.Scale, who string) *autoscaling.Scale {
	if s.scaleFields == nil {
		return want
	}
	if scale, ok := s.scaleFields.UpdateNoErrors(have, want, who).(*autoscaling.Scale); ok {
		return scale
	}
	return want
}

// checkScale validates the Scale of the object name. The rest of its metadata is neither validated
// nor stored.
func checkScale(name string, scale *autoscaling.Scale) error {
	errs := metav1validation.ValidateManagedFields(scale.ManagedFields, field.NewPath("metadata", "managedFields"))
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(scale.Spec.Replicas),
		field.NewPath("spec", "replicas"))...)
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(scaleKind().GroupKind(), name, errs)
}

func (s *Server) patchScale(r *http.Request, t *target) (resource.Object, error) {
	kind, body, po, err := s.patchOptions(r, t)
	if err != nil {
		return nil, err
	}
	auditPatch(r, body)
	t.span.Event(eventRecorded)
	if err := t.checkKey(); err != nil {
		return nil, err
	}
	options := metav1.UpdateOptions{DryRun: po.DryRun, FieldManager: po.FieldManager, FieldValidation: po.FieldValidation}
	strict := patch.Strict{Mode: po.FieldValidation, Warn: func(errs []error) { registry.WarnStrict(r.Context(), errs) }}
	if strict.Mode == "" {
		strict.Mode = metav1.FieldValidationWarn
	}
	return s.applyScale(r.Context(), t, options, nil,
		func(have *autoscaling.Scale, who string) (*autoscaling.Scale, error) {
			if kind == types.ApplyYAMLPatchType {
				want, err := s.applyScaleConfig(have, body, who, po.Force != nil && *po.Force)
				if err == nil {
					err = sameObject(t, want)
				}
				return want, err
			}
			want, err := s.patchedScale(kind, have, body, strict)
			if err == nil {
				err = sameObject(t, want)
			}
			if err != nil {
				return nil, err
			}
			return s.ownScale(have, want, who), nil
		})
}

// sameObject returns an error if a Scale has another name or namespace than the path.
func sameObject(t *target, scale *autoscaling.Scale) error {
	if err := matchNamespace(t.namespace, scale); err != nil {
		return err
	}
	return registry.CheckName(scale, t.namespace, t.name)
}

func (s *Server) patchedScale(kind types.PatchType, have *autoscaling.Scale, body []byte,
	strict patch.Strict) (*autoscaling.Scale, error) {
	from := have.DeepCopy()
	from.SetGroupVersionKind(scaleKind())
	want := &autoscaling.Scale{}
	if kind == types.StrategicMergePatchType {
		return want, patch.Strategic(from, want, body, strict)
	}
	doc, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	return want, patch.JSON(kind, doc, body, strict, func(b []byte) error {
		_, err := s.decodeAs(negotiate.JSON, b, scaleKind(), want, strict.On())
		return err
	})
}

// applyScaleConfig carries out a server-side apply of a Scale.
func (s *Server) applyScaleConfig(have *autoscaling.Scale, body []byte, who string,
	force bool) (*autoscaling.Scale, error) {
	config := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal(body, &config.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if s.scaleFields == nil {
		return nil, errMethod()
	}
	obj, err := s.scaleFields.Apply(have, config, who, force)
	if err != nil {
		return nil, err
	}
	scale, ok := obj.(*autoscaling.Scale)
	if !ok {
		return nil, fmt.Errorf("apply of a Scale made %T", obj)
	}
	return scale, nil
}
