// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/tracing"
)

// writeTimeout is the maximum duration of a write.
const writeTimeout = 34 * time.Second

var (
	errNoRequestInfo = errors.New("no RequestInfo found in the context")
	errNoPage        = errors.New("no such API group")
)

// target is what a request is for: a resource, a subresource or an object.
type target struct {
	*endpoint
	info            *request.RequestInfo
	view            *view
	sub             *resource.RowSub // nil for the resource itself
	namespace, name string
	verb            string
	webhooks        time.Duration // time that admission webhooks took for the request
	bodyRead        bool          // whether the body of the request has been read
	bodySize        int           // size of the body in bytes
	span            *tracing.Span // the span of the request's handler, nil if it is not recorded
}

// subresource returns the name of the subresource, or "" if the request is for the resource itself.
func (t *target) subresource() string {
	if t.sub == nil {
		return ""
	}
	return t.sub.Name
}

// ServeHTTP answers requests for /api, /apis, /openapi and the paths below these.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest || strings.HasPrefix(r.URL.Path, "/apis//") ||
		strings.HasPrefix(r.URL.Path, "/openapi/") {
		s.serveDocument(w, r, info)
		return
	}
	t, err := s.resolve(r, info)
	if t != nil {
		defer t.release()
	}
	if errors.Is(err, errNoPage) {
		http.NotFound(w, r)
		return
	}
	rec, done := s.metrics.begin(w, r, info, t)
	defer done()
	if t != nil && t.behaviour.warnsFirst() {
		t.warnOfVersion(r)
	}
	if err == nil {
		err = t.check(r)
	}
	if err == nil {
		r = t.trace(r, t.spanName())
		defer t.endSpan() // after an error is sent
		if t.verb == "watch" {
			err = s.watch(rec, r, t)
		} else {
			err = s.serve(rec, r, t)
		}
	}
	if err != nil {
		WriteError(rec, r, err)
	}
}

// serveDocument answers a request that is not for a resource.
func (s *Server) serveDocument(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	switch {
	case info == nil:
		WriteError(w, r, apierrors.NewInternalError(errNoRequestInfo))
	case strings.HasPrefix(r.URL.Path, "/apis//"):
		http.NotFound(w, r) // /apis does not contain the core group
	case strings.HasPrefix(r.URL.Path, "/openapi/"):
		s.state.Load().docs().serveOpenAPI(w, r)
	default:
		s.state.Load().docs().serveDiscovery(w, r)
	}
}

// check returns an error for a request that is refused before its options and its body are read.
func (t *target) check(r *http.Request) error {
	if err := t.routed(r); err != nil {
		return err
	}
	if err := t.checkDryRun(r); err != nil {
		return err
	}
	return t.checkName()
}

// endSpan ends the span of the request's handler, which a watch may have replaced.
func (t *target) endSpan() { t.span.End() }

// resolve finds the target of a request and acquires its endpoint, which the caller must release.
// If the server does not serve the resource, resolve calls Config.Missing once and tries again if
// that returns true.
func (s *Server) resolve(r *http.Request, info *request.RequestInfo) (*target, error) {
	for asked := false; ; {
		st := s.state.Load()
		t, err := st.resolve(info, r.Method)
		switch {
		case t != nil && t.acquire():
			return t, err
		case t != nil:
			continue // the endpoint has just been replaced, so look up the new one
		case asked || s.cfg.Missing == nil ||
			!s.cfg.Missing(r.Context(), schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}):
			return nil, err
		}
		asked = true
	}
}

// resolve finds the target of a request. It returns an error if the path does not exist.
func (st *state) resolve(info *request.RequestInfo, method string) (*target, error) {
	e := st.endpoints[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]
	if e == nil || (info.APIPrefix == "api") != (info.APIGroup == "") {
		return nil, st.noSuch(info.APIGroup)
	}
	t := &target{endpoint: e, info: info, view: e.views[info.APIVersion], name: info.Name,
		verb: e.behaviour.verb(info, method)}
	if t.view == nil {
		return nil, errNotFound()
	}
	if e.row.Namespaced {
		t.namespace = info.Namespace
	} else if info.Namespace != "" && (!e.row.NamespaceItself || inNamespace(info)) {
		return nil, st.noSuch(info.APIGroup)
	}
	if err := e.behaviour.locate(st, t, method); err != nil {
		return nil, err
	}
	return t, e.behaviour.check(t)
}

// watched returns an error unless the method is GET and the path is one of the old watch paths
// (/watch/...) of a built-in kind.
func (t *target) watched(method string) error {
	switch {
	case len(t.info.Parts) > 2, !slices.Contains(t.verbs, "watch"),
		t.row.Namespaced && t.info.Namespace == "" && t.info.Name != "" && !noNamespace(t.info):
		return errNotFound()
	case method != http.MethodGet:
		return errMethod()
	}
	return nil
}

// noNamespace reports whether the path has an empty namespace.
func noNamespace(info *request.RequestInfo) bool {
	return strings.Contains(info.Path, "/namespaces//")
}

// inNamespace reports whether the path has a namespace before the resource. RequestInfo alone does
// not show that: in the path of a Namespace object, it has the name as namespace too.
func inNamespace(info *request.RequestInfo) bool {
	before := 2 // number of path elements before the namespace: prefix and version
	if oldWatch(info) {
		before++
	}
	return strings.Count(strings.Trim(info.Path, "/"), "/")+1 > before+len(info.Parts)
}

// oldWatch reports whether the request is a watch because of its path (/watch/...), and not because
// of the query parameter watch.
func oldWatch(info *request.RequestInfo) bool {
	return info.Verb == "watch" && strings.Contains(info.Path, "/watch/")
}

// noSuch returns the error for a path that does not exist. If the group has only custom resources,
// clients get a plain text error of an HTTP server, not a Status.
func (st *state) noSuch(group string) error {
	if st.own[group] {
		return errNotFound()
	}
	return errNoPage
}

// verbOf returns the verb of a request, as discovery names it. For resources it is the verb of
// RequestInfo. For subresources it follows from the method.
func verbOf(info *request.RequestInfo, method string) string {
	if method == http.MethodHead {
		return "head" // no resource supports this verb
	}
	if info.Subresource == "" {
		return info.Verb
	}
	switch method {
	case http.MethodGet:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	case http.MethodOptions:
		return "options" // only proxies support this verb
	}
	return "" // other methods are unknown; methods are case-sensitive
}

// checkDryRun returns an error for a dry run of a request that reaches a process, because its
// effects cannot be undone.
func (t *target) checkDryRun(r *http.Request) error {
	if t.sub != nil && t.sub.Connects() && len(query(r)["dryRun"]) > 0 {
		return apierrors.NewBadRequest("dryRun is not supported")
	}
	return nil
}

// checkName returns an error if the request has to name an object but does not. It also checks the
// namespace and the name for subresources that a Create or Connect function answers, and the
// namespace for creates and for deletes of a collection. It omits these checks for other requests,
// and for a create that validates the body first (createsFirst): namespace and name are checked
// later, because errors in the options and the body take precedence.
func (t *target) checkName() error {
	if t.name == "" && (t.sub != nil || t.verb == "update" || t.verb == "patch") {
		return apierrors.NewBadRequest("name must be provided")
	}
	connects := t.sub != nil && t.sub.Connects()
	switch {
	case t.verb == "create" && !connects && t.behaviour.createsFirst():
		return nil
	case t.sub != nil && !t.sub.View && t.sub.Scale == nil:
		return t.checkKey()
	case t.verb == "create", t.verb == "deletecollection":
		return t.checkNamespace()
	}
	return nil
}

// checkKey returns an error if no object can have the namespace and name in the path.
func (t *target) checkKey() error {
	if err := t.checkNamespace(); err != nil {
		return err
	}
	return resource.CheckName(t.name)
}

func (t *target) checkNamespace() error {
	return t.row.CheckNamespace(t.namespace)
}

// carries reports whether a HEAD or OPTIONS request is forwarded to the backend of a proxy.
func (t *target) carries() bool {
	return t.sub != nil && t.sub.Traffic == resource.Proxied && (t.verb == "head" || t.verb == "options")
}

// fits reports whether a verb can be used with the path of an object (named is true) or of a
// collection (named is false).
func fits(verb string, named bool) bool {
	switch verb {
	case "create", "deletecollection", "list":
		return !named
	case "watch":
		return true
	}
	return named
}

// warnOfVersion adds a warning if the requested version is deprecated.
func (t *target) warnOfVersion(r *http.Request) {
	if v := t.version(); v != nil && v.Deprecated != "" {
		warning.AddWarning(r.Context(), "", v.Deprecated)
	}
}

// serve answers a request whose target has been found and which is not a watch.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, t *target) error {
	if !t.behaviour.warnsFirst() {
		t.warnOfVersion(r)
	}
	if t.sub != nil && !t.sub.View || t.row.Ephemeral {
		// text/plain is not a media type of the API, so a client that accepts nothing else is
		// rejected.
		if t.sub != nil && t.sub.Traffic == resource.Text {
			if _, err := negotiate.Accept(r, unrecorded()); err != nil {
				return err
			}
		}
		return s.connect(w, r, t)
	}
	out, err := negotiate.Accept(r, t.offer())
	if err != nil {
		return err
	}
	if t.verb == "list" {
		return s.list(w, r, t, out)
	}
	if t.verb == "get" {
		return s.get(w, r, t, out)
	}
	ctx := registry.WithUserAgent(r.Context(), r.UserAgent())
	defer func() { t.webhooks = registry.WebhookTime(ctx) }()
	if t.verb != "deletecollection" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, writeTimeout)
		defer cancel()
	}
	r = r.WithContext(ctx)
	switch t.verb {
	case "create":
		return s.create(w, r, t, out)
	case "update":
		return s.update(w, r, t, out)
	case "patch":
		return s.patch(w, r, t, out)
	case "delete":
		return s.delete(w, r, t, out)
	case "deletecollection":
		return s.deleteCollection(w, r, t, out)
	}
	return errMethod()
}

// version returns the served version of the request, or nil.
func (t *target) version() *resource.Version { return t.row.ServedVersion(t.info.APIVersion) }

// routed returns the error of Kubernetes' router if the request does not pass it. The router checks
// content types before names, because it knows the media types of each path of a built-in kind.
func (t *target) routed(r *http.Request) error {
	var refused error
	// Check the patch type first, also for custom resources.
	if t.verb == "patch" && (t.sub == nil || !t.sub.Connects()) {
		_, refused = patchType(r, t.view.dynamic)
		if refused != nil && !namesOneOf(r.Header.Get("Content-Type"), patchTypes(false)) {
			return refused
		}
	}
	if t.view.dynamic || t.sub != nil && t.sub.Connects() {
		return refused
	}
	types := t.offer().MediaTypes
	switch {
	case t.verb == "list" || t.verb == "watch":
		types = append(types, negotiate.JSON+";stream=watch", negotiate.Protobuf+";stream=watch")
	case t.sub != nil && t.sub.Traffic == resource.Text:
		types = append([]string{"text/plain"}, types...)
	}
	if negotiate.Routes(r, types) {
		return refused // the request passes the router, and its handler returns this error
	}
	return negotiate.NotRouted(types)
}

func (t *target) offer() negotiate.Offer {
	offer := negotiate.Standard()
	offer.Transforms = true
	offer.NoProtobufObjects = t.view.dynamic
	offer.NoTables = t.sub != nil && t.sub.NoTable
	return offer
}
