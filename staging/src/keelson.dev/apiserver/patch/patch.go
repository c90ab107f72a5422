// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patch applies JSON patches, merge patches and strategic merge patches to documents, with
// Kubernetes' limits, field validation and error messages. Server-side apply is not part of it,
// because that depends on managedFields.
package patch

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

const (
	// maxOperations limits the number of operations in a JSON patch.
	maxOperations = 10000
	// maxCopied is the maximum number of bytes that the copy operations of a JSON patch may add to
	// a document.
	maxCopied = 3 << 20
	// maxStep is the maximum size in bytes of the document after several copy operations that are
	// applied at once, and maxWork is the maximum sum of the sizes after each such step.
	maxStep = 8 << 20
	maxWork = 32 << 20
)

// Strict says what to do with the findings of strict decoding, such as unknown fields, according to
// the request's fieldValidation: return an error, send warnings, or ignore them.
type Strict struct {
	// Mode is metav1.FieldValidationStrict, Warn or Ignore.
	Mode string
	// Warn receives the findings in mode Warn.
	Warn func([]error)
}

// On reports whether strict decoding is necessary, because the request asks for findings about
// unknown or repeated fields.
func (s Strict) On() bool { return s.Mode != metav1.FieldValidationIgnore }

// report handles findings about doc according to the mode: it returns an error, or calls Warn.
func (s Strict) report(doc string, findings []error) error {
	if len(findings) == 0 {
		return nil
	}
	if s.Mode == metav1.FieldValidationWarn {
		s.Warn(findings)
		return nil
	}
	return invalid(doc, runtime.NewStrictDecodingError(findings))
}

// invalid returns Kubernetes' error for a patch whose result is not an object.
func invalid(doc string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), doc, err.Error()),
	})
}

// JSON applies a JSON patch or merge patch to a JSON document and calls decode with the result.
// decode may return a strict decoding error even if it has decoded the document.
func JSON(kind types.PatchType, doc, patch []byte, strict Strict, decode func([]byte) error) error {
	patched, findings, err := applyJSON(kind, doc, patch, strict)
	if err != nil {
		return err
	}
	if err := decode(patched); err != nil {
		more, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return invalid(string(patched), err)
		}
		findings = append(findings, more.Errors()...)
	}
	return strict.report(string(patched), findings)
}

// jsonPatchOp has the name of Kubernetes' type, because decoding errors contain it.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

func applyJSON(kind types.PatchType, doc, patch []byte, strict Strict) (patched []byte, findings []error, err error) {
	if kind == types.MergePatchType {
		if strict.On() {
			var v map[string]any
			if findings, err = kjson.UnmarshalStrict(patch, &v); err != nil {
				return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
			}
		}
		patched, err = merge(doc, patch)
		if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
			err = apierrors.NewBadRequest(err.Error())
		}
		return patched, findings, err
	}
	if strict.On() {
		var v []jsonPatchOp
		if findings, err = kjson.UnmarshalStrict(patch, &v); err != nil {
			// The error may contain the name of the Go type. Replace it by Kubernetes' name of that
			// type, which has another package.
			words := strings.ReplaceAll(err.Error(), reflect.TypeFor[jsonPatchOp]().String(), "handlers.jsonPatchOp")
			return nil, nil, apierrors.NewBadRequest("error decoding patch: " + words)
		}
		for i, f := range findings {
			findings[i] = fmt.Errorf("json patch %w", f)
		}
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if len(p) > maxOperations {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(p)))
	}
	if patched, err = apply(p, doc); err != nil {
		return nil, nil, unprocessable(err)
	}
	return patched, findings, nil
}

// apply applies a JSON patch. It returns an error for patches that make the library panic, such as
// a patch that removes the whole document.
func apply(p jsonpatch.Patch, doc []byte) (patched []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			patched, err = nil, fmt.Errorf("patch cannot be applied: %v", cause)
		}
	}()
	return inSteps(p, doc)
}

// inSteps applies a patch in steps of a few copy operations, and checks the size of the document
// after each step. Each copy may double the document, so a short patch could exhaust the memory.
func inSteps(p jsonpatch.Patch, doc []byte) ([]byte, error) {
	written := 0 // size in bytes of all values in the patch
	for _, op := range p {
		if op.Kind() != "copy" {
			if v := op["value"]; v != nil {
				written += len(*v)
			}
		}
	}
	limit, work := len(doc)+written+maxCopied, 0
	for len(p) > 0 {
		n := step(p, len(doc)+written)
		var err error
		if doc, err = p[:n].Apply(doc); err != nil {
			return nil, err
		}
		if work += len(doc); len(doc) > limit || work > maxWork {
			return nil, jsonpatch.NewAccumulatedCopySizeError(maxCopied, int64(len(doc)-limit+maxCopied))
		}
		p = p[n:]
	}
	return doc, nil
}

// step returns how many of the next operations can be applied in one step to a document of the
// given size, in bytes.
func step(p jsonpatch.Patch, size int) int {
	for i, op := range p {
		if op.Kind() != "copy" {
			continue
		}
		if size *= 2; i > 0 && size > maxStep {
			return i
		}
	}
	return len(p)
}

// merge applies a merge patch. It returns an error if the library panics.
func merge(doc, patch []byte) (patched []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			patched, err = nil, apierrors.NewBadRequest(fmt.Sprintf("patch cannot be applied: %v", cause))
		}
	}()
	return jsonpatch.MergePatch(doc, patch)
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "",
		err.Error(), 0, false)
}

// Strategic applies a strategic merge patch to an object. It stores the result in the second
// argument, which must be an empty object of the same type.
func Strategic(from, into runtime.Object, patch []byte, strict Strict) error {
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return err
	}
	changes := make(map[string]any)
	var findings []error
	if strict.On() {
		findings, err = kjson.UnmarshalStrict(patch, &changes)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(patch, &changes)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	patched, err := mergeMaps(doc, changes, into)
	if err != nil {
		return strategicError(err)
	}
	words := func() string { return fmt.Sprintf("%+v", changes) }
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(patched, into, strict.On()); err != nil {
		more, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return invalid(words(), err)
		}
		findings = append(findings, more.Errors()...)
	}
	if len(findings) == 0 {
		return nil
	}
	return strict.report(words(), findings)
}

// mergeMaps merges changes into doc. The library panics if a directive contains objects for a list
// whose items are identified by their values; mergeMaps then returns an error.
func mergeMaps(doc, changes map[string]any, into runtime.Object) (out map[string]any, err error) {
	defer func() {
		if recover() != nil {
			out, err = nil, mergepatch.ErrUnsupportedStrategicMergePatchFormat
		}
	}()
	return strategicpatch.StrategicMergeMapPatch(doc, changes, into)
}

func strategicError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc),
		errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys),
		errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return unprocessable(err)
	}
	return err
}
