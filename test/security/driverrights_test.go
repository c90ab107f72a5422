// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// apply creates the objects in a manifest file of "ctl cluster".
func (l *lab) apply(t *testing.T, manifest string) {
	t.Helper()
	file, err := os.Open(filepath.Join("../../pkg/provision/manifests", manifest))
	check(t, err)
	defer file.Close()
	client, err := dynamic.NewForConfig(l.Config)
	check(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(l.Client.Discovery()))
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(file)); ; {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		check(t, err)
		o := &unstructured.Unstructured{}
		check(t, yaml.Unmarshal(doc, &o.Object))
		gvk := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind}, gvk.Version)
		check(t, err)
		_, err = client.Resource(mapping.Resource).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{})
		check(t, err)
	}
}

// may reports whether a user with the given groups has a right, according to a SubjectAccessReview.
func (l *lab) may(t *testing.T, user string, groups []string, right authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
		Groups: groups, ResourceAttributes: &right}}
	got, err := l.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	check(t, err)
	return got.Status.Allowed
}

// driversAccount is the service account of the controller that calls CSI drivers.
const driversAccount = "system:serviceaccount:kube-system:csi-drivers-controller"

// request sends a request to a kubelet with the client certificate of c, and returns the status
// code.
func request(t *testing.T, c *rest.Config, address, method, path string) int {
	t.Helper()
	cert, err := tls.X509KeyPair(c.CertData, c.KeyData)
	check(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		// The certificate of the kubelet is self-signed.
		Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true,
	}}}
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+path, nil)
	check(t, err)
	resp, err := client.Do(req)
	check(t, err)
	check(t, resp.Body.Close())
	return resp.StatusCode
}

// TestRightsOfDriversController checks that the account that calls CSI drivers cannot run commands
// in pods: neither through the API server, nor directly on the kubelet, where admission policies do
// not apply.
func TestRightsOfDriversController(t *testing.T) {
	lab := newLab(t, nil)
	lab.apply(t, "storage.yaml")
	n, address := lab.kubelet(t, filepath.Join(lab.Dir, "ca.crt"))
	eventually(t, "the rights of the account", func(context.Context) bool {
		return lab.may(t, driversAccount, nil,
			authorizationv1.ResourceAttributes{Verb: "create", Group: "storage.k8s.io", Resource: "csistoragecapacities"})
	})
	account := lab.UserConfig(t, driversAccount)
	for _, path := range []string{"/run/a/p/c?cmd=id", "/exec/a/p/c?command=id&output=1",
		"/attach/a/p/c?output=1", "/checkpoint/a/p/c", "/csi/d/csi.v1.Identity/Probe"} {
		if code := request(t, account, address, http.MethodPost, path); code != http.StatusForbidden {
			t.Errorf("the kubelet answers %s with %d", strings.SplitN(path, "?", 2)[0], code)
		}
	}
	lab.node(t, "n1", "192.0.2.1:10250")
	const drivers = "/apis/storage.keelson.dev/v1alpha1/nodes/"
	for path, want := range map[string]int{
		"/api/v1/nodes/n1/proxy/run/a/p/c?cmd=id":         http.StatusForbidden,
		"/api/v1/nodes/n1/proxy/csi/d/csi.v1.Identity/X":  http.StatusForbidden,
		drivers + "n1/csi/d/csi.v1.Node/NodeGetInfo":      http.StatusForbidden,
		drivers + "none/csi/d/csi.v1.Identity/Probe":      http.StatusNotFound,
		drivers + "n1/csi/../csi.v1.Identity/Probe":       http.StatusNotFound,
		drivers + "n1/csi/%2E%2E/csi.v1.Identity/Probe":   http.StatusNotFound,
		drivers + "n1/csi/d/csi.v1.Identity/..":           http.StatusNotFound,
		drivers + "n1/csi/d/csi.v1.Identity/../../../run": http.StatusNotFound,
		drivers + "n1/csi":                                http.StatusNotFound,
		drivers + "n1/run/a/p/c":                          http.StatusForbidden,
		drivers + "n1":                                    http.StatusForbidden,
	} {
		if code := request(t, account, strings.TrimPrefix(account.Host, "https://"), http.MethodPost, path); code != want {
			t.Errorf("the API server answers %s with %d, want %d", path, code, want)
		}
	}
	// The API server must not forward upgrade requests or other methods to drivers, and other users
	// may not call drivers.
	_, resp := raw(t, account, "POST "+drivers+"n1/csi/d/csi.v1.Identity/Probe HTTP/1.1\r\nHost: "+
		"x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n")
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an upgrade is answered with %d", resp.StatusCode)
	}
	if code := request(t, lab.Config, strings.TrimPrefix(account.Host, "https://"), http.MethodGet,
		drivers+"n1/csi/d/csi.v1.Identity/Probe"); code != http.StatusMethodNotAllowed {
		t.Errorf("GET is answered with %d", code)
	}
	if code := request(t, lab.UserConfig(t, "eve"), strings.TrimPrefix(account.Host, "https://"),
		http.MethodPost, drivers+"n1/csi/d/csi.v1.Identity/Probe"); code != http.StatusForbidden {
		t.Errorf("a call without the right is answered with %d", code)
	}
	if ran := n.ran.Load(); ran > 0 {
		t.Errorf("%d commands were run", ran)
	}
}
