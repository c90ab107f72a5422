// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/rowtest"
)

// rowOf returns the row of the kind table for the resource called name.
func rowOf(t *testing.T, name string) *resource.Row {
	t.Helper()
	return rowtest.Row(t, Rows(Deps{}), name)
}

func TestNamespaceRules(t *testing.T) {
	row := rowOf(t, "namespaces")
	const stored = `{metadata: {name: ns}, spec: {finalizers: [kubernetes]}, status: {phase: Active}}`
	rowtest.Creates(t, row, stored, []rowtest.Case{
		{"valid", ``, ""},
		{"qualified finalizer", `spec: {finalizers: [example.com/a]}`, ""},
		{"unqualified finalizer", `spec: {finalizers: [a]}`, "spec.finalizers: Invalid value"},
		{"bad finalizer", `spec: {finalizers: ["a b/c"]}`, "spec.finalizers: Invalid value"},
	})
	rowtest.Updates(t, row, "", stored, []rowtest.Case{{"labels", `metadata: {labels: {a: b}}`, ""}})
	rowtest.Updates(t, row, "status", stored, []rowtest.Case{
		{"nothing", ``, ""},
		{"terminating, but not deleted", `status: {phase: Terminating}`, "status.Phase: Invalid value"},
	})
	const deleted = `{metadata: {name: ns, deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Terminating}}`
	rowtest.Updates(t, row, "status", deleted, []rowtest.Case{
		{"terminating", ``, ""},
		{"active, but deleted", `status: {phase: Active}`, "status.Phase: Invalid value"},
	})
	rowtest.Updates(t, row, "finalize", stored, []rowtest.Case{
		{"no finalizers", `spec: {finalizers: []}`, ""},
		{"bad finalizer", `spec: {finalizers: [a]}`, "spec.finalizers[0]: Invalid value"},
	})
}

func TestNodeRules(t *testing.T) {
	row := rowOf(t, "nodes")
	const stored = `{metadata: {name: node}, spec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.0.0/24], providerID: a},
		status: {capacity: {cpu: 4}, allocatable: {cpu: 4}, addresses: [{type: InternalIP, address: 10.1.0.1}]}}`
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"taint", `spec: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoExecute}]}`, ""},
		{"taint without a key", `spec: {taints: [{effect: NoSchedule}]}`, "metadata.taints[0].key: Invalid value"},
		{"taint without an effect", `spec: {taints: [{key: a}]}`, "metadata.taints[0].effect: Required value"},
		{"taint with an unknown effect", `spec: {taints: [{key: a, effect: Some}]}`,
			"metadata.taints[0].effect: Unsupported value"},
		{"taint with a bad value", `spec: {taints: [{key: a, value: "b c", effect: NoSchedule}]}`,
			"metadata.taints[0].value: Invalid value"},
		{"duplicate taint", `spec: {taints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]}`,
			"metadata.taints[1]: Duplicate value"},
		{"two families", `spec: {podCIDRs: [10.0.0.0/24, "fd00::/64"]}`, ""},
	}
	rowtest.Creates(t, row, stored, cases)
	rowtest.Creates(t, row, stored, []rowtest.Case{
		{"two ranges of one family", `spec: {podCIDRs: [10.0.0.0/24, 10.1.0.0/24]}`, "spec.podCIDRs: Invalid value"},
		{"bad range", `spec: {podCIDR: a, podCIDRs: [a]}`, "spec.podCIDRs[0]: Invalid value"},
	})
	rowtest.Updates(t, row, "", stored, []rowtest.Case{
		{"labels", `metadata: {labels: {a: b}}`, ""},
		{"cordon", `spec: {unschedulable: true}`, ""},
		{"duplicate taint", `spec: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]}`,
			"metadata.taints[1]: Duplicate value"},
		{"provider", `spec: {providerID: b}`, "spec.providerID: Invalid value"},
		{"no provider", `spec: {providerID: ""}`, "spec.providerID: Invalid value"},
		{"range", `spec: {podCIDR: 10.9.0.0/24, podCIDRs: [10.9.0.0/24]}`, "spec.podCIDRs: Forbidden"},
	})
	rowtest.Updates(t, row, "status", stored, []rowtest.Case{
		{"size", `status: {capacity: {cpu: 8}}`, ""},
		{"negative size", `status: {capacity: {cpu: -1}}`, "status.capacity.cpu: Invalid value"},
		{"fraction of an extended resource", `status: {capacity: {example.com/gpu: 500m}}`,
			"status.capacity.example.com/gpu: Invalid value"},
		{"duplicate address", `status: {addresses: [{type: InternalIP, address: 10.1.0.1}, {type: InternalIP, ` +
			`address: 10.1.0.1}]}`,
			"status.addresses[1]: Duplicate value"},
	})
}

func TestLimitRangeRules(t *testing.T) {
	row := rowOf(t, "limitranges")
	const stored = `{metadata: {name: l}, spec: {limits: [{type: Container, max: {cpu: 2}}]}}`
	limit := func(text string) string { return `spec: {limits: [{` + text + `}]}` }
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"pod", limit(`type: Pod, min: {cpu: 1}, max: {cpu: 2}, maxLimitRequestRatio: {cpu: 2}`), ""},
		{"pod with defaults", limit(`type: Pod, default: {cpu: 1}, defaultRequest: {cpu: 1}`),
			"spec.limits[0].default: Forbidden, spec.limits[0].defaultRequest: Forbidden"},
		{"claim", limit(`type: PersistentVolumeClaim, max: {storage: 1Gi}`), ""},
		{"claim without a size", limit(`type: PersistentVolumeClaim, max: {cpu: 1}`),
			"spec.limits[0].limits: Required value"},
		{"unqualified unknown type", limit(`type: Other`), "spec.limits[0].type: Invalid value"},
		{"duplicate type", `spec: {limits: [{type: Pod, max: {cpu: 1}}, {type: Pod, max: {memory: 1}}]}`,
			"spec.limits[1].type: Duplicate value"},
		{"min above max", limit(`type: Container, min: {cpu: 3}, max: {cpu: 2}`),
			"spec.limits[0].min[cpu]: Invalid value, spec.limits[0].default[cpu]: Invalid value, " +
				"spec.limits[0].defaultRequest[cpu]: Invalid value"},
		{"default request above the default", limit(`type: Container, default: {cpu: 1}, defaultRequest: {cpu: 2}`),
			"spec.limits[0].defaultRequest[cpu]: Invalid value"},
		{"ratio below one", limit(`type: Container, maxLimitRequestRatio: {cpu: 500m}`),
			"spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value"},
		{"ratio above max divided by min", limit(`type: Pod, min: {cpu: 1}, max: {cpu: 2}, maxLimitRequestRatio: {cpu: 3}`),
			"spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value"},
		{"bad name of a resource", limit(`type: Pod, max: {"a b": 1}`), "spec.limits[0].max[a b]: Invalid value"},
	}
	rowtest.Creates(t, row, stored, cases)
	rowtest.Updates(t, row, "", stored, cases)
}

func TestEndpointsRules(t *testing.T) {
	row := rowOf(t, "endpoints")
	const stored = `{metadata: {name: e}, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]}`
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"no subsets", `subsets: null`, ""},
		{"no addresses", `subsets: [{ports: [{port: 80}]}]`, "subsets[0]: Required value"},
		{"not ready", `subsets: [{notReadyAddresses: [{ip: 10.0.0.1, hostname: a, nodeName: node}]}]`, ""},
		{"invalid address", `subsets: [{addresses: [{ip: a}]}]`, "subsets[0].addresses[0].ip: Invalid value"},
		{"loopback", `subsets: [{addresses: [{ip: 127.0.0.1}]}]`, "subsets[0].addresses[0].ip: Invalid value"},
		{"unspecified", `subsets: [{addresses: [{ip: 0.0.0.0}]}]`, "subsets[0].addresses[0].ip: Invalid value"},
		{"bad host", `subsets: [{addresses: [{ip: 10.0.0.1, hostname: A_}]}]`,
			"subsets[0].addresses[0].hostname: Invalid value"},
		{"two ports without names", `subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}, {port: 81}]}]`,
			"subsets[0].ports[0].name: Required value, subsets[0].ports[1].name: Required value"},
		{"bad ports", `subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{name: A_, port: 0, protocol: X, ` +
			`appProtocol: "a b"}]}]`,
			"subsets[0].ports[0].name: Invalid value, subsets[0].ports[0].port: Invalid value, " +
				"subsets[0].ports[0].protocol: Unsupported value, subsets[0].ports[0].appProtocol: Invalid value"},
	}
	rowtest.Creates(t, row, stored, cases)
	rowtest.Updates(t, row, "", stored, cases)
}

func TestReplicationControllerRules(t *testing.T) {
	row := rowOf(t, "replicationcontrollers")
	const stored = `{metadata: {name: r}, spec: {replicas: 1, selector: {a: b}, ` +
		`template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"selector from the template", `spec: {selector: null}`, ""},
		{"no template", `spec: {template: null}`, "spec.template: Required value"},
		{"negative numbers", `spec: {replicas: -1, minReadySeconds: -1}`,
			"spec.replicas: Invalid value, spec.minReadySeconds: Invalid value"},
		{"selector of other pods", `spec: {selector: {a: c}}`, "spec.template.metadata.labels: Invalid value"},
		{"pods that finish", `spec: {template: {spec: {restartPolicy: Never, activeDeadlineSeconds: 5}}}`,
			"spec.template.spec.restartPolicy: Unsupported value, spec.template.spec.activeDeadlineSeconds: Forbidden"},
	}
	rowtest.Creates(t, row, stored, cases)
	rowtest.Updates(t, row, "", stored, cases)
	rowtest.Updates(t, row, "status", stored, []rowtest.Case{
		{"counts", `status: {replicas: 2, readyReplicas: 1}`, ""},
		{"more ready than there are", `status: {replicas: 1, readyReplicas: 2}`, "status.readyReplicas: Invalid value"},
	})
}

func TestPodTemplateRules(t *testing.T) {
	row := rowOf(t, "podtemplates")
	const stored = `{metadata: {name: t}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, ` +
		`image: i}]}}}`
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"no containers", `template: {spec: {containers: null}}`, "template.spec.containers: Required value"},
		{"bad label", `template: {metadata: {labels: {a: "b c"}}}`, "template.labels: Invalid value"},
	}
	rowtest.Creates(t, row, stored, cases)
	rowtest.Updates(t, row, "", stored, cases)
}

func TestEventRules(t *testing.T) {
	row := rowOf(t, "events")
	const stored = `{metadata: {name: e, namespace: ns}, involvedObject: {kind: Pod, namespace: ns, name: p}, ` +
		`reason: R, type: Normal}`
	rowtest.Creates(t, row, stored, []rowtest.Case{
		{"valid", ``, ""},
		{"object of another namespace", `involvedObject: {namespace: other}`, "involvedObject.namespace: Invalid value"},
		{"object without a namespace", `involvedObject: {kind: Node, namespace: null}`,
			"involvedObject.namespace: Invalid value"},
		{"new event without required fields", `eventTime: "2026-01-01T00:00:00.000000Z"`,
			"reportingComponent: Required value, reportingComponent: Invalid value, reportingInstance: Required value, " +
				"action: Required value"},
		{"new event",
			`{eventTime: "2026-01-01T00:00:00.000000Z", reportingComponent: example.com/c, reportingInstance: i, action: a}`,
			""},
	})
	rowtest.Updates(t, row, "", stored, []rowtest.Case{{"count", `count: 2`, ""}})
}

func TestResourceQuotaRules(t *testing.T) {
	row := rowOf(t, "resourcequotas")
	const stored = `{metadata: {name: q}, spec: {hard: {cpu: 2}}}`
	scoped := func(scopes, hard string) string {
		return `spec: {scopes: [` + scopes + `], hard: {cpu: null, ` + hard + `}}`
	}
	selected := func(text string) string { return `spec: {scopeSelector: {matchExpressions: [{` + text + `}]}}` }
	const operator = "spec.scopeSelector.matchExpressions.operator"
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"object counts", `spec: {hard: {pods: 5, count/deployments.apps: 3, requests.storage: 1Gi}}`, ""},
		{"unknown resource", `spec: {hard: {other: 5}}`, "spec.hard[other]: Invalid value"},
		{"negative", `spec: {hard: {cpu: -1}}`, "spec.hard[cpu]: Invalid value"},
		{"fraction of a pod", `spec: {hard: {pods: 500m}}`, "spec.hard[pods]: Invalid value"},
	}
	rowtest.Creates(t, row, stored, cases)
	rowtest.Updates(t, row, "", stored, cases)
	rowtest.Creates(t, row, stored, []rowtest.Case{
		{"scope", scoped("BestEffort", "pods: 1"), ""},
		{"scope that does not count the resource", scoped("BestEffort", "limits.cpu: 1"), "spec.scopes: Invalid value"},
		{"unknown scope", scoped("Other", "pods: 1"), "spec.scopes: Invalid value"},
		{"contradicting scopes", scoped("BestEffort, NotBestEffort", "pods: 1"), "spec.scopes: Invalid value"},
		{"selected scope", selected(`scopeName: PriorityClass, operator: In, values: [high]`), ""},
		{"selected scope that exists", selected(`scopeName: Terminating, operator: Exists`), ""},
		{"selection without values", selected(`scopeName: PriorityClass, operator: In`),
			"spec.scopeSelector.matchExpressions.values: Required value"},
		{"operator Exists with values", selected(`scopeName: PriorityClass, operator: Exists, values: [a]`),
			"spec.scopeSelector.matchExpressions.values: Invalid value"},
		{"unknown operator", selected(`scopeName: PriorityClass, operator: Of`), operator + ": Invalid value"},
		{"operator that the scope does not support", selected(`scopeName: Terminating, operator: In, values: [a]`),
			operator + ": Invalid value"},
	})
	rowtest.Updates(t, row, "", stored, []rowtest.Case{
		{"scopes", scoped("Terminating", "pods: 1"), "spec.scopes: Invalid value"},
	})
	rowtest.Updates(t, row, "status", stored, []rowtest.Case{
		{"used", `status: {hard: {cpu: 2}, used: {cpu: 1}}`, ""},
		{"negative", `status: {hard: {cpu: 2}, used: {cpu: -1}}`, "status.used[cpu]: Invalid value"},
	})
}

func TestSecretRules(t *testing.T) {
	row := rowOf(t, "secrets")
	const stored = `{metadata: {name: s}, data: {a: Yg==}}`
	rowtest.Updates(t, row, "", stored, []rowtest.Case{
		{"data", `data: {a: Yw==}`, ""},
		{"type", `type: other`, "type: Invalid value"},
		{"bad key", `data: {"a b": Yg==}`, "data[a b]: Invalid value"},
		{"becomes immutable", `immutable: true`, ""},
	})
	rowtest.Updates(t, row, "", `{metadata: {name: s}, immutable: true, data: {a: Yg==}}`, []rowtest.Case{
		{"labels of an immutable secret", `metadata: {labels: {a: b}}`, ""},
		{"data of an immutable secret", `data: {a: Yw==}`, "data: Forbidden"},
		{"making it mutable", `immutable: false`, "immutable: Forbidden"},
	})
}

func TestSmallKindsCells(t *testing.T) {
	env := resource.CellEnv{Age: func(metav1.Time) string { return "5m" }}
	for _, tc := range []struct {
		resource, object string
		want             []any
	}{
		{"configmaps", `{"data":{"a":"b"},"binaryData":{"c":"ZA=="}}`, []any{"x", int64(2), "5m"}},
		{"secrets", `{"data":{"a":"Yg=="}}`, []any{"x", "Opaque", int64(1), "5m"}},
		{"namespaces", `{"status":{"phase":"Active"}}`, []any{"x", "Active", "5m"}},
		{"endpoints", `{}`, []any{"x", "<none>", "5m"}},
		{"endpoints", `{"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"ports":[{"port":80}]}]}`,
			[]any{"x", "10.0.0.1:80,10.0.0.2:80", "5m"}},
	} {
		row := rowOf(t, tc.resource)
		if got := row.Cells(rowtest.Decode(t, row, "x", tc.object), env); !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: cells %q, want %q", tc.resource, tc.object, got, tc.want)
		}
	}
}
