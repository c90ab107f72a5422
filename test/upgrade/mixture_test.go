// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/keelson/pkg/cluster"
)

// The kinds that 1.37 serves and 1.36 does not.
var (
	bundles  = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "clustertrustbundles"}
	requests = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1",
		Resource: "podcertificaterequests"}
	taints = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"}
)

// resourceOf returns the resource of an object of a kind that 1.36 does not serve.
func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	return map[string]schema.GroupVersionResource{"ClusterTrustBundle": bundles, "PodCertificateRequest": requests,
		"DeviceTaintRule": taints}[o.GetKind()]
}

// mixedNamespace has the objects that must remain while namespaces are deleted.
const mixedNamespace = "mixed"

// laterDriver has a field that 1.36 does not know.
const laterDriver = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: later.example.com}
spec: {attachRequired: false, preventPodSchedulingIfMissing: true}
`

// mixture checks what the garbage collector and the namespace controller do while both versions
// serve. API server 1 is always that of 1.37.
type mixture struct {
	*upgrade
	etcd   *clientv3.Client
	stub   string // a signing request, in base64
	bundle *unstructured.Unstructured
	role   metav1.OwnerReference // refers to a ClusterRole
	// kept has the objects of kinds unknown to 1.36 that must remain, as the API returned them.
	kept []*unstructured.Unstructured
	// dependents has the names of ConfigMaps whose owner is the bundle.
	dependents []string
}

// newMixture creates the objects of kinds that 1.36 does not know.
func (u *upgrade) newMixture() *mixture {
	u.t.Helper()
	m := &mixture{upgrade: u, etcd: u.connectEtcd()}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		u.t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		u.t.Fatal(err)
	}
	m.stub = base64.StdEncoding.EncodeToString(stub)
	ca, err := os.ReadFile(u.path("data/pki/ca.crt"))
	if err != nil {
		u.t.Fatal(err)
	}
	u.run("", "create", "namespace", mixedNamespace)
	u.run("", "create", "clusterrole", "mixed-owner", "--verb=get", "--resource=pods")
	role, err := u.client.RbacV1().ClusterRoles().Get(u.t.Context(), "mixed-owner", metav1.GetOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	m.role = refer(role.ObjectMeta, "rbac.authorization.k8s.io/v1", "ClusterRole")
	m.bundle = m.create(bundles, "", "ClusterTrustBundle", "owner", map[string]any{"trustBundle": string(ca)})
	m.kept = append(m.kept, m.bundle)
	m.keep(m.request(mixedNamespace, "request"))
	owner := u.configMap(mixedNamespace, "owner")
	m.keep(m.request(mixedNamespace, "owned-request", refer(owner.ObjectMeta, "v1", "ConfigMap")))
	m.keep(m.rule("rule"))
	m.keep(m.rule("owned-rule", m.role))
	u.run(laterDriver, "apply", "-f", "-")
	return m
}

func (m *mixture) keep(o *unstructured.Unstructured) { m.kept = append(m.kept, o) }

// create creates an object through the API server of 1.37.
func (m *mixture) create(gvr schema.GroupVersionResource, namespace, kind, name string, spec map[string]any,
	owners ...metav1.OwnerReference) *unstructured.Unstructured {
	m.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(gvr.GroupVersion().WithKind(kind))
	o.SetName(name)
	o.SetOwnerReferences(owners)
	made, err := m.servers[0].dynamic.Resource(gvr).Namespace(namespace).Create(m.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		m.t.Fatalf("%v: create %s: %v", m.at(), name, err)
	}
	return made
}

func (m *mixture) request(namespace, name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	m.t.Helper()
	return m.create(requests, namespace, "PodCertificateRequest", name, map[string]any{
		"signerName": "example.com/none", "podName": "p", "podUID": "u", "serviceAccountName": "default",
		"serviceAccountUID": "u", "nodeName": "n1", "nodeUID": "u", "stubPKCS10Request": m.stub,
	}, owners...)
}

func (m *mixture) rule(name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	m.t.Helper()
	return m.create(taints, "", "DeviceTaintRule", name, map[string]any{
		"deviceSelector": map[string]any{"driver": "d.example.com"},
		"taint":          map[string]any{"key": "example.com/broken", "effect": "NoSchedule"},
	}, owners...)
}

// mostRounds limits the number of rounds.
const mostRounds = 12

// rounds repeats a round until both API servers have served deletions of the garbage collector and of
// the namespace controller. Before each round but the first, it restarts a controller manager, because
// a controller manager that starts may connect to the other API server.
func (m *mixture) rounds() {
	m.t.Helper()
	var began [planes]int
	for i := range planes {
		began[i] = len(m.audit(i))
	}
	for n := 1; ; n++ {
		m.round(n)
		missing := []string{}
		for i, start := range began {
			log := m.audit(i)[start:]
			for _, controller := range []string{"generic-garbage-collector", "namespace-controller"} {
				if !deletes(log, "system:serviceaccount:kube-system:"+controller) {
					missing = append(missing, fmt.Sprintf("%s through API server %d", controller, i+1))
				}
			}
		}
		if len(missing) == 0 {
			return
		}
		if m.t.Logf("%v: no deletions yet by %v", m.at(), missing); n == mostRounds {
			m.t.Fatalf("no deletions by %v in %d rounds", missing, n)
		}
		m.restart(fmt.Sprintf("controller-manager-%d", 1+n%planes))
	}
}

// audit returns the audit log of an API server.
func (m *mixture) audit(server int) []byte {
	m.t.Helper()
	log, err := os.ReadFile(m.path(fmt.Sprintf("data/audit/audit-%d.log", server+1)))
	if err != nil {
		m.t.Fatal(err)
	}
	return log
}

// deletes reports whether an audit log has deletions by a user.
func deletes(log []byte, user string) bool {
	for line := range bytes.Lines(log) {
		var e struct {
			Verb string
			User struct{ Username string }
		}
		// The last line may be incomplete, because the API server is writing it.
		if json.Unmarshal(line, &e) == nil && e.User.Username == user && strings.HasPrefix(e.Verb, "delete") {
			return true
		}
	}
	return false
}

// round creates dependents, and deletes owners and a namespace. Then it checks that everything else
// remains. Known and unknown kinds are those that 1.36 serves or does not serve.
func (m *mixture) round(n int) {
	m.t.Helper()
	m.t.Logf("%v: round %d", m.at(), n)
	ctx, api := m.t.Context(), m.client.CoreV1().ConfigMaps(mixedNamespace)
	name := func(s string) string { return fmt.Sprintf("%s-%d", s, n) }

	// An object of a known kind has an owner of an unknown kind, and the other way round.
	m.configMap(mixedNamespace, name("dependent"), metav1.OwnerReference{APIVersion: m.bundle.GetAPIVersion(),
		Kind: m.bundle.GetKind(), Name: m.bundle.GetName(), UID: m.bundle.GetUID()})
	m.dependents = append(m.dependents, name("dependent"))
	m.keep(m.rule(name("rule"), m.role))
	owner := m.configMap(mixedNamespace, name("owner"))
	m.keep(m.request(mixedNamespace, name("request"), refer(owner.ObjectMeta, "v1", "ConfigMap")))

	// A namespace with objects of known and unknown kinds is deleted.
	doomed := name("doomed")
	m.run("", "create", "namespace", doomed)
	m.configMap(doomed, "map")
	m.request(doomed, "request")
	m.removeNamespace(doomed)

	// Owners of known kinds are deleted, with each propagation policy.
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground,
		metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		gone, child := name("gone-"+strings.ToLower(string(policy))), name("child-"+strings.ToLower(string(policy)))
		owner := m.configMap(mixedNamespace, gone)
		m.configMap(mixedNamespace, child, refer(owner.ObjectMeta, "v1", "ConfigMap"))
		m.delete(gone, api.Delete(ctx, gone, metav1.DeleteOptions{PropagationPolicy: &policy}))
		m.gone(gone, func(ctx context.Context) error {
			_, err := api.Get(ctx, gone, metav1.GetOptions{})
			return err
		})
		if policy == metav1.DeletePropagationOrphan {
			o, err := api.Get(ctx, child, metav1.GetOptions{})
			if err != nil || len(o.OwnerReferences) > 0 {
				m.t.Errorf("%s: %v, %v", child, o, err)
			}
			continue
		}
		m.gone(child, func(ctx context.Context) error {
			_, err := api.Get(ctx, child, metav1.GetOptions{})
			return err
		})
	}
	m.readable()
}

// lasting returns the objects that must remain, without old PodCertificateRequests: the controller
// manager of 1.37 deletes them when they are 15 minutes old.
func (m *mixture) lasting() []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(m.kept), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "PodCertificateRequest" && time.Since(o.GetCreationTimestamp().Time) > 14*time.Minute
	})
}

// listed checks that "ctl check-downgrade" lists the objects that 1.36 does not support.
func (m *mixture) listed() {
	m.t.Helper()
	want := []string{"csidrivers.storage.k8s.io - later.example.com"}
	for _, o := range m.lasting() {
		want = append(want, fmt.Sprintf("%s %s %s", resourceOf(o).GroupResource(),
			cmp.Or(o.GetNamespace(), "-"), o.GetName()))
	}
	out, err := m.command("", "check-downgrade").CombinedOutput()
	if err == nil {
		m.t.Errorf("%v: check-downgrade succeeded: %s", m.at(), out)
	}
	have := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if columns := strings.Fields(line); len(columns) > 3 {
			have[strings.Join(columns[:3], " ")] = true
		}
	}
	for _, o := range want {
		if !have[o] {
			m.t.Errorf("%v: check-downgrade does not list %s:\n%s", m.at(), o, out)
		}
	}
}

// readable checks that the API server of 1.37 returns all objects that must remain, unchanged except
// for their status: controllers of 1.37 write the status of DeviceTaintRules.
func (m *mixture) readable() {
	m.t.Helper()
	for _, want := range m.lasting() {
		client := m.servers[0].dynamic.Resource(resourceOf(want)).Namespace(want.GetNamespace())
		have, err := client.Get(m.t.Context(), want.GetName(), metav1.GetOptions{})
		if err != nil {
			m.t.Errorf("%v: %s %s: %v", m.at(), want.GetKind(), want.GetName(), err)
			continue
		}
		if was, is := m.withoutStatus(want), m.withoutStatus(have); was != is {
			m.t.Errorf("%v: %s %s: %s before, %s now", m.at(), want.GetKind(), want.GetName(), was, is)
		}
	}
	for _, name := range m.dependents {
		o, err := m.client.CoreV1().ConfigMaps(mixedNamespace).Get(m.t.Context(), name, metav1.GetOptions{})
		if err != nil || len(o.OwnerReferences) != 1 {
			m.t.Errorf("%v: %s: %v, %v", m.at(), name, o, err)
		}
	}
}

// withoutStatus returns an object as JSON, without its status and what a write of the status changes.
func (m *mixture) withoutStatus(o *unstructured.Unstructured) string {
	m.t.Helper()
	o = o.DeepCopy()
	delete(o.Object, "status")
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	text, err := json.Marshal(o)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// stored returns, by key, the bytes and the last revision of the objects in etcd that 1.36 does not
// understand: those of unknown kinds, and the one with an unknown field.
func (m *mixture) stored() map[string]string {
	m.t.Helper()
	got, err := m.etcd.Get(m.t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		m.t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range got.Kvs {
		for _, kind := range []string{bundles.Resource, requests.Resource, taints.Resource} {
			if strings.Contains(string(kv.Key), "/"+kind+"/") || strings.HasSuffix(string(kv.Key), "/later.example.com") {
				out[string(kv.Key)] = fmt.Sprintf("revision %d: %q", kv.ModRevision, kv.Value)
			}
		}
	}
	return out
}

// unchanged checks that everything that stored returned before is still stored, unchanged.
func (m *mixture) unchanged(when string, before map[string]string) {
	m.t.Helper()
	now := m.stored()
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if now[key] != before[key] {
			m.t.Errorf("%s: %s: %s before, %s now", when, key, before[key], now[key])
		}
	}
	m.t.Logf("%v: %s: %d objects that 1.36 cannot read are stored unchanged; now there are %d: %v", m.at(), when,
		len(before), len(now), slices.Sorted(maps.Keys(now)))
}

// connectEtcd returns a client of the cluster's etcd, which listens in the cluster's network namespace.
func (u *upgrade) connectEtcd() *clientv3.Client {
	u.t.Helper()
	pki := func(name string) string { return u.path("data/pki/" + name) }
	pair, err := tls.LoadX509KeyPair(pki("apiserver-etcd-client.crt"), pki("apiserver-etcd-client.key"))
	if err != nil {
		u.t.Fatal(err)
	}
	authority, err := os.ReadFile(pki("etcd-ca.crt"))
	if err != nil {
		u.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	st, err := cluster.Inspect(u.t.Context(), u.cfg)
	if err != nil {
		u.t.Fatal(err)
	}
	dial := dialFrom(st.Supervisor)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://127.0.0.1:2379"},
		TLS:       &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dial(ctx, "tcp", address)
		})},
	})
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { _ = client.Close() })
	return client
}
