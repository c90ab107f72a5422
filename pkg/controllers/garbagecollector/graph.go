// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// identity contains the kind, namespace, name and UID of an object.
type identity struct {
	gvk             schema.GroupVersionKind
	namespace, name string
	uid             types.UID
}

// vertex is an object in the graph of owners and dependents. The graph's lock guards its fields.
type vertex struct {
	identity
	owners     []metav1.OwnerReference
	dependents map[types.UID]*vertex
	deleting   bool
	// foreground and orphan report whether the object has the finalizer foregroundDeletion or
	// orphan.
	foreground, orphan bool
	// The field guessed means that the object is known only from owner references in other objects.
	// The field gone means that a watch has shown its deletion; then it will not exist again,
	// because UIDs are never reused.
	guessed, gone bool
	// version is the resource version of the object when the vertex was last updated.
	version string
}

// namedBy reports whether the owner reference r, which has the UID of this vertex, also has its
// name, kind and group. namespace is that of the object with the reference; if the vertex is
// namespaced, it must be in the same namespace. The API version is ignored, because a kind may be
// served in several versions.
func (v *vertex) namedBy(r metav1.OwnerReference, namespace string) bool {
	return v.name == r.Name && v.gvk.Kind == r.Kind &&
		v.gvk.Group == schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group &&
		(v.namespace == "" || v.namespace == namespace)
}

// graph records the owners of objects. It has a vertex for each existing object, and a guessed
// vertex for each owner that objects refer to but that no watch has shown. The dependents of a
// vertex are all objects that refer to it. A graph is safe for concurrent use.
type graph struct {
	mu    sync.Mutex
	byUID map[types.UID]*vertex
}

func newGraph() *graph { return &graph{byUID: map[types.UID]*vertex{}} }

// set adds or updates an object and returns the UIDs of the objects to decide about now.
func (g *graph) set(id identity, o metav1.Object) []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.byUID[id.uid]
	if v == nil {
		v = &vertex{dependents: map[types.UID]*vertex{}}
		g.byUID[id.uid] = v
	}
	before := *v
	v.identity, v.guessed, v.gone, v.version = id, false, false, o.GetResourceVersion()
	v.deleting = o.GetDeletionTimestamp() != nil
	v.foreground = slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
	v.orphan = slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
	v.owners = o.GetOwnerReferences()
	look := g.link(v, before.owners)
	if before.guessed {
		// Queue the dependents whose owner reference has this UID but not the name, kind or
		// namespace of this object. When the controller decided about them, it did not know that
		// the reference is wrong.
		for uid, d := range v.dependents {
			if slices.ContainsFunc(d.owners, func(r metav1.OwnerReference) bool {
				return r.UID == v.uid &&
					!v.namedBy(r, d.namespace)
			}) {
				look = append(look, uid)
			}
		}
	}
	if before.uid == "" || !slices.EqualFunc(before.owners, v.owners, sameOwner) {
		// If all owners exist and none is being deleted in the foreground, there is nothing to
		// decide. The object is queued later, when one of its owners is deleted.
		if slices.ContainsFunc(v.owners, func(r metav1.OwnerReference) bool { return !g.stays(r, v.namespace) }) {
			look = append(look, v.uid)
		}
	}
	if v.deleting && (v.foreground || v.orphan) {
		look = append(look, v.uid)
	}
	if v.deleting && v.foreground && !(before.deleting && before.foreground) {
		look = append(look, dependentsOf(v)...)
	}
	return look
}

// stays reports whether a watch has shown the owner that r names, and the owner is not being
// deleted in the foreground.
func (g *graph) stays(r metav1.OwnerReference, namespace string) bool {
	o := g.byUID[r.UID]
	return o != nil && !o.guessed && o.namedBy(r, namespace) && !(o.deleting && o.foreground)
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && isBlocking(a) == isBlocking(b)
}

func isBlocking(r metav1.OwnerReference) bool {
	return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
}

// link updates the links from v to its owners; the argument before are its earlier owner
// references. It adds unknown owners as guessed vertices. It returns earlier owners that may have
// waited for v. It does not return guessed vertices, because the controller looks up unknown owners
// when it decides about v.
func (g *graph) link(v *vertex, before []metav1.OwnerReference) []types.UID {
	var look []types.UID
	for _, r := range before {
		if o := g.byUID[r.UID]; o != nil &&
			!slices.ContainsFunc(v.owners, func(n metav1.OwnerReference) bool {
				return n.UID == r.UID &&
					isBlocking(n) == isBlocking(r)
			}) {
			// This owner may have waited for the deletion of v, and may not need to wait any more.
			if o.deleting && o.foreground {
				look = append(look, o.uid)
			}
			if !slices.ContainsFunc(v.owners, func(n metav1.OwnerReference) bool { return n.UID == r.UID }) {
				g.unlink(o, v)
			}
		}
	}
	for _, r := range v.owners {
		o := g.byUID[r.UID]
		if o == nil {
			o = &vertex{
				identity:   identity{schema.FromAPIVersionAndKind(r.APIVersion, r.Kind), v.namespace, r.Name, r.UID},
				dependents: map[types.UID]*vertex{}, guessed: true,
			}
			g.byUID[r.UID] = o
		}
		o.dependents[v.uid] = v
	}
	return look
}

// unlink removes the link between an owner and v. If owner is a guessed vertex without other
// dependents, it is removed too.
func (g *graph) unlink(owner, v *vertex) {
	delete(owner.dependents, v.uid)
	if owner.guessed && len(owner.dependents) == 0 {
		delete(g.byUID, owner.uid)
	}
}

// owner returns whether the owner that r names exists (there), and whether the graph is certain
// about that (known). The graph is not certain if no watch has shown the owner, or if the reference
// has another name, kind or namespace than the owner with this UID. A deleted owner counts as known
// only if the reference has the version that was watched: if the reference's version is not served,
// the owner cannot be resolved.
func (g *graph) owner(r metav1.OwnerReference, namespace string) (there, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.byUID[r.UID]
	switch {
	case o == nil || !o.namedBy(r, namespace):
		return false, false
	case o.gone:
		return false, o.gvk == schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	default:
		return true, !o.guessed
	}
}

// remove records that an object was deleted and returns the UIDs of the objects to decide about. If
// other objects refer to the object, its vertex stays as a guessed one (known only from these
// references).
func (g *graph) remove(uid types.UID) []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.byUID[uid]
	if v == nil {
		return nil
	}
	return append(dependentsOf(v), g.retire(v, true)...)
}

// forget removes the objects of a kind that is no longer watched. These objects may still exist, so
// those that other objects refer to stay as guessed vertices (known only from these references). It
// returns the owners that may have waited for the deletion of a removed object.
func (g *graph) forget(kind schema.GroupVersionKind) []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var look []types.UID
	for _, v := range g.byUID {
		if v.gvk == kind && !v.guessed {
			look = append(look, g.retire(v, false)...)
		}
	}
	return look
}

// retire makes v a guessed vertex (known only from owner references), or removes v if no object
// refers to it. It returns the owners of v that may have waited for its deletion.
func (g *graph) retire(v *vertex, gone bool) []types.UID {
	var look []types.UID
	for _, r := range v.owners {
		if o := g.byUID[r.UID]; o != nil {
			if o.deleting && o.foreground {
				look = append(look, o.uid)
			}
			g.unlink(o, v)
		}
	}
	v.owners, v.guessed, v.gone, v.deleting, v.foreground, v.orphan = nil, true, gone, false, false, false
	if len(v.dependents) == 0 {
		delete(g.byUID, v.uid)
	}
	return look
}

// unsettled returns the dependents of all guessed vertices, which are the owners that are known
// only from references in other objects. The controller queues these dependents after a discovery,
// because it may find the owners now.
func (g *graph) unsettled() []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var look []types.UID
	for _, v := range g.byUID {
		if v.guessed {
			look = append(look, dependentsOf(v)...)
		}
	}
	return look
}

func dependentsOf(v *vertex) []types.UID {
	out := make([]types.UID, 0, len(v.dependents))
	for uid := range v.dependents {
		out = append(out, uid)
	}
	return out
}

// snapshot returns a copy of the vertex of an object, or false if the graph has no such vertex.
func (g *graph) snapshot(uid types.UID) (vertex, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.byUID[uid]
	if v == nil {
		return vertex{}, false
	}
	return *v, true
}

// dependent describes a dependent of an object.
type dependent struct {
	identity
	deleting bool
	blocking bool // whether it blocks the foreground deletion of its owner
}

func (g *graph) dependents(uid types.UID) []dependent {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.byUID[uid]
	if v == nil {
		return nil
	}
	out := make([]dependent, 0, len(v.dependents))
	for _, d := range v.dependents {
		// If the reference has another name, kind or namespace than v, it does not block v, because
		// nothing would ever remove it.
		blocking := slices.ContainsFunc(d.owners, func(r metav1.OwnerReference) bool {
			return r.UID == uid && isBlocking(r) && v.namedBy(r, d.namespace)
		})
		out = append(out, dependent{d.identity, d.deleting, blocking})
	}
	return out
}

// waits reports whether an owner is being deleted in the foreground, so that it waits for its
// dependents.
func (g *graph) waits(uid types.UID) bool {
	v, ok := g.snapshot(uid)
	return ok && v.deleting && v.foreground
}
