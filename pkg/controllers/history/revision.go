// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// maxPrefix is the maximum length of the owner's name in a revision's name. It leaves room for the
// hash.
const maxPrefix = 223

// Data returns the data of the revision of a template: the patch that sets an owner's pod template
// to this template. Kubernetes writes the same bytes, so that pods are not replaced when a cluster
// is moved from Kubernetes to Keelson or back.
func Data(template *v1.PodTemplateSpec) ([]byte, error) {
	encoded, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	var fields map[string]any // a map, because its keys are encoded in sorted order
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	fields["$patch"] = "replace"
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	return patch, nil
}

// Template returns the pod template that a ControllerRevision contains.
func Template(r *appsv1.ControllerRevision) (*v1.PodTemplateSpec, error) {
	var patch struct {
		Spec struct {
			Template v1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &patch); err != nil {
		return nil, fmt.Errorf("revision %s: %w", r.Name, err)
	}
	return &patch.Spec.Template, nil
}

// New returns the revision of an owner's pod template with the given number. The label contains the
// revision's hash. collisions is how many times the resulting name belonged to another revision
// already; the hash depends on it.
func New(owner metav1.Object, kind schema.GroupVersionKind, label string, template *v1.PodTemplateSpec,
	number int64, collisions int32) (*appsv1.ControllerRevision, error) {
	data, err := Data(template)
	if err != nil {
		return nil, err
	}
	hash := Hash(data, collisions)
	labels := map[string]string{}
	maps.Copy(labels, template.Labels)
	labels[label] = hash
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), Name: Name(owner.GetName(), hash), Labels: labels,
			Annotations:     maps.Clone(owner.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: number,
	}, nil
}

// Hash returns a hash of a revision's data and the number of name collisions.
func Hash(data []byte, collisions int32) string {
	h := fnv.New32()
	_, _ = h.Write(data) // writing to a hash never fails
	_, _ = h.Write(strconv.AppendInt(nil, int64(collisions), 10))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// Rename sets the hash in the name and the label of a ControllerRevision.
func Rename(r *appsv1.ControllerRevision, owner, label, hash string) {
	r.Name, r.Labels[label] = Name(owner, hash), hash
}

// Name returns the name of the revision of an owner with the given hash.
func Name(owner, hash string) string {
	return controller.TruncateName(owner, maxPrefix) + "-" + hash
}

// Sort sorts ControllerRevisions by number, then by age, with the oldest first.
func Sort(revisions []*appsv1.ControllerRevision) {
	slices.SortStableFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// Next returns the number for a new revision. sorted are the existing revisions, with the oldest
// first.
func Next(sorted []*appsv1.ControllerRevision) int64 {
	if len(sorted) == 0 {
		return 1
	}
	return sorted[len(sorted)-1].Revision + 1
}

// Equal reports whether two ControllerRevisions have the same data.
func Equal(a, b *appsv1.ControllerRevision) bool { return bytes.Equal(a.Data.Raw, b.Data.Raw) }

// Find returns the newest of the sorted revisions that has the same data as r, or nil if there is
// none. The oldest revision comes first in sorted.
func Find(sorted []*appsv1.ControllerRevision, r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	for _, old := range slices.Backward(sorted) {
		if Equal(old, r) {
			return old
		}
	}
	return nil
}
