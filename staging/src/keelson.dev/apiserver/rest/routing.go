// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/resource"
)

// routing is how requests find an endpoint: which paths it has, and how a request that does not fit
// is answered. In Kubernetes a router finds the endpoints of built-in kinds, and a handler of its own
// those of custom resources.
type routing interface {
	// verb returns the verb of a request.
	verb(info *request.RequestInfo, method string) string
	// locate rejects paths that the endpoint does not have.
	locate(st *state, t *target, method string) error
	// check finds the subresource of t, and rejects verbs that t does not have.
	check(t *target) error
	// warnsFirst reports whether a deprecated version causes a warning with every answer, errors
	// included.
	warnsFirst() bool
	// createsFirst reports whether the body of a create is checked before the namespace in the path.
	createsFirst() bool
}

// routingOf returns the routing of a row.
func routingOf(row *resource.Row) routing {
	if row.Custom {
		return customRouting{}
	}
	return builtInRouting{}
}

// builtInRouting routes as the router of Kubernetes' built-in kinds.
type builtInRouting struct{}

func (builtInRouting) warnsFirst() bool   { return false }
func (builtInRouting) createsFirst() bool { return true }

func (builtInRouting) verb(info *request.RequestInfo, method string) string {
	return verbOf(info, method)
}

func (builtInRouting) locate(_ *state, t *target, method string) error {
	info := t.info
	if info.Verb == "proxy" {
		return errNotFound() // a path of the past: today proxy is a subresource
	}
	if oldWatch(info) {
		if err := t.watched(method); err != nil {
			return err
		}
	}
	if !t.row.Namespaced || info.Namespace != "" || noNamespace(info) {
		return nil // an empty namespace in the path is rejected later
	}
	switch named := len(info.Parts) > 1; {
	case named && t.verb != "watch", t.row.Ephemeral:
		return errNotFound()
	case t.verb != "list" && t.verb != "watch":
		return errMethod()
	}
	return nil
}

func (builtInRouting) check(t *target) error {
	info := t.info
	if info.Subresource != "" {
		t.sub = t.row.Subresource(info.Subresource)
		if t.sub == nil || len(info.Parts) > 3 && t.sub.Traffic != resource.Proxied {
			return errNotFound()
		}
	}
	verbs := t.allVerbs()
	if err := t.checkWatch(verbs); err != nil {
		return err
	}
	if t.sub == nil && len(info.Parts) > 2 {
		return errNotFound() // a subresource without a name is not the object
	}
	if !t.hasPath(verbs) {
		return errNotFound()
	}
	if !slices.Contains(verbs, t.verb) && !t.carries() || t.sub == nil && !fits(t.verb, t.named()) {
		return errMethod()
	}
	return nil
}

// customRouting routes as Kubernetes' handler of custom resources.
type customRouting struct{}

func (customRouting) warnsFirst() bool   { return true }
func (customRouting) createsFirst() bool { return false }

// verb is RequestInfo's also for subresources. HEAD is handled as GET; OPTIONS is not supported.
func (customRouting) verb(info *request.RequestInfo, _ string) string { return info.Verb }

func (customRouting) locate(st *state, t *target, _ string) error {
	if !t.row.Namespaced || t.info.Namespace != "" {
		return nil
	}
	switch {
	case t.verb != "list" && t.verb != "watch":
		return st.noSuch(t.info.APIGroup)
	case t.named() && t.verb != "watch":
		return errNotFound()
	}
	return nil
}

// check ignores what comes after the subresource in the path.
func (customRouting) check(t *target) error {
	notSupported := apierrors.NewMethodNotSupported(t.row.GroupResource(), t.verb)
	if t.info.Subresource != "" {
		if t.sub = t.row.Subresource(t.info.Subresource); t.sub == nil {
			return apierrors.NewNotFound(t.row.GroupResource(), t.info.Name)
		}
		if !slices.Contains(t.sub.Verbs, t.verb) {
			return notSupported
		}
	}
	verbs := t.allVerbs()
	if err := t.checkWatch(verbs); err != nil {
		return err
	}
	if t.verb == "" {
		return notSupported
	}
	if !t.hasPath(verbs) {
		return errNotFound()
	}
	if !slices.Contains(verbs, t.verb) && !t.carries() {
		return errMethod()
	}
	return nil
}

// named reports whether the path is that of one object.
func (t *target) named() bool { return len(t.info.Parts) > 1 }

// allVerbs returns the verbs of the row or subresource.
func (t *target) allVerbs() []string {
	if t.sub != nil {
		return t.sub.Verbs
	}
	return t.verbs
}

// checkWatch rejects watches of a resource that can only be listed.
func (t *target) checkWatch(verbs []string) error {
	if t.verb == "watch" && t.sub == nil && !oldWatch(t.info) && slices.Contains(verbs, "list") && !slices.Contains(verbs, "watch") {
		return apierrors.NewMethodNotSupported(t.row.GroupResource(), t.verb)
	}
	return nil
}

// hasPath reports whether the row has the path of the request. Reviews have no paths of single objects.
func (t *target) hasPath(verbs []string) bool {
	return !t.named() || t.sub != nil || slices.ContainsFunc(verbs, func(v string) bool { return fits(v, true) && v != "watch" })
}
