// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

const podTemplate = `{"metadata":{"labels":{"a":"b"},"annotations":{}},"spec":{"containers":[{"name":"c","image":"i","env":[],"args":[],"ports":[{"containerPort":80}],
	"resources":{"requests":{"cpu":"1000m","memory":"1024Ki"},"limits":{}},"readinessProbe":{"httpGet":{"port":80,"path":"/","httpHeaders":[]}}}],"volumes":[],"tolerations":[],"nodeSelector":{}}}`

// shiftedClock is the machine's clock plus shift, which is in nanoseconds.
type shiftedClock struct {
	clock.Clock
	shift atomic.Int64
}

func (c *shiftedClock) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.shift.Load())) }

const widgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},
	"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,
	"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","default":{},"properties":{"list":{"type":"array","items":{"type":"string"}},"map":{"type":"object","additionalProperties":{"type":"string"}},
			"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},"nothing":{"type":"string","nullable":true},"size":{"type":"integer","default":1},
			"port":{"x-kubernetes-int-or-string":true},"pods":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}},
		"status":{"type":"object","properties":{"list":{"type":"array","items":{"type":"string"}}}}}}}}]}}`

func defineWidgets(t *testing.T, client dynamic.Interface) {
	t.Helper()
	definition := &unstructured.Unstructured{}
	if err := definition.UnmarshalJSON([]byte(widgetDefinition)); err != nil {
		t.Fatal(err)
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1",
		Resource: "widgets"}).Namespace("default")
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			_, err := widgets.List(ctx, metav1.ListOptions{})
			return err == nil, nil
		}); err != nil {
		t.Fatal(err)
	}
}

// TestApplyAgain checks that applying a document again changes nothing, by the same or by another
// manager, even if the document spells values differently from the stored object.
func TestApplyAgain(t *testing.T) {
	clk := &shiftedClock{Clock: clock.Real()}
	s := testserver.Start(t, testserver.Options{Clock: clk})
	client := dynamic.NewForConfigOrDie(s.Config)
	defineWidgets(t, client)
	var spaces atomic.Int64
	gvr := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	for name, tc := range map[string]struct {
		gvr         schema.GroupVersionResource
		before      string // the object to create before the apply, if the case applies a subresource
		subresource string
		document    string
	}{
		"empty atomic list": {gvr: gvr("rbac.authorization.k8s.io", "v1", "rolebindings"),
			document: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding",` +
				`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[]}`},
		"null list": {gvr: gvr("rbac.authorization.k8s.io", "v1", "rolebindings"),
			document: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding",` +
				`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":null}`},
		"empty rules": {gvr: gvr("rbac.authorization.k8s.io", "v1", "roles"),
			document: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","rules":[]}`},
		"stringData": {gvr: gvr("", "v1", "secrets"),
			document: `{"apiVersion":"v1","kind":"Secret","stringData":{"user":"someone"}}`},
		"stringData and data": {gvr: gvr("", "v1", "secrets"),
			document: `{"apiVersion":"v1","kind":"Secret","data":{"other":"eA=="},"stringData":{"user":"someone"}}`},
		"empty maps": {gvr: gvr("", "v1", "configmaps"),
			document: `{"apiVersion":"v1","kind":"ConfigMap","data":{},"binaryData":{}}`},
		"null maps": {gvr: gvr("", "v1", "configmaps"),
			document: `{"apiVersion":"v1","kind":"ConfigMap","data":null}`},
		"template": {gvr: gvr("apps", "v1", "deployments"),
			document: `{"apiVersion":"apps/v1","kind":"Deployment",` +
				`"spec":{"selector":{"matchLabels":{"a":"b"},"matchExpressions":[]},` +
				`"strategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":"25%"}},"template":` + podTemplate + `}}`},
		"null and defaults": {gvr: gvr("apps", "v1", "deployments"),
			document: `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":1,` +
				`"strategy":{"type":"RollingUpdate"},"paused":false,"minReadySeconds":0,` +
				`"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}}`},
		"empty selector": {gvr: gvr("networking.k8s.io", "v1", "networkpolicies"),
			document: `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","spec":{"podSelector":{},` +
				`"ingress":[],"policyTypes":["Ingress"]}}`},
		"empty rule": {gvr: gvr("networking.k8s.io", "v1", "networkpolicies"),
			document: `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy",` +
				`"spec":{"podSelector":{"matchLabels":{}},"ingress":[{"from":[],"ports":[]}]}}`},
		"quantities": {gvr: gvr("", "v1", "resourcequotas"),
			document: `{"apiVersion":"v1","kind":"ResourceQuota","spec":{"hard":{"cpu":"1000m",` +
				`"memory":"1024Mi","pods":10,"requests.storage":"1e3"}}}`},
		"limits": {gvr: gvr("", "v1", "limitranges"),
			document: `{"apiVersion":"v1","kind":"LimitRange","spec":{"limits":[{"type":"Container",` +
				`"max":{"cpu":"2000m"},"default":{"cpu":"0.5"}}]}}`},
		"times": {gvr: gvr("coordination.k8s.io", "v1", "leases"),
			document: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",` +
				`"spec":{"renewTime":"2020-01-01T02:00:00.000000+02:00"}}`},
		"int or string": {gvr: gvr("policy", "v1", "poddisruptionbudgets"),
			document: `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","spec":{"maxUnavailable":1,"selector":{}}}`},
		"ports": {gvr: gvr("", "v1", "services"),
			document: `{"apiVersion":"v1","kind":"Service","spec":{"selector":{},"externalIPs":[],` +
				`"ports":[{"port":80,"targetPort":80,"protocol":"TCP"}]}}`},
		"custom": {gvr: gvr("example.com", "v1", "widgets"),
			document: `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"list":[],"map":{},` +
				`"nothing":null,"set":[],"size":null}}`},
		"custom with a default": {gvr: gvr("example.com", "v1", "widgets"),
			document: `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"size":1,"port":"80",` +
				`"pods":{"metadata":{"name":"x"},"apiVersion":"v1","kind":"Pod","spec":{"containers":[]}}}}`},
		"status": {gvr: gvr("", "v1", "resourcequotas"),
			before: `{"apiVersion":"v1","kind":"ResourceQuota","spec":{"hard":{"cpu":"1"}}}`, subresource: "status",
			document: `{"apiVersion":"v1","kind":"ResourceQuota","status":{"hard":{"cpu":"1000m"},"used":{}}}`},
		"custom status": {gvr: gvr("example.com", "v1", "widgets"),
			before: `{"apiVersion":"example.com/v1","kind":"Widget"}`, subresource: "status",
			document: `{"apiVersion":"example.com/v1","kind":"Widget","status":{"list":[]}}`},
		"scale": {gvr: gvr("apps", "v1", "deployments"),
			before: `{"apiVersion":"apps/v1","kind":"Deployment",` +
				`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}}`, subresource: "scale",
			document: `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":3}}`},
	} {
		t.Run(name, func(t *testing.T) {
			space := fmt.Sprintf("space-%d", spaces.Add(1))
			if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			objects := client.Resource(tc.gvr).Namespace(space)
			apply := func(who, document string, force bool, subresources ...string) *unstructured.Unstructured {
				t.Helper()
				clk.shift.Add(int64(2 * time.Second))
				out, err := objects.Patch(t.Context(), "x", types.ApplyPatchType, named(t, document, space),
					metav1.PatchOptions{FieldManager: who, Force: &force}, subresources...)
				if err != nil {
					t.Fatalf("%s: %v", who, err)
				}
				return out
			}
			var on []string
			if tc.before != "" {
				apply("first", tc.before, false)
				on = []string{tc.subresource}
			}
			apply("a", tc.document, tc.before != "", on...)
			same := func(who string, force bool) {
				t.Helper()
				was, err := objects.Get(t.Context(), "x", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				apply(who, tc.document, force, on...)
				got, err := objects.Get(t.Context(), "x", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if got.GetResourceVersion() != was.GetResourceVersion() {
					x, _ := was.MarshalJSON()
					y, _ := got.MarshalJSON()
					t.Errorf("%s, force %v: a write; it was %s\nnow %s", who, force, x, y)
				}
			}
			same("a", false)
			apply("b", tc.document, false, on...)
			for range 2 {
				same("a", false)
				same("b", false)
				same("a", true)
				same("b", true)
			}
		})
	}
}

// named puts the name x and a namespace into a document.
func named(t *testing.T, document, namespace string) []byte {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(document), &fields); err != nil {
		t.Fatal(err)
	}
	fields["metadata"] = map[string]any{"name": "x", "namespace": namespace}
	out, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
