// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/volumebinder"
)

// TestCVE_2019_11247 requests a cluster-scoped custom resource by a namespaced path, as a user who
// has all rights in that namespace.
func TestCVE_2019_11247(t *testing.T) {
	lab := newLab(t, nil)
	lab.namespace(t, "a")
	extensions, err := apiextensionsclient.NewForConfig(lab.Config)
	check(t, err)
	open := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	_, err = extensions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(),
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
					{Name: "v1", Served: true, Storage: true,
						Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: open}}},
			}}, metav1.CreateOptions{})
	check(t, err)
	client, err := dynamic.NewForConfig(lab.Config)
	check(t, err)
	things := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"})
	eventually(t, "things are served", func(ctx context.Context) bool {
		_, err := things.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x"},
			"spec": "s3cr3t"}}, metav1.CreateOptions{})
		return err == nil
	})
	eve := lab.user(t, "eve", "a", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"},
		Verbs: []string{"*"}})
	allowed(t, func(ctx context.Context) error {
		_, err := eve.CoreV1().ConfigMaps("a").List(ctx, metav1.ListOptions{})
		return err
	})
	http1, err := rest.HTTPClientFor(lab.UserConfig(t, "eve"))
	check(t, err)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodPost} {
		for _, path := range []string{"/apis/example.com/v1/namespaces/a/things/x",
			"/apis/example.com/v1/namespaces/a/things", "/apis/example.com/v1/namespaces/a/things/x/status"} {
			req, err := http.NewRequestWithContext(t.Context(), method, lab.Config.Host+path,
				strings.NewReader(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x"},"spec":"evil"}`))
			check(t, err)
			req.Header.Set("Content-Type", map[bool]string{true: "application/merge-patch+json",
				false: "application/json"}[method == http.MethodPatch])
			resp, err := http1.Do(req)
			check(t, err)
			body, err := io.ReadAll(resp.Body)
			check(t, err)
			_ = resp.Body.Close()
			if resp.StatusCode < 400 || strings.Contains(string(body), "s3cr3t") {
				t.Errorf("%s %s is answered with %d: %s", method, path, resp.StatusCode, body)
			}
		}
	}
	if x, err := things.Get(t.Context(), "x", metav1.GetOptions{}); err != nil || x.Object["spec"] != "s3cr3t" {
		t.Errorf("the object: %v, %v", x, err)
	}
}

// TestCVE_2020_8555 creates storage classes and volumes with which older controller managers could
// be made to send a request to any address and publish the response in an event.
func TestCVE_2020_8555(t *testing.T) {
	own := newVictim(t)
	lab := newLab(t, nil)
	lab.namespace(t, "a")
	controllertest.Run(t, lab.Server, controller.Options{}, volumebinder.New)
	// The last claim is for a provisioner outside Kubernetes. When the controller has processed it,
	// it has processed the earlier claims too.
	for _, provisioner := range []string{"kubernetes.io/glusterfs", "kubernetes.io/quobyte",
		"kubernetes.io/storageos", "kubernetes.io/scaleio", "kubernetes.io/rbd", "example.com/last"} {
		_, name, _ := strings.Cut(provisioner, "/")
		_, err := lab.Client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
			Parameters: map[string]string{"resturl": own.URL, "quobyteAPIServer": own.URL, "gateway": own.URL,
				"monitors": own.Listener.Addr().String()},
		}, metav1.CreateOptions{})
		check(t, err)
		_, err = lab.Client.CoreV1().PersistentVolumeClaims("a").Create(t.Context(), &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To(name), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
			}}, metav1.CreateOptions{})
		check(t, err)
	}
	eventually(t, "the last claim is handed on", func(ctx context.Context) bool {
		claim, err := lab.Client.CoreV1().PersistentVolumeClaims("a").Get(ctx, "last", metav1.GetOptions{})
		return err == nil && claim.Annotations["volume.kubernetes.io/storage-provisioner"] == "example.com/last"
	})
	own.unharmed(t)
}

// TestCVE_2023_2727 checks that policies for containers also apply to ephemeral containers: an
// admission policy about images, and the Pod Security Standards.
func TestCVE_2023_2727(t *testing.T) {
	lab := newLab(t, nil)
	const ns = "restricted"
	_, err := lab.Client.CoreV1().Namespaces().Create(t.Context(),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns,
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}}, metav1.CreateOptions{})
	check(t, err)
	account(t, lab.Client, ns)
	pods := lab.Client.CoreV1().Pods(ns)
	pod, err := pods.Create(t.Context(),
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
	check(t, err)
	evil := v1.Container{Name: "evil", Image: "i", SecurityContext: &v1.SecurityContext{Privileged: ptr.To(true)}}
	next := pod.DeepCopy()
	next.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon(evil)}}
	_, err = pods.UpdateEphemeralContainers(t.Context(), "p", next, metav1.UpdateOptions{})
	refused(t, "a privileged ephemeral container", err)
	for what, spec := range map[string]v1.PodSpec{
		"init container": {InitContainers: []v1.Container{evil}, Containers: []v1.Container{{Name: "c", Image: "i"}}},
		"container":      {Containers: []v1.Container{evil}},
	} {
		_, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
			Spec: spec}, metav1.CreateOptions{})
		refused(t, "a privileged "+what, err)
	}
}

// TestCVE_2025_1974 checks that no component that processes users' input, and no node, has the
// right to read all secrets. In that CVE, users could make a controller with this right execute
// their code.
func TestCVE_2025_1974(t *testing.T) {
	lab := newLab(t, nil)
	lab.namespace(t, "a")
	for _, who := range []authorizationv1.SubjectAccessReviewSpec{
		{User: "system:kube-proxy"}, {User: "system:kube-proxy:n1", Groups: []string{"keelson:proxies"}},
		{User: "system:kube-scheduler"}, {User: "system:node:n1", Groups: []string{"system:nodes"}},
		{User: "system:serviceaccount:kube-system:coredns", Groups: []string{"system:serviceaccounts"}},
		{User: "system:serviceaccount:kube-system:endpointslice-controller",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}},
		{User: "system:serviceaccount:kube-system:service-controller",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}},
		{User: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:authenticated"}},
	} {
		for _, verb := range []string{"get", "list", "watch"} {
			for _, namespace := range []string{"", "a", "kube-system"} {
				who.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: verb, Resource: "secrets", Namespace: namespace}
				got, err := lab.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
					&authorizationv1.SubjectAccessReview{Spec: who}, metav1.CreateOptions{})
				check(t, err)
				if got.Status.Allowed {
					t.Errorf("%s may %s secrets in %q: %s", who.User, verb, namespace, got.Status.Reason)
				}
			}
		}
	}
}

// TestBodiesOfDelete checks that the body of a DELETE request is parsed like other bodies: its
// length and depth are limited, it must have the right kind, and no part of it is taken for another
// request.
func TestBodiesOfDelete(t *testing.T) {
	lab := newLab(t, nil)
	lab.namespace(t, "a")
	for _, name := range []string{"kept", "other"} {
		_, err := lab.Client.CoreV1().ConfigMaps("a").Create(t.Context(),
			&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		check(t, err)
	}
	there := func(what string) {
		t.Helper()
		list, err := lab.Client.CoreV1().ConfigMaps("a").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) < 2 {
			t.Fatalf("after %s: %v, %v", what, list, err)
		}
	}
	for what, body := range map[string]string{
		"another kind":           `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"kept"}}`,
		"no JSON":                `dryRun=All`,
		"depth":                  strings.Repeat(`{"preconditions":`, 100_000),
		"length":                 `{"dryRun":["All"],"x":"` + strings.Repeat("x", 4<<20) + `"}`,
		"another UID":            `{"preconditions":{"uid":"0"}}`,
		"an unknown way":         `{"propagationPolicy":"Evil"}`,
		"two contradictory ways": `{"propagationPolicy":"Background","orphanDependents":true}`,
	} {
		for _, path := range []string{"/api/v1/namespaces/a/configmaps/kept", "/api/v1/namespaces/a/configmaps"} {
			if what == "another UID" && strings.HasSuffix(path, "configmaps") {
				continue // deletions of a collection ignore preconditions
			}
			if code := send(t, lab.Config, http.MethodDelete, path, "application/json", body); code < 400 || code >= 500 {
				t.Errorf("%s: DELETE %s is answered with %d", what, path, code)
			}
			there(what)
		}
	}
	if code := send(t, lab.Config, http.MethodDelete, "/api/v1/namespaces/a/configmaps/kept",
		"application/json", `{"dryRun":["All"]}`); code != http.StatusOK {
		t.Errorf("a trial is answered with %d", code)
	}
	there("a trial")
	// The body of the first request has the form of a second request.
	hidden := "DELETE /api/v1/namespaces/a/configmaps/other HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
	conn, _ := raw(t, lab.Config, fmt.Sprintf("DELETE /api/v1/namespaces/a/configmaps/none "+
		"HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(hidden), hidden))
	check(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, _ = io.Copy(io.Discard, conn)
	there("a hidden request")
}
