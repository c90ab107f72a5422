// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"keelson.dev/apiserver/discovery"
	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/openapi"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/wire"
)

// documents makes the discovery and OpenAPI documents for one state of the server (type state).
// Discovery documents are made for each request, and OpenAPI documents are cached.
type documents struct {
	s     *Server
	state *state
	names []string // names of all groups except the core group, sorted
	rows  map[string][]*resource.Row

	openapi openAPIDocuments
}

func (s *Server) newDocuments(st *state) *documents {
	d := &documents{s: s, state: st, rows: make(map[string][]*resource.Row)}
	for _, list := range st.resources {
		for _, e := range list {
			d.rows[e.row.Group] = append(d.rows[e.row.Group], e.row)
		}
	}
	order := s.cfg.Groups
	if order == nil {
		for _, row := range s.cfg.Rows {
			if !slices.Contains(order, row.Group) {
				order = append(order, row.Group)
			}
		}
	}
	var late []string
	for group := range st.groups {
		if !slices.Contains(order, group) {
			late = append(late, group)
		}
	}
	slices.Sort(late)
	for _, group := range append(slices.Clone(order), late...) {
		if group != "" && st.groups[group] != nil {
			d.names = append(d.names, group)
		}
	}
	d.openapi.d, d.openapi.parts, d.openapi.since = d, st.parts, s.cfg.Clock.Now()
	d.openapi.pages = append(openapi.GroupPages(order), s.cfg.Pages...)
	return d
}

func sortVersions(versions []string) { discovery.SortVersions(versions) }

// serveDiscovery answers requests for /api, /apis and the groups and versions below these paths.
func (d *documents) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group, version := "", ""
	switch {
	case parts[0] == "api" && len(parts) == 1, parts[0] == "apis" && len(parts) == 1:
		d.serveRoot(w, r, parts[0])
		return
	case parts[0] == "api" && len(parts) == 2:
		version = parts[1]
	case parts[0] == "apis" && len(parts) == 2:
		group = parts[1]
	case parts[0] == "apis" && len(parts) == 3:
		group, version = parts[1], parts[2]
	default:
		http.NotFound(w, r)
		return
	}
	versions := d.ranked(group, d.registered()[group])
	switch {
	case len(versions) == 0:
		http.NotFound(w, r)
	case version != "" && !slices.Contains(d.state.groups[group], version):
		if err := d.state.noSuch(group); errors.Is(err, errNoPage) {
			http.NotFound(w, r)
		} else {
			WriteError(w, r, err)
		}
	case version == "":
		if err := getOnly(r, negotiate.Standard().MediaTypes...); err != nil && group == d.s.cfg.Aggregator {
			WriteError(w, r, err)
			return
		}
		g := discovery.Group(group, versions)
		d.write(w, r, &g, schema.GroupVersionKind{Version: "v1", Kind: "APIGroup"})
	default:
		if err := getOnly(r, negotiate.Standard().MediaTypes...); err != nil && d.state.own[group] {
			WriteError(w, r, err)
			return
		}
		list := &metav1.APIResourceList{
			GroupVersion: schema.GroupVersion{Group: group, Version: version}.String(),
			APIResources: d.resources(group, version),
		}
		gvk := schema.GroupVersionKind{Version: "v1", Kind: "APIResourceList"}
		if group == "" {
			gvk.Version = "" // as in Kubernetes, the list of the core group has no apiVersion
		}
		d.write(w, r, list, gvk)
	}
}

// resources returns the resources of a version, for discovery.
func (d *documents) resources(group, version string) []metav1.APIResource {
	list := discovery.Resources(d.rows[group], version)
	if !d.s.cfg.NoStorageVersionHash {
		return list
	}
	for i := range list {
		if slices.ContainsFunc(d.rows[group], func(r *resource.Row) bool {
			return r.Resource == list[i].Name && behaviourOf(r).optionalHash()
		}) {
			list[i].StorageVersionHash = ""
		}
	}
	return list
}

// getOnly returns the error of Kubernetes' router if the method is not GET or the client accepts none
// of the given types. As in Kubernetes, only some documents have this check: the list of versions
// at /api, versions of groups with built-in kinds, and the group Config.Aggregator.
func getOnly(r *http.Request, types ...string) error {
	if r.Method != http.MethodGet {
		return errMethod()
	}
	if !negotiate.Routes(r, types) {
		return negotiate.NotRouted(types)
	}
	return nil
}

// GetOnly returns a handler that passes a request to document if its method is GET and it accepts
// one of types, the media types of the document.
func GetOnly(document http.Handler, types ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := getOnly(r, types...); err != nil {
			WriteError(w, r, err)
			return
		}
		document.ServeHTTP(w, r)
	})
}

// NotFound answers with a Status that the path does not exist. It is for paths below that of a
// document, for example /version/x.
func NotFound(w http.ResponseWriter, r *http.Request) { WriteError(w, r, errNotFound()) }

// registered returns the registered versions of all groups, preferred first.
func (d *documents) registered() map[string][]string {
	if d.s.cfg.Registered == nil {
		return nil
	}
	return d.s.cfg.Registered()
}

// ranked returns the versions of a group: first registered, and then other served versions.
func (d *documents) ranked(group string, registered []string) []string {
	if group == "" {
		return d.state.groups[group]
	}
	versions := registered
	for _, v := range d.remoteVersions(group, slices.Clone(d.state.groups[group])) {
		if !slices.Contains(registered, v) {
			versions = append(versions, v)
		}
	}
	return versions
}

// remoteVersions adds to versions the versions of a group that other servers serve.
func (d *documents) remoteVersions(group string, versions []string) []string {
	for _, g := range d.remote() {
		if g.Name != group {
			continue
		}
		for _, v := range g.Versions {
			if !slices.Contains(versions, v.Version) {
				versions = append(versions, v.Version)
			}
		}
	}
	return versions
}

func (d *documents) remote() []apidiscovery.APIGroupDiscovery {
	if d.s.cfg.RemoteGroups == nil {
		return nil
	}
	return d.s.cfg.RemoteGroups()
}

// aggregatedForm returns the output for a client that accepts the aggregated form of discovery. It
// returns false if no clause of the Accept header has this form; other clauses are ignored.
func aggregatedForm(r *http.Request) (out negotiate.Output, ok bool) {
	offer := negotiate.Standard()
	offer.Aggregated = true
	out, err := negotiate.Accept(r, offer)
	return out, err == nil && out.As != ""
}

// serveRoot answers requests for /api and /apis, in the older or the aggregated form.
func (d *documents) serveRoot(w http.ResponseWriter, r *http.Request, prefix string) {
	if prefix == "api" {
		if err := getOnly(r, negotiate.Standard().MediaTypes...); err != nil {
			WriteError(w, r, err)
			return
		}
	}
	// Only the older form is available at a path that ends with a slash.
	if out, ok := aggregatedForm(r); ok && r.URL.Path != "/apis/" {
		d.serveAggregated(w, r, prefix, out)
		return
	}
	if prefix == "api" {
		versions := &metav1.APIVersions{
			Versions: d.state.groups[""],
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
				{ClientCIDR: "0.0.0.0/0", ServerAddress: d.s.cfg.ServerAddress},
			},
		}
		d.write(w, r, versions, schema.GroupVersionKind{Kind: "APIVersions"})
		return
	}
	list := &metav1.APIGroupList{Groups: []metav1.APIGroup{}}
	registered := d.registered()
	names := slices.Clone(d.names)
	for _, g := range d.remote() {
		if len(g.Versions) > 0 {
			names = append(names, g.Name)
		}
	}
	names = slices.AppendSeq(names, maps.Keys(registered))
	seen := map[string]bool{"": true} // /apis does not list the core group, which is in /api
	for _, name := range names {
		if !seen[name] {
			list.Groups = append(list.Groups, discovery.Group(name, d.ranked(name, registered[name])))
		}
		seen[name] = true
	}
	byPriority(d, list.Groups, func(g *metav1.APIGroup) string { return g.Name })
	d.write(w, r, list, schema.GroupVersionKind{Version: "v1", Kind: "APIGroupList"})
}

// withVersion returns list with v added. If list has a version of the same name, v replaces it. The
// caller adds the versions of other servers last, because requests for these versions go to them.
func withVersion(list []apidiscovery.APIVersionDiscovery,
	v apidiscovery.APIVersionDiscovery) []apidiscovery.APIVersionDiscovery {
	i := slices.IndexFunc(list, func(other apidiscovery.APIVersionDiscovery) bool { return other.Version == v.Version })
	if i < 0 {
		return append(list, v)
	}
	list[i] = v
	return list
}

// aggregated returns the aggregated discovery document for /api or /apis.
func (d *documents) aggregated(prefix string) *apidiscovery.APIGroupDiscoveryList {
	list := &apidiscovery.APIGroupDiscoveryList{}
	if prefix == "api" {
		if versions := d.state.groups[""]; versions != nil {
			list.Items = append(list.Items, discovery.Aggregated("", versions, d.rows[""]))
		}
		return list
	}
	at := make(map[string]int)
	for _, name := range d.names {
		at[name] = len(list.Items)
		list.Items = append(list.Items, discovery.Aggregated(name, d.state.groups[name], d.rows[name]))
	}
	for _, g := range d.remote() {
		if i, ok := at[g.Name]; ok {
			for _, v := range g.Versions {
				list.Items[i].Versions = withVersion(list.Items[i].Versions, v)
			}
			continue
		}
		list.Items = append(list.Items, g)
	}
	registered := d.registered()
	for _, g := range list.Items {
		rank := func(v string) int { // versions that are not registered come last
			if i := slices.Index(registered[g.Name], v); i >= 0 {
				return i
			}
			return len(registered[g.Name])
		}
		slices.SortStableFunc(g.Versions, func(x, y apidiscovery.APIVersionDiscovery) int {
			return rank(x.Version) - rank(y.Version)
		})
	}
	byPriority(d, list.Items, func(g *apidiscovery.APIGroupDiscovery) string { return g.Name })
	return list
}

// byPriority sorts groups by priority, if Config.GroupPriority is set.
func byPriority[G any](d *documents, groups []G, name func(*G) string) {
	of := d.s.cfg.GroupPriority
	if of == nil {
		return
	}
	priorities := make(map[string]int32, len(groups))
	for i := range groups {
		priorities[name(&groups[i])] = of(name(&groups[i]))
	}
	slices.SortStableFunc(groups, func(x, y G) int {
		a, b := name(&x), name(&y)
		if c := cmp.Compare(priorities[b], priorities[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
}

func (d *documents) serveAggregated(w http.ResponseWriter, r *http.Request, prefix string, out negotiate.Output) {
	list := d.aggregated(prefix)
	w, r, span := serialize(w, r, negotiate.Output{MediaType: out.MediaType, Pretty: out.Pretty},
		schema.GroupVersion{Group: "apidiscovery.k8s.io", Version: out.AsVersion})
	defer span.end()
	bare, err := json.Marshal(list)
	if err != nil {
		WriteError(w, r, err)
		return
	}
	// As in Kubernetes, the ETag is the hash of the document without apiVersion and kind.
	tag := etag(bare)
	apiVersion := "apidiscovery.k8s.io/" + out.AsVersion
	list.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: "APIGroupDiscoveryList"}
	doc, err := json.Marshal(list)
	if err != nil {
		WriteError(w, r, err)
		return
	}
	switch out.MediaType {
	case negotiate.Protobuf:
		doc, err = wire.NewHeader(apiVersion, list.Kind).Marshal(list)
	case negotiate.YAML:
		doc, err = yaml.JSONToYAML(doc)
	default:
		if out.Pretty {
			doc = new(indenter).append(nil, doc)
			break
		}
		doc = append(doc, '\n')
	}
	if err != nil {
		WriteError(w, r, err)
		return
	}
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Vary", "Accept")
	h.Set("Cache-Control", "public")
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	d.s.auditObject(r, list, list.GroupVersionKind())
	a := d.s.pools.answer(w, r, http.StatusOK,
		fmt.Sprintf("%s;g=apidiscovery.k8s.io;v=%s;as=APIGroupDiscoveryList", out.MediaType, out.AsVersion))
	_, _ = a.Write(doc)
	_ = a.Close()
}

// etag returns the ETag of a document, which depends on all of its bytes.
func etag(doc []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(doc))) }

func (d *documents) write(w http.ResponseWriter, r *http.Request, obj runtime.Object, gvk schema.GroupVersionKind) {
	out, err := negotiate.Accept(r, negotiate.Standard())
	if err == nil {
		d.s.auditObject(r, obj, gvk)
		err = d.s.pools.writeObject(w, r, out, http.StatusOK, obj, gvk)
	}
	if err != nil {
		WriteError(w, r, err)
	}
}
