// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/proxy"

	"keelson.dev/api/storage/v1alpha1"
	"keelson.dev/apiserver/rest"
)

// Drivers forwards a call of a storage driver's CSI service to the kubelet of the driver's node.
// The paths are those of storage.keelson.dev. The request has been authorized for nodes/csi of that
// group, which gives no access to other paths of the kubelet.
func (p *Proxies) Drivers(w http.ResponseWriter, r *http.Request) {
	if err := p.driver(w, r); err != nil {
		rest.WriteError(w, r, err)
	}
}

// driver does the work of Drivers. It returns an error if it has not answered the request.
func (p *Proxies) driver(w http.ResponseWriter, r *http.Request) error {
	nodes := schema.GroupResource{Group: v1alpha1.Group, Resource: "nodes"}
	if r.Method != http.MethodPost {
		return apierrors.NewMethodNotSupported(nodes, r.Method)
	}
	if httpstream.IsUpgradeRequest(r) {
		return apierrors.NewBadRequest("calls of storage drivers do not support upgrades")
	}
	// The parts are: name of the node, "csi", driver, service, method. Parts that are empty or dots
	// are rejected, because the kubelet might resolve the path to another one.
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, v1alpha1.NodesPath), "/")
	if len(parts) != 5 || parts[1] != v1alpha1.DriversSubresource || slices.ContainsFunc(parts, notPlain) {
		return apierrors.NewNotFound(nodes, strings.Join(parts, "/"))
	}
	if !slices.Contains([]string{"csi.v1.Identity", "csi.v1.Controller"}, parts[3]) {
		return apierrors.NewForbidden(nodes, parts[0],
			errors.New("only the services csi.v1.Identity and csi.v1.Controller may be called"))
	}
	k, err := p.kubelets.of(r.Context(), parts[0])
	if err != nil {
		return err
	}
	location := k.url("/"+strings.Join(parts[1:], "/"), nil)
	proxy.NewUpgradeAwareHandler(location, p.kubelets.transports().proxied, true, false, responder{}).ServeHTTP(w, r)
	return nil
}

// notPlain reports whether a part of a path is empty, "." or "..".
func notPlain(part string) bool { return part == "" || part == "." || part == ".." }
