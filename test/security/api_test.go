// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// TestAPI carries out several attacks on one API server. Each attack creates its own objects.
func TestAPI(t *testing.T) {
	lab := newLab(t, nil)
	lab.namespace(t, "a")
	lab.namespace(t, "b")
	lab.node(t, "n0", "192.0.2.1:10250")
	for name, attack := range map[string]func(*testing.T, *lab0){
		"CVE-2020-8554":    claimAddresses,
		"CVE-2021-25737":   endpointsOnTheNode,
		"CVE-2021-25740":   endpointsElsewhere,
		"CVE-2025-5187":    nodeOwnedByAnObject,
		"CVE-2025-4563":    mirrorPodWithDevices,
		"CVE-2019-11253":   documentBombs,
		"CVE-2019-1002100": patchBombs,
		"CVE-2020-8552":    manyLabels,
		"CVE-2022-3162":    otherTypes,
		"CVE-2021-25735":   nodeSeenByAdmission,
		"CVE-2023-2728":    secretsPastTheAccount,
		"CVE-2020-8565":    credentialsInLogs,
		"KEP-2862":         commandsByReading,
	} {
		t.Run(name, func(t *testing.T) { attack(t, &lab0{lab}) })
	}
}

// lab0 is the lab that the attacks of TestAPI share.
type lab0 struct{ *lab }

func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v", what, err)
	}
}

// claimAddresses attacks with a Service whose external address belongs to another host. If the
// attack succeeded, the Service would receive that host's traffic.
func claimAddresses(t *testing.T, lab *lab0) {
	bob := lab.owner(t, "bob-8554", "a")
	services := bob.CoreV1().Services("a")
	plain := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "plain"},
		Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 443}}}}
	var made *v1.Service
	allowed(t, func(ctx context.Context) (err error) {
		made, err = services.Create(ctx, plain, metav1.CreateOptions{})
		return err
	})
	claiming := plain.DeepCopy()
	claiming.Name, claiming.Spec.ExternalIPs = "claiming", []string{"198.51.100.7"}
	for who, c := range map[string]kubernetes.Interface{"an owner of the namespace": bob, "an administrator": lab.Client} {
		_, err := c.CoreV1().Services("a").Create(t.Context(), claiming, metav1.CreateOptions{})
		refused(t, who+" claims an address", err)
		_, err = c.CoreV1().Services("a").Patch(t.Context(), "plain", types.MergePatchType,
			[]byte(`{"spec":{"externalIPs":["198.51.100.7"]}}`), metav1.PatchOptions{})
		refused(t, who+" claims an address later", err)
	}
	// The user may not set the load balancer's address in the status; only the controller of a load
	// balancer may do that.
	made.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "198.51.100.7"}}
	_, err := services.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	refused(t, "an owner of the namespace writes the status", err)
	made.Spec.Type = v1.ServiceTypeLoadBalancer
	after, err := services.Update(t.Context(), made, metav1.UpdateOptions{})
	check(t, err)
	if len(after.Status.LoadBalancer.Ingress) > 0 {
		t.Error("an update of the Service also changed its status")
	}
}

func slice(name string, addresses ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
		Ports: []discoveryv1.EndpointPort{{Port: ptr.To(int32(80))}},
	}
}

// endpointsOnTheNode attacks with endpoints at loopback, link-local, unspecified and multicast
// addresses, because these reach the nodes themselves.
func endpointsOnTheNode(t *testing.T, lab *lab0) {
	for i, address := range []string{"127.0.0.1", "127.9.9.9", "169.254.169.254", "0.0.0.0", "224.0.0.1"} {
		name := fmt.Sprintf("here-%d", i)
		if _, err := lab.Client.DiscoveryV1().EndpointSlices("a").Create(t.Context(), slice(name, address),
			metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("a slice with %s: %v", address, err)
		}
		// Endpoints is deprecated, but the API server still accepts it.
		old := &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name},
			Subsets: []v1.EndpointSubset{{Addresses: []v1.EndpointAddress{{IP: address}}, Ports: []v1.EndpointPort{{Port: 80}}}}}
		if _, err := lab.Client.CoreV1().Endpoints("a").Create(t.Context(), old,
			metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("endpoints with %s: %v", address, err)
		}
	}
}

// endpointsElsewhere attacks with endpoints at a pod of another namespace. Programs that forward
// requests to the Service would reach that pod despite the network policies of its namespace.
func endpointsElsewhere(t *testing.T, lab *lab0) {
	lab.pod(t, "a", "own", "n0", "10.244.0.5")
	lab.pod(t, "b", "others", "n0", "10.244.0.6")
	// The built-in roles do not grant the right to write endpoints.
	bob := lab.owner(t, "bob-25740", "a")
	allowed(t, func(ctx context.Context) error {
		_, err := bob.CoreV1().Pods("a").List(ctx, metav1.ListOptions{})
		return err
	})
	_, err := bob.DiscoveryV1().EndpointSlices("a").Create(t.Context(), slice("bob", "10.244.0.5"), metav1.CreateOptions{})
	refused(t, "an owner of the namespace writes endpoints", err)
	// A user with that right may only use the addresses of pods in the same namespace.
	eve := lab.user(t, "eve-25740", "a", rbacv1.PolicyRule{APIGroups: []string{"", "discovery.k8s.io"},
		Resources: []string{"endpoints", "endpointslices"}, Verbs: []string{"*"}})
	slices := eve.DiscoveryV1().EndpointSlices("a")
	allowed(t, func(ctx context.Context) error {
		_, err := slices.Create(ctx, slice("own", "10.244.0.5"), metav1.CreateOptions{})
		return err
	})
	own, err := slices.Get(t.Context(), "own", metav1.GetOptions{})
	check(t, err)
	for what, address := range map[string]string{"a pod of another namespace": "10.244.0.6",
		"no pod at all": "203.0.113.9"} {
		_, err := slices.Create(t.Context(), slice("new", address), metav1.CreateOptions{})
		refused(t, "a slice with "+what, err)
		changed := own.DeepCopy()
		changed.Endpoints[0].Addresses = []string{address}
		_, err = slices.Update(t.Context(), changed, metav1.UpdateOptions{})
		refused(t, "a slice changed to "+what, err)
		_, err = slices.Patch(t.Context(), "own", types.JSONPatchType,
			[]byte(`[{"op":"add","path":"/endpoints/-","value":{"addresses":["`+address+`"]}}]`), metav1.PatchOptions{})
		refused(t, "a slice patched to "+what, err)
		// Endpoints is deprecated, but the API server still accepts it.
		old := &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "old"},
			Subsets: []v1.EndpointSubset{{NotReadyAddresses: []v1.EndpointAddress{{IP: address}},
				Ports: []v1.EndpointPort{{Port: 80}}}}}
		_, err = eve.CoreV1().Endpoints("a").Create(t.Context(), old, metav1.CreateOptions{})
		refused(t, "endpoints with "+what, err)
	}
}

// nodeOwnedByAnObject attacks with a Node that has an owner reference. The garbage collector would
// delete the Node together with its owner, and the Node would register again without its taints.
func nodeOwnedByAnObject(t *testing.T, lab *lab0) {
	lab.node(t, "n5187", "192.0.2.51:10250")
	node := lab.as(t, "system:node:n5187", "system:nodes")
	for what, patch := range map[string]string{
		"owner": `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap",` +
			`"name":"x","uid":"00000000-0000-0000-0000-000000000001"}]}}`,
		"restricted labels": `{"metadata":{"labels":{"node-restriction.kubernetes.io/tier":"secure"}}}`,
		"taints":            `{"spec":{"taints":[]}}`,
	} {
		if what == "taints" { // a taint that the Node would lose
			_, err := lab.Client.CoreV1().Nodes().Patch(t.Context(), "n5187", types.MergePatchType,
				[]byte(`{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
			check(t, err)
		}
		for _, sub := range [][]string{nil, {"status"}} {
			after, err := node.CoreV1().Nodes().Patch(t.Context(), "n5187", types.MergePatchType, []byte(patch),
				metav1.PatchOptions{}, sub...)
			if err == nil && (len(after.OwnerReferences) > 0 ||
				after.Labels["node-restriction.kubernetes.io/tier"] != "" || what == "taints" && len(after.Spec.Taints) == 0) {
				t.Errorf("a node changes its %s by %v", what, sub)
			}
		}
	}
	refused(t, "a node deletes itself", node.CoreV1().Nodes().Delete(t.Context(), "n5187", metav1.DeleteOptions{}))
	_, err := node.CoreV1().Nodes().Patch(t.Context(), "n0", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{})
	refused(t, "a node changes another", err)
}

// mirrorPodWithDevices attacks with a mirror pod that uses resource claims, which would give a node
// access to devices of other nodes.
func mirrorPodWithDevices(t *testing.T, lab *lab0) {
	lab.node(t, "n4563", "192.0.2.45:10250")
	node := lab.as(t, "system:node:n4563", "system:nodes")
	account(t, lab.Client, "a")
	owner, err := lab.Client.CoreV1().Nodes().Get(t.Context(), "n4563", metav1.GetOptions{})
	check(t, err)
	mirror := func(name string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a",
				Annotations: map[string]string{v1.MirrorPodAnnotationKey: "x"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n4563",
					UID: owner.UID, Controller: ptr.To(true)}}},
			Spec: v1.PodSpec{NodeName: "n4563", Containers: []v1.Container{{Name: "c", Image: "i"}}},
		}
	}
	bad := mirror("claims")
	bad.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("others")}}
	if _, err := node.CoreV1().Pods("a").Create(t.Context(), bad, metav1.CreateOptions{}); err == nil {
		t.Error("a mirror pod with claims is created")
	}
	for what, change := range map[string]func(*v1.PodSpec){
		"a secret": func(s *v1.PodSpec) {
			s.Volumes = []v1.Volume{
				{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "others"}}}}
		},
		"an account": func(s *v1.PodSpec) { s.ServiceAccountName = "default" },
	} {
		p := mirror("with")
		change(&p.Spec)
		if _, err := node.CoreV1().Pods("a").Create(t.Context(), p, metav1.CreateOptions{}); err == nil {
			t.Errorf("a mirror pod with %s is created", what)
		}
	}
	pod, err := node.CoreV1().Pods("a").Create(t.Context(), mirror("plain"), metav1.CreateOptions{})
	check(t, err)
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To("others")}}
	if after, err := node.CoreV1().Pods("a").UpdateStatus(t.Context(), pod,
		metav1.UpdateOptions{}); err == nil && len(after.Status.ResourceClaimStatuses) > 0 {
		t.Error("a node says which claims a pod has")
	}
}

// send sends a request with a body and returns the status code.
func send(t *testing.T, c *rest.Config, method, path, contentType, body string) int {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	check(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, strings.NewReader(body))
	check(t, err)
	req.Header.Set("Content-Type", contentType)
	resp, err := client.Do(req)
	check(t, err)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// documentBombs sends small documents whose parsing takes much memory or time (CVE-2019-11254).
func documentBombs(t *testing.T, lab *lab0) {
	var bomb strings.Builder
	bomb.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na: &a [x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c <= 'i'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c [", c, c)
		bomb.WriteString(strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ",") + "]\n")
	}
	const path = "/api/v1/namespaces/a/configmaps"
	for what, body := range map[string]string{
		"aliases":     bomb.String(),
		"depth":       "apiVersion: v1\nkind: ConfigMap\nmetadata: " + strings.Repeat("[", 200_000),
		"open braces": strings.Repeat("{", 500_000),
		"too long": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: long}\ndata: {a: \"" +
			strings.Repeat("x", 4<<20) + "\"}",
	} {
		if code := send(t, lab.Config, http.MethodPost, path, "application/yaml", body); code < 400 || code >= 500 {
			t.Errorf("%s are answered with %d", what, code)
		}
		if code := send(t, lab.Config, http.MethodPatch, path+"/bomb?fieldManager=x",
			"application/apply-patch+yaml", body); code < 400 || code >= 500 {
			t.Errorf("%s, applied, are answered with %d", what, code)
		}
	}
	if code := send(t, lab.Config, http.MethodPost, path, "application/json", strings.Repeat(`{"a":`, 100_000)+
		"1"+strings.Repeat("}", 100_000)); code < 400 || code >= 500 {
		t.Errorf("deep JSON is answered with %d", code)
	}
}

// patchBombs sends patches with many operations, and patches that copy a document into itself
// repeatedly.
func patchBombs(t *testing.T, lab *lab0) {
	_, err := lab.Client.CoreV1().ConfigMaps("a").Create(t.Context(),
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "patched"},
			Data: map[string]string{"a": strings.Repeat("x", 1000)}}, metav1.CreateOptions{})
	check(t, err)
	const path = "/api/v1/namespaces/a/configmaps/patched"
	many := "[" + strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"/kind","value":"ConfigMap"},`,
		20_000), ",") + "]"
	var copies []string
	for i := range 40 { // doubles the document 40 times: 1 KB becomes 1 PB
		copies = append(copies, fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/c%d"}`, i))
	}
	for what, body := range map[string]string{"many operations": many, "copies of copies": "[" +
		strings.Join(copies, ",") + "]"} {
		if code := send(t, lab.Config, http.MethodPatch, path, "application/json-patch+json",
			body); code < 400 || code >= 500 {
			t.Errorf("%s are answered with %d", what, code)
		}
	}
}

// manyLabels sends many requests with values that a client can choose freely and that occur in
// labels of metrics. The server must not store each of these values in its metrics.
func manyLabels(t *testing.T, lab *lab0) {
	// etcd_request_* is not counted: its labels are kinds that exist, and the server adds a series
	// when it first reads a kind.
	count := func() (n int) {
		_, _, body := get(t, lab.Config, "/metrics")
		for line := range strings.Lines(body) {
			if !strings.HasPrefix(line, "etcd_request") {
				n++
			}
		}
		return n
	}
	ask := func(from, to int) {
		client, err := rest.HTTPClientFor(lab.Config)
		check(t, err)
		for i := from; i < to; i++ {
			for _, path := range []string{fmt.Sprintf("/apis/g%d.example.com/v%d/things%d", i, i, i),
				fmt.Sprintf("/made/up/%d", i), fmt.Sprintf("/api/v1/namespaces/n%d/pods/p%d/sub%d", i, i, i)} {
				req, err := http.NewRequestWithContext(t.Context(), fmt.Sprintf("VERB%d", i), lab.Config.Host+path, nil)
				check(t, err)
				req.Header.Set("User-Agent", fmt.Sprintf("agent-%d", i))
				req.Header.Set("Content-Type", fmt.Sprintf("application/x%d", i))
				req.Header.Set("Accept", fmt.Sprintf("application/y%d", i))
				resp, err := client.Do(req)
				check(t, err)
				_ = resp.Body.Close()
				req.Method = http.MethodGet
				resp, err = client.Do(req)
				check(t, err)
				_ = resp.Body.Close()
			}
		}
	}
	ask(0, 3) // a series that already exists stays
	before := count()
	ask(3, 103)
	// A few new series of other requests may appear, but not hundreds.
	if after := count(); after-before > 150 {
		t.Errorf("600 requests made %d lines of metrics", after-before)
	}
}

// otherTypes checks that a user who may only read ConfigMaps cannot read a Secret by naming it in the
// path, selector or continue token of a request for ConfigMaps. CVE-2019-11247 was similar: a role in
// one namespace allowed access to cluster-scoped custom resources by naming a namespace in the path.
func otherTypes(t *testing.T, lab *lab0) {
	const marker = "s3cr3t-marker"
	_, err := lab.Client.CoreV1().Secrets("a").Create(t.Context(),
		&v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hidden", Labels: map[string]string{"m": marker}}},
		metav1.CreateOptions{})
	check(t, err)
	eve := lab.user(t, "eve-3162", "",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get", "list", "watch"}})
	allowed(t, func(ctx context.Context) error {
		_, err := eve.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		return err
	})
	cfg := lab.UserConfig(t, "eve-3162")
	token := func(start string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"` + start + `"}`))
	}
	for _, path := range []string{
		"/api/v1/namespaces/..%2Fsecrets%2Fa/configmaps",
		"/api/v1/namespaces/..%2F..%2Fsecrets/configmaps",
		"/api/v1/namespaces/a/configmaps/..%2F..%2Fsecrets%2Fa%2Fhidden",
		"/api/v1/namespaces/a/configmaps/../../../namespaces/a/secrets/hidden",
		"/api/v1/namespaces/a/configmaps/..%2fsecrets%2fhidden",
		"/api/v1/configmaps/../secrets",
		"/api/v1/namespaces/a/configmaps%2F..%2Fsecrets",
		"/api/v1/configmaps?fieldSelector=metadata.namespace%3D..%2Fsecrets%2Fa",
		"/api/v1/configmaps?fieldSelector=metadata.name%3D..%2F..%2Fsecrets%2Fa%2Fhidden",
		"/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3D..%2F..%2Fsecrets%2Fa%2Fhidden",
		"/api/v1/watch/namespaces/..%2Fsecrets%2Fa/configmaps?timeoutSeconds=1",
		"/api/v1/configmaps?limit=5&continue=" + url.QueryEscape(token("../secrets/a/")),
		"/api/v1/configmaps?limit=5&continue=" + url.QueryEscape(token(`../secrets/a/hidden\u0000`)),
		"/api/v1/configmaps?limit=5&continue=" + url.QueryEscape(token("/registry/secrets/")),
		"/api/v1//secrets", "//api/v1/secrets", "/api/v1/secrets/", "/api/v1/./secrets",
	} {
		client, err := rest.HTTPClientFor(cfg)
		check(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host, nil)
		check(t, err)
		raw, query, _ := strings.Cut(path, "?")
		decoded, err := url.PathUnescape(raw)
		check(t, err)
		req.URL.Path, req.URL.RawPath, req.URL.RawQuery = decoded, raw, query
		resp, err := client.Do(req)
		check(t, err)
		var body strings.Builder
		_ = resp.Write(&body)
		if strings.Contains(body.String(), marker) {
			t.Errorf("%s shows a secret", path)
		}
	}
}

// nodeSeenByAdmission updates Nodes against admission policies. A former fault passed the new Node
// to policies also as the old Node, so that they admitted every change.
func nodeSeenByAdmission(t *testing.T, lab *lab0) {
	meta := metav1.ObjectMeta{Name: "keep"}
	_, err := lab.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
						RuleWithOperations: admissionregistrationv1.RuleWithOperations{
							Operations: []admissionregistrationv1.OperationType{"UPDATE"},
							Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
								Resources: []string{"nodes", "nodes/status"}}}}}},
				Validations: []admissionregistrationv1.Validation{
					{Expression: "!('keep' in oldObject.metadata.?labels.orValue({})) || " +
						"object.metadata.?labels.orValue({})['keep'] == oldObject.metadata.labels['keep']"}},
			}}, metav1.CreateOptions{})
	check(t, err)
	_, err = lab.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "keep",
				ValidationActions: []admissionregistrationv1.ValidationAction{"Deny"}},
		}, metav1.CreateOptions{})
	check(t, err)
	_, err = lab.Client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n25735", Labels: map[string]string{"keep": "0"}}},
		metav1.CreateOptions{})
	check(t, err)
	i := 0
	eventually(t, "the policy sees what changes", func(ctx context.Context) bool {
		i++
		_, err := lab.Client.CoreV1().Nodes().Patch(ctx, "n25735", types.MergePatchType,
			[]byte(fmt.Sprintf(`{"metadata":{"labels":{"keep":"%d"}}}`, i)), metav1.PatchOptions{})
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	})
}

// secretsPastTheAccount uses secrets that are not in a service account's list of allowed secrets,
// from ephemeral containers and from envFrom (CVE-2024-3177). These places were once not checked.
func secretsPastTheAccount(t *testing.T, lab *lab0) {
	const ns = "mountable"
	lab.namespace(t, ns)
	_, err := lab.Client.CoreV1().ServiceAccounts(ns).Create(t.Context(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: "default", Annotations: map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}}},
		metav1.CreateOptions{})
	check(t, err)
	all := []v1.EnvFromSource{
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "others"}}}}
	one := []v1.EnvVar{{Name: "A",
		ValueFrom: &v1.EnvVarSource{
			SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "others"}, Key: "k"}}}}
	pods := lab.Client.CoreV1().Pods(ns)
	plain := v1.Container{Name: "c", Image: "i"}
	for what, spec := range map[string]v1.PodSpec{
		"envFrom": {Containers: []v1.Container{{Name: "c", Image: "i", EnvFrom: all}}},
		"env":     {Containers: []v1.Container{{Name: "c", Image: "i", Env: one}}},
		"envFrom of the first": {InitContainers: []v1.Container{{Name: "i", Image: "i", EnvFrom: all}},
			Containers: []v1.Container{plain}},
		"a volume": {Containers: []v1.Container{plain},
			Volumes: []v1.Volume{
				{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "others"}}}}},
		"a secret of the image": {Containers: []v1.Container{plain},
			ImagePullSecrets: []v1.LocalObjectReference{{Name: "others"}}},
	} {
		_, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
			Spec: spec}, metav1.CreateOptions{})
		refused(t, what, err)
	}
	pod, err := pods.Create(t.Context(),
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{Containers: []v1.Container{plain}}},
		metav1.CreateOptions{})
	check(t, err)
	for what, c := range map[string]v1.EphemeralContainerCommon{
		"envFrom": {Name: "e", Image: "i", EnvFrom: all}, "env": {Name: "e", Image: "i", Env: one}} {
		next := pod.DeepCopy()
		next.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: c}}
		_, err := pods.UpdateEphemeralContainers(t.Context(), "p", next, metav1.UpdateOptions{})
		if err == nil || !strings.HasSuffix(err.Error(),
			"is not allowed because service account default does not reference that secret") {
			t.Errorf("%s of an ephemeral container: %v", what, err) // has no reason, as in Kubernetes
		}
	}
}

// credentialsInLogs searches verbose logs for tokens, headers and bodies (CVE-2020-8563,
// CVE-2020-8564, CVE-2020-8566, CVE-2019-11250).
func credentialsInLogs(t *testing.T, lab *lab0) {
	account(t, lab.Client, "a")
	tr, err := lab.Client.CoreV1().ServiceAccounts("a").CreateToken(t.Context(), "default",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	check(t, err)
	const password = "hunter2-hunter2"
	_, err = lab.Client.CoreV1().Secrets("a").Create(t.Context(),
		&v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "logged"},
			Data: map[string][]byte{"password": []byte(password)}}, metav1.CreateOptions{})
	check(t, err)
	wrong := tr.Status.Token[:len(tr.Status.Token)-8] + "AAAAAAAA"
	for _, token := range []string{tr.Status.Token, wrong} {
		_, _, _ = get(t, lab.TokenConfig(token), "/api/v1/namespaces/a/secrets/logged?access_token="+token)
	}
	send(t, lab.Config, http.MethodPost, "/api/v1/namespaces/a/secrets", "application/json",
		`{"kind":"Secret","metadata":{"name":"NOT VALID"},"stringData":{"password":"`+password+`"}`)
	_, err = lab.Client.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tr.Status.Token}}, metav1.CreateOptions{})
	check(t, err)
	log := lab.log.String()
	for what, secret := range map[string]string{
		"a token":             tr.Status.Token,
		"a token's signature": tr.Status.Token[strings.LastIndex(tr.Status.Token, ".")+1:], "a wrong token": wrong,
		"a password": password, "an encoded password": base64.StdEncoding.EncodeToString([]byte(password)),
	} {
		if strings.Contains(log, secret) {
			t.Errorf("%s is in the log", what)
		}
	}
	if log == "" {
		t.Error("nothing is logged: the test tells nothing")
	}
}

// commandsByReading tries to run commands over WebSocket with the right to read pods or nodes. The
// WebSocket handshake is a GET request, so that right was once sufficient.
func commandsByReading(t *testing.T, lab *lab0) {
	lab.node(t, "n2862", "192.0.2.28:10250")
	lab.pod(t, "a", "p2862", "n2862", "10.244.0.28")
	eve := lab.user(t, "eve-2862", "",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "pods/exec", "pods/attach",
			"pods/portforward", "nodes/proxy"}, Verbs: []string{"get", "list"}})
	allowed(t, func(ctx context.Context) error {
		_, err := eve.CoreV1().Pods("a").List(ctx, metav1.ListOptions{})
		return err
	})
	const upgrade = " HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: " +
		"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
	for _, path := range []string{
		"/api/v1/namespaces/a/pods/p2862/exec?command=id&stdout=1",
		"/api/v1/namespaces/a/pods/p2862/attach?stdout=1",
		"/api/v1/namespaces/a/pods/p2862/portforward?ports=80",
		"/api/v1/nodes/n2862/proxy/exec/a/p2862/c?command=id&output=1",
		"/api/v1/nodes/https:n2862:10250/proxy/exec/a/p2862/c?command=id&output=1",
		"/api/v1/nodes/n2862/proxy/run/a/p2862/c?cmd=id",
		"/api/v1/nodes/n2862/proxy//exec/a/p2862/c?command=id",
		"/api/v1/nodes/n2862/proxy/%65xec/a/p2862/c?command=id",
	} {
		if _, resp := raw(t, lab.UserConfig(t, "eve-2862"), "GET "+path+upgrade); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s is answered with %s", path, resp.Status)
		}
	}
}
