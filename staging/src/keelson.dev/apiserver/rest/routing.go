// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"slices"

	autoscaling "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/resource"
)

// behaviour says how requests for a resource are routed and answered. Kubernetes serves built-in
// kinds with a router, and custom resources with a handler in another server. Clients can observe
// the differences.
type behaviour interface { //nolint:interfacebloat // a list of independent differences
	// Routing: which paths exist, and which errors requests for other paths get.

	// verb returns the verb of a request.
	verb(info *request.RequestInfo, method string) string
	// locate returns an error for paths that the endpoint does not have.
	locate(st *state, t *target, method string) error
	// check sets the subresource of t. It returns an error if t does not support the verb.
	check(t *target) error
	// warnsFirst reports whether a request for a deprecated version always gets a warning, even if
	// the response is an error.
	warnsFirst() bool
	// createsFirst reports whether a create validates the body before the namespace in the path.
	createsFirst() bool
	// inRouter reports whether Kubernetes' router serves the resource's group. The router then
	// answers requests for all paths of the group.
	inRouter() bool

	// Responses; see answers.go.

	// optionalHash reports whether Config.NoStorageVersionHash omits the hash of the resource in
	// discovery.
	optionalHash() bool
	// scaleType returns the name of the Go type of Scale in error messages.
	scaleType() string
	// scaleColumns returns the columns of a Table of a Scale.
	scaleColumns() []metav1.TableColumnDefinition
	// unreadScale returns the error for a body that is not a Scale. err is the decoder's error.
	unreadScale(err error) error
	// checkScale validates a Scale. The object that it changes is validated afterwards.
	checkScale(name string, scale *autoscaling.Scale) error
}

// behaviourOf returns the behaviour of a resource.
func behaviourOf(row *resource.Row) behaviour {
	if row.Custom {
		return customResource{}
	}
	return builtIn{}
}

// builtIn is the behaviour of Kubernetes' router and handlers for built-in kinds.
type builtIn struct{}

func (builtIn) warnsFirst() bool   { return false }
func (builtIn) createsFirst() bool { return true }
func (builtIn) inRouter() bool     { return true }

func (builtIn) verb(info *request.RequestInfo, method string) string {
	return verbOf(info, method)
}

func (builtIn) locate(_ *state, t *target, method string) error {
	info := t.info
	if info.Verb == "proxy" {
		return errNotFound() // the old paths /proxy/... no longer exist; proxy is a subresource
	}
	if oldWatch(info) {
		if err := t.watched(method); err != nil {
			return err
		}
	}
	if !t.row.Namespaced || info.Namespace != "" || noNamespace(info) {
		return nil // a later check rejects an empty namespace
	}
	switch named := len(info.Parts) > 1; {
	case named && t.verb != "watch", t.row.Ephemeral:
		return errNotFound()
	case t.verb != "list" && t.verb != "watch":
		return errMethod()
	}
	return nil
}

func (builtIn) check(t *target) error {
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
		return errNotFound() // the path ends with an empty subresource
	}
	if !t.hasPath(verbs) {
		return errNotFound()
	}
	if !slices.Contains(verbs, t.verb) && !t.carries() || t.sub == nil && !fits(t.verb, t.named()) {
		return errMethod()
	}
	return nil
}

// customResource is the behaviour of Kubernetes' handler for custom resources.
type customResource struct{}

func (customResource) warnsFirst() bool   { return true }
func (customResource) createsFirst() bool { return false }
func (customResource) inRouter() bool     { return false }

// verb returns RequestInfo's verb, also for subresources. HEAD is handled as GET; OPTIONS is not
// supported.
func (customResource) verb(info *request.RequestInfo, _ string) string { return info.Verb }

func (customResource) locate(st *state, t *target, _ string) error {
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

// check is like that of builtIn, but ignores path elements after the subresource.
func (customResource) check(t *target) error {
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

// named reports whether the path of the request names an object.
func (t *target) named() bool { return len(t.info.Parts) > 1 }

// allVerbs returns the verbs of the resource, or of the subresource if the path has one.
func (t *target) allVerbs() []string {
	if t.sub != nil {
		return t.sub.Verbs
	}
	return t.verbs
}

// checkWatch returns an error for watches of a resource that can only be listed.
func (t *target) checkWatch(verbs []string) error {
	if t.verb == "watch" && t.sub == nil && !oldWatch(t.info) && slices.Contains(verbs, "list") &&
		!slices.Contains(verbs, "watch") {
		return apierrors.NewMethodNotSupported(t.row.GroupResource(), t.verb)
	}
	return nil
}

// hasPath reports whether the resource has paths like that of the request. For example, reviews
// cannot be read, so there are no paths that name a review.
func (t *target) hasPath(verbs []string) bool {
	return !t.named() || t.sub != nil ||
		slices.ContainsFunc(verbs, func(v string) bool { return fits(v, true) && v != "watch" })
}
