// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"maps"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/wire"
	"keelson.dev/keelson/pkg/api"
)

// TestOlder decodes objects that older servers have stored, in protobuf and in JSON.
func TestOlder(t *testing.T) {
	t.Parallel()
	const (
		meta     = `"metadata":{"name":"a"}`
		reserved = `"key":"pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"`
		webhook  = `{"name":"a","failurePolicy":"Ignore","matchPolicy":"Exact","sideEffects":"Unknown",` +
			`"timeoutSeconds":30,"admissionReviewVersions":["v1beta1"]}`
		taintRule = `"spec":{"deviceSelector":{"driver":"d","pool":"p","device":"e"},"taint":{"key":"k","value":"v",` +
			`"effect":"NoExecute","timeAdded":"2020-01-01T00:00:00Z"}},"status":{"conditions":[{"type":"T","status":"True",` +
			`"observedGeneration":2,"reason":"R","message":"m","lastTransitionTime":"2020-01-01T00:00:00Z"}]}`
	)
	for name, tc := range map[string]struct {
		resource, apiVersion string
		// stored is the stored object without its metadata. want is the part of the decoded object
		// that is compared.
		stored, want string
	}{
		"deployment of extensions": {"apps/deployments", "extensions/v1beta1",
			`"spec":{"replicas":2,"template":{},"rollbackTo":{"revision":3}}`,
			`{"metadata":{"annotations":{"deprecated.deployment.rollback.to":"3"}},"spec":{"replicas":2}}`},
		"deployment of apps/v1beta": {"apps/deployments", "apps/v1beta1",
			`"spec":{"template":{},"rollbackTo":{"revision":3}}`,
			`{"metadata":{"annotations":{"deprecated.deployment.rollback.to":"3"}}}`},
		"daemon set of extensions": {"apps/daemonsets", "extensions/v1beta1",
			`"spec":{"template":{},"templateGeneration":4}`,
			`{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"4"}}}`},
		"replica set of extensions": {"apps/replicasets", "extensions/v1beta1", `"spec":{"replicas":2}`,
			`{"spec":{"replicas":2}}`},
		"policy of extensions": {"networking.k8s.io/networkpolicies", "extensions/v1beta1",
			`"spec":{"policyTypes":["Egress"]}`, `{"spec":{"policyTypes":["Egress"]}}`},
		"ingress of extensions": {"networking.k8s.io/ingresses", "extensions/v1beta1",
			`"spec":{"backend":{"serviceName":"s","servicePort":80}}`,
			`{"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}`},
		"ingress of v1beta1": {
			"networking.k8s.io/ingresses", "networking.k8s.io/v1beta1",
			`"spec":{"rules":[{"http":{"paths":[{"path":"/","backend":{"serviceName":"s","servicePort":"web"}}]}}]}`,
			`{"spec":{"rules":[{"http":{"paths":[{"path":"/","pathType":"ImplementationSpecific","backend":{"service":{"name":"s","port":{"name":"web"}}}}]}}]}}`,
		},
		"address of v1beta1": {"networking.k8s.io/ipaddresses", "networking.k8s.io/v1beta1",
			`"spec":{"parentRef":{"resource":"services","name":"n"}}`,
			`{"spec":{"parentRef":{"resource":"services","name":"n"}}}`},
		"range of v1beta1": {"networking.k8s.io/servicecidrs", "networking.k8s.io/v1beta1",
			`"spec":{"cidrs":["10.0.0.0/24"]}`, `{"spec":{"cidrs":["10.0.0.0/24"]}}`},
		"attributes of v1beta1": {"storage.k8s.io/volumeattributesclasses", "storage.k8s.io/v1beta1",
			`"driverName":"d","parameters":{"a":"b"}`, `{"driverName":"d","parameters":{"a":"b"}}`},
		"slice of endpoints": {
			"discovery.k8s.io/endpointslices", "discovery.k8s.io/v1beta1",
			`"endpoints":[{"nodeName":"n","topology":{"topology.kubernetes.io/zone":"z","kubernetes.io/hostname":"n"}},{"topology":{"a":"b"}}]`,
			`{"endpoints":[{"addresses":null,"conditions":{},"nodeName":"n","zone":"z"},{"addresses":null,"conditions":{},"deprecatedTopology":{"a":"b"}}]}`,
		},
		"runtime class": {"node.k8s.io/runtimeclasses", "node.k8s.io/v1alpha1",
			`"spec":{"runtimeHandler":"h","overhead":{"podFixed":{"cpu":"1"}},"scheduling":{"nodeSelector":{"a":"b"}}}`,
			`{"handler":"h","overhead":{"podFixed":{"cpu":"1"}},"scheduling":{"nodeSelector":{"a":"b"}}}`},
		"role": {"rbac.authorization.k8s.io/roles", "rbac.authorization.k8s.io/v1alpha1",
			`"rules":[{"verbs":["get"],"apiGroups":["g"],"resources":["r"]}]`,
			`{"rules":[{"verbs":["get"],"apiGroups":["g"],"resources":["r"]}]}`},
		"cluster role": {"rbac.authorization.k8s.io/clusterroles", "rbac.authorization.k8s.io/v1alpha1",
			`"rules":[{"verbs":["get"],"nonResourceURLs":["/"]}]`, `{"rules":[{"verbs":["get"],"nonResourceURLs":["/"]}]}`},
		"cluster binding": {"rbac.authorization.k8s.io/clusterrolebindings",
			"rbac.authorization.k8s.io/v1alpha1",
			`"subjects":[{"kind":"User","name":"*"}],"roleRef":{"kind":"ClusterRole","name":"r"}`,
			`{"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"r"}}`},
		"binding": {"rbac.authorization.k8s.io/rolebindings", "rbac.authorization.k8s.io/v1alpha1",
			`"subjects":[{"kind":"ServiceAccount","apiVersion":"v1","name":"s","namespace":"n"},{"kind":"X",` +
				`"apiVersion":"g/v1","name":"x"}]`, `{"subjects":[{"kind":"ServiceAccount","name":"s",` +
				`"namespace":"n"},{"kind":"X","apiGroup":"g","name":"x"}]}`},
		"level of v1beta1": {"flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
			"flowcontrol.apiserver.k8s.io/v1beta1",
			`"spec":{"type":"Limited","limited":{"assuredConcurrencyShares":7}}`,
			`{"spec":{"limited":{"nominalConcurrencyShares":7}}}`},
		"level of v1beta2": {"flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
			"flowcontrol.apiserver.k8s.io/v1beta2",
			`"spec":{"type":"Limited","limited":{"assuredConcurrencyShares":7}}`,
			`{"spec":{"limited":{"nominalConcurrencyShares":7}}}`},
		"level of v1beta3 without shares": {"flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
			"flowcontrol.apiserver.k8s.io/v1beta3", `"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0}}`,
			`{"spec":{"limited":{"nominalConcurrencyShares":30}}}`},
		"budget that selects no pod": {"policy/poddisruptionbudgets", "policy/v1beta1",
			`"spec":{"minAvailable":2,"selector":{}}`,
			`{"spec":{"minAvailable":2,"selector":{"matchExpressions":[{"operator":"Exists",` + reserved + `}]}}}`},
		"budget without a selector": {"policy/poddisruptionbudgets", "policy/v1beta1",
			`"spec":{"minAvailable":2}`, `{"spec":{"minAvailable":2,"selector":null}}`},
		"budget that selects all pods": {"policy/poddisruptionbudgets", "policy/v1beta1",
			`"spec":{"selector":{"matchExpressions":[{"operator":"DoesNotExist",` + reserved + `}]}}`,
			`{"spec":{"selector":{"matchExpressions":null,"matchLabels":null}}}`},
		"budget that selects labels": {"policy/poddisruptionbudgets", "policy/v1beta1",
			`"spec":{"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"operator":"Exists",` + reserved + `},` +
				`{"key":"c","operator":"Exists"}]}}`,
			`{"spec":{"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"Exists"}]}}}`},
		"validating webhook": {"admissionregistration.k8s.io/validatingwebhookconfigurations",
			"admissionregistration.k8s.io/v1beta1", `"webhooks":[{"name":"a"}]`, `{"webhooks":[` + webhook + `]}`},
		"mutating webhook": {"admissionregistration.k8s.io/mutatingwebhookconfigurations",
			"admissionregistration.k8s.io/v1beta1", `"webhooks":[{"name":"a"}]`, `{"webhooks":[` + webhook + `]}`},
		"webhook with all fields": {"admissionregistration.k8s.io/mutatingwebhookconfigurations",
			"admissionregistration.k8s.io/v1beta1",
			`"webhooks":[{"failurePolicy":"Fail","matchPolicy":"Equivalent","sideEffects":"None","timeoutSeconds":1,` +
				`"admissionReviewVersions":["v1"]}]`,
			`{"webhooks":[{"failurePolicy":"Fail","matchPolicy":"Equivalent","sideEffects":"None","timeoutSeconds":1,` +
				`"admissionReviewVersions":["v1"]}]}`},
		"defaults of a deployment of extensions": {"apps/deployments", "extensions/v1beta1", `"spec":{"template":{}}`,
			`{"spec":{"revisionHistoryLimit":2147483647,"progressDeadlineSeconds":2147483647,` +
				`"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}}}`},
		"defaults of a deployment of apps/v1beta1": {"apps/deployments", "apps/v1beta1", `"spec":{"template":{}}`,
			`{"spec":{"revisionHistoryLimit":2,"progressDeadlineSeconds":600,` +
				`"strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}}}}`},
		"strategy of a daemon set of extensions": {"apps/daemonsets", "extensions/v1beta1", `"spec":{"template":{}}`,
			`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`},
		"strategy of a stateful set of apps/v1beta1": {"apps/statefulsets", "apps/v1beta1", `"spec":{"template":{}}`,
			`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`},
		"claim": {"resource.k8s.io/resourceclaims", "resource.k8s.io/v1beta1",
			`"spec":{"devices":{"requests":[{"name":"r","deviceClassName":"c","count":2}]}}`,
			`{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","count":2,"allocationMode":"ExactCount"}}]}}}`},
		"template": {"resource.k8s.io/resourceclaimtemplates", "resource.k8s.io/v1beta1",
			`"spec":{"spec":{"devices":{"requests":[{"name":"r","deviceClassName":"c","allocationMode":"All"}]}}}`,
			`{"spec":{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","allocationMode":"All"}}]}}}}`},
		"slice of devices": {"resource.k8s.io/resourceslices", "resource.k8s.io/v1beta1",
			`"spec":{"driver":"d","pool":{"name":"p","generation":1,"resourceSliceCount":1},` +
				`"devices":[{"name":"d","basic":{"capacity":{"m":{"value":"1"}}}}]}`,
			`{"spec":{"driver":"d","devices":[{"name":"d","capacity":{"m":{"value":"1"}}}]}}`},
		"taint rule of v1beta2": {"resource.k8s.io/devicetaintrules", "resource.k8s.io/v1beta2", taintRule,
			`{` + taintRule + `}`},
		"taint rule of v1alpha3": {"resource.k8s.io/devicetaintrules", "resource.k8s.io/v1alpha3", taintRule,
			`{` + taintRule + `}`},
		"autoscaler": {"autoscaling/horizontalpodautoscalers", "autoscaling/v1",
			`"spec":{"scaleTargetRef":{"kind":"K","name":"n"},"maxReplicas":3}`, `{"spec":{"maxReplicas":3}}`},
		"event": {"/events", "events.k8s.io/v1beta1",
			`"note":"n","regarding":{"name":"x"},"reportingController":"c"`,
			`{"message":"n","involvedObject":{"name":"x"},"reportingComponent":"c"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowOf(t, tc.resource)
			gv, err := schema.ParseGroupVersion(tc.apiVersion)
			if err != nil {
				t.Fatal(err)
			}
			text := []byte(`{"kind":"` + row.Kind + `","apiVersion":"` + tc.apiVersion + `",` + meta + `,` + tc.stored + `}`)
			typed, err := clientscheme.Scheme.New(gv.WithKind(row.Kind))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, typed); err != nil {
				t.Fatal(err)
			}
			binary, err := wire.NewHeader(tc.apiVersion, row.Kind).Marshal(typed.(wire.Message))
			if err != nil {
				t.Fatal(err)
			}
			for form, data := range map[string][]byte{"JSON": text, "protobuf": binary} {
				obj, err := registry.Codec(row).Decode(data, 1)
				if err != nil {
					t.Fatalf("%s: %v", form, err)
				}
				if kind := obj.GetObjectKind().GroupVersionKind(); !kind.Empty() {
					t.Errorf("%s: it says that it is of %s", form, kind)
				}
				got, err := json.Marshal(obj)
				if err != nil {
					t.Fatal(err)
				}
				var all, want any
				if err := json.Unmarshal(got, &all); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
					t.Fatal(err)
				}
				if !holds(all, want) {
					t.Errorf("%s: got %s, want %s in it", form, got, tc.want)
				}
			}
		})
	}
}

func rowOf(t *testing.T, name string) *resource.Row {
	t.Helper()
	for _, row := range api.Rows(api.Deps{}) {
		if row.Group+"/"+row.Resource == name {
			return row
		}
	}
	t.Fatalf("there are no %s", name)
	return nil
}

// holds reports whether got contains all fields and values in want; got may have further fields.
// Lists must have the same length.
func holds(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		for k, v := range want {
			ok = ok && holds(have[k], v)
		}
		return ok
	case []any:
		have, ok := got.([]any)
		ok = ok && len(have) == len(want)
		for i := range want {
			ok = ok && holds(have[i], want[i])
		}
		return ok
	}
	return got == want
}

// TestOlderLevelWithZeroShares checks that a level that was stored in v1beta3 with zero shares keeps
// them, and does not keep the annotation that says so, because v1 does not allow it.
func TestOlderLevelWithZeroShares(t *testing.T) {
	t.Parallel()
	obj, err := registry.Codec(rowOf(t, "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations")).Decode([]byte(
		`{"kind":"PriorityLevelConfiguration","apiVersion":"flowcontrol.apiserver.k8s.io/v1beta3",`+
			`"metadata":{"annotations":{"a":"b","flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares":""}},`+
			`"spec":{"limited":{"nominalConcurrencyShares":0}}}`), 1)
	if err != nil {
		t.Fatal(err)
	}
	level := obj.(*flowcontrolv1.PriorityLevelConfiguration)
	if shares := level.Spec.Limited.NominalConcurrencyShares; shares == nil || *shares != 0 {
		t.Errorf("shares %v, want 0", shares)
	}
	if want := map[string]string{"a": "b"}; !maps.Equal(level.Annotations, want) {
		t.Errorf("annotations %v, want %v", level.Annotations, want)
	}
}
