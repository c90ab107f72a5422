// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// machinesServer returns an API server with the add-ons of a cluster on real machines.
func machinesServer(t *testing.T) *testserver.Server {
	t.Helper()
	c := exampleCluster()
	c.Machines = true
	s := testserver.Start(t, testserver.Options{Configure: func(cfg *config.Config) {
		cfg.ServiceClusterIPRanges = []netip.Prefix{c.Families[0].Services, c.Families[1].Services}
	}})
	objects, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyAddons(t.Context(), objects, clock.Real()); err != nil {
		t.Fatal(err)
	}
	return s
}

// withToken returns a client that authenticates with a new join token, which was created at a time.
func withToken(t *testing.T, s *testserver.Server, created time.Time) kubernetes.Interface {
	t.Helper()
	token, err := CreateToken(t.Context(), s.Client, TokenOptions{Life: time.Hour}, testclock.NewFakeClock(created))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(s.TokenConfig(token))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// joiner returns a client that authenticates with a valid join token. The server follows tokens and
// rights through watches, so joiner waits until the server knows them.
func joiner(t *testing.T, s *testserver.Server) kubernetes.Interface {
	t.Helper()
	client := withToken(t, s, time.Now())
	awaitRights(t, client, joinRights())
	return client
}

// joinRights are some rights of a client with a join token.
func joinRights() []authorizationv1.ResourceAttributes {
	return []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "keelson-config"},
		{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
		{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: "nodeclient"},
	}
}

// awaitRights waits until the server knows that a client has rights.
func awaitRights(t *testing.T, client kubernetes.Interface, rights []authorizationv1.ResourceAttributes) {
	t.Helper()
	err := Wait(t.Context(), clock.Real(), time.Minute, func(ctx context.Context) error {
		for _, right := range rights {
			review := &authorizationv1.SelfSubjectAccessReview{}
			review.Spec.ResourceAttributes = &right
			got, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if !got.Status.Allowed {
				return fmt.Errorf("not allowed: %s %s", right.Verb, right.Resource)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTokenJoins checks that a machine with a join token can do what "ctl join" needs. The example of
// a request that is refused shows that the server checks rights. An expired token is not accepted.
func TestTokenJoins(t *testing.T) {
	s := machinesServer(t)
	shared := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "keelson-config"}, Data: map[string]string{"a": "b"}}
	_, err := s.Client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), shared, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client := joiner(t, s)
	requests := client.CertificatesV1().CertificateSigningRequests()
	sent, err := requests.Create(t.Context(), kubeletRequest(t, "m2"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := requests.Get(t.Context(), sent.Name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if got, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), shared.Name,
		metav1.GetOptions{}); err != nil || got.Data["a"] != "b" {
		t.Errorf("configuration %v, %v", got.Data, err)
	}
	_, err = client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("another ConfigMap: %v, want forbidden", err)
	}
	late := withToken(t, s, time.Now().Add(-2*time.Hour))
	_, err = late.CoreV1().ConfigMaps("kube-system").Get(t.Context(), shared.Name, metav1.GetOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("expired token: %v, want unauthorized", err)
	}
}

// kubeletRequest returns a kubelet's request for the client certificate of a node.
func kubeletRequest(t *testing.T, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
}

// everyone has the rights that Kubernetes gives each authenticated client.
var everyone = []string{
	"create authentication.k8s.io/selfsubjectreviews",
	"create authorization.k8s.io/selfsubjectaccessreviews", "create authorization.k8s.io/selfsubjectrulesreviews",
}

// joining has the rights that only clients with a join token have. As in Kubernetes, such a client can
// read all CertificateSigningRequests, which contain no secrets. The right to create the subresource
// nodeclient makes the controller manager approve the client's request.
var joining = []string{
	"create certificates.k8s.io/certificatesigningrequests", "get certificates.k8s.io/certificatesigningrequests",
	"list certificates.k8s.io/certificatesigningrequests", "watch certificates.k8s.io/certificatesigningrequests",
	"create certificates.k8s.io/certificatesigningrequests/nodeclient",
}

// TestTokenRules checks that the roles of a client with a join token have no rules but those that a
// machine needs to join, in any namespace. With a token of a control plane, these include reading the
// token's own Secret.
func TestTokenRules(t *testing.T) {
	s := machinesServer(t)
	checkRules(t, s, joiner(t, s))
	token, client := controlPlaneJoiner(t, s, Authorities{})
	id, _ := TokenID(token.Join)
	checkRules(t, s, client, "get /secrets bootstrap-token-"+id)
}

// checkRules checks the rules of a client with a join token. more has further ones in kube-system.
func checkRules(t *testing.T, s *testserver.Server, client kubernetes.Interface, more ...string) {
	t.Helper()
	reviews := client.AuthorizationV1().SelfSubjectRulesReviews()
	namespaces, err := s.Client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range namespaces.Items {
		want := slices.Concat(everyone, joining)
		if namespace.Name == "kube-system" {
			want = append(append(want, "get /configmaps keelson-config"), more...)
		}
		review := &authorizationv1.SelfSubjectRulesReview{}
		review.Spec.Namespace = namespace.Name
		review, err := reviews.Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		checkSet(t, "rules in "+namespace.Name, rules(review.Status.ResourceRules), want)
		for _, r := range review.Status.NonResourceRules {
			if !slices.Equal(r.Verbs, []string{"get"}) {
				t.Errorf("rule %v", r)
			}
			for _, url := range r.NonResourceURLs {
				if !slices.Contains(publicURLs, url) {
					t.Errorf("rule for %s", url)
				}
			}
		}
	}
}

// publicURLs are the paths without objects that each authenticated client can read.
var publicURLs = []string{"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
	"/readyz", "/version", "/version/"}

// rules returns a line for each verb, resource and name in RBAC rules.
func rules(list []authorizationv1.ResourceRule) (out []string) {
	for _, r := range list {
		for _, verb := range r.Verbs {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					names := r.ResourceNames
					if len(names) == 0 {
						names = []string{""}
					}
					for _, name := range names {
						out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s/%s %s", verb, group, resource, name)))
					}
				}
			}
		}
	}
	return out
}

// TestTokenRights asks the API server about each verb of each resource that it serves, because rules
// are not the only source of rights.
func TestTokenRights(t *testing.T) {
	s := machinesServer(t)
	checkRights(t, joiner(t, s))
	_, client := controlPlaneJoiner(t, s, Authorities{})
	checkRights(t, client)
}

func checkRights(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	if len(lists) < 15 {
		t.Fatalf("discovery has only %d groups", len(lists))
	}
	may := map[string]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
				if allowed(t, client, gv.Group, r, verb) {
					may[verb+" "+gv.Group+"/"+r.Name] = true
				}
			}
		}
	}
	// Discovery does not list the subresource nodeclient, which exists only in rules.
	checkSet(t, "rights", slices.Collect(maps.Keys(may)), slices.Concat(everyone, joining[:len(joining)-1]))
}

// allowed reports whether a client may use a verb on a resource, in kube-system if the resource has
// namespaces.
func allowed(t *testing.T, client kubernetes.Interface, group string, r *metav1.APIResource, verb string) bool {
	t.Helper()
	resource, subresource, _ := strings.Cut(r.Name, "/")
	review := &authorizationv1.SelfSubjectAccessReview{}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Group: group, Resource: resource, Subresource: subresource, Verb: verb,
	}
	if r.Namespaced {
		review.Spec.ResourceAttributes.Namespace = "kube-system"
	}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// checkSet checks that two lists have the same elements.
func checkSet(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
