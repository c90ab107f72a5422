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

const simplePod = `{metadata: {name: p, namespace: ns}, spec: {containers: [{name: c, image: i}], ` +
	`nodeName: node}, status: {phase: Running, qosClass: BestEffort}}`

func TestPodUpdateRules(t *testing.T) {
	row := rowOf(t, "pods")
	rowtest.Updates(t, row, "", simplePod, []rowtest.Case{
		{"labels", `metadata: {labels: {a: b}}`, ""},
		{"image", `spec: {containers: [{name: c, image: j}]}`, ""},
		{"no image", `spec: {containers: [{name: c, image: "", imagePullPolicy: Always}]}`,
			"spec.containers[0].image: Required value"},
		{"image with spaces", `spec: {containers: [{name: c, image: " i", imagePullPolicy: Always}]}`,
			"spec.containers[0].image: Invalid value"},
		{"more containers", `spec: {containers: [{name: c, image: i}, {name: d, image: i}]}`, "spec.containers: Forbidden"},
		{"command", `spec: {containers: [{name: c, image: i, command: [a]}]}`, "spec: Forbidden"},
		{"deadline", `spec: {activeDeadlineSeconds: 5}`, ""},
		{"negative deadline", `spec: {activeDeadlineSeconds: -5}`, "spec.activeDeadlineSeconds: Invalid value"},
		{"toleration", `spec: {tolerations: [{key: a, operator: Exists}]}`, ""},
		{"grace period", `spec: {terminationGracePeriodSeconds: 1}`, "spec: Forbidden"},
		{"node", `spec: {nodeName: other}`, "spec: Forbidden"},
	})
	rowtest.Updates(t, row, "", `{metadata: {name: p, namespace: ns}, spec: {activeDeadlineSeconds: 5, `+
		`tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: i}]}}`, []rowtest.Case{
		{"shorter deadline", `spec: {activeDeadlineSeconds: 4}`, ""},
		{"longer deadline", `spec: {activeDeadlineSeconds: 6}`, "spec.activeDeadlineSeconds: Invalid value"},
		{"no deadline", `spec: {activeDeadlineSeconds: null}`, "spec.activeDeadlineSeconds: Invalid value"},
		{"no toleration", `spec: {tolerations: null}`, "spec.tolerations: Forbidden"},
	})
	affinity := func(values string) string {
		return `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ` +
			`{nodeSelectorTerms: [{matchExpressions: [` + values + `]}]}}}`
	}
	gated := `{metadata: {name: p, namespace: ns}, spec: {schedulingGates: [{name: a}, {name: b}], ` +
		`nodeSelector: {a: b}, ` + affinity(`{key: a, operator: Exists}`) + `, containers: [{name: c, image: i}]}}`
	rowtest.Updates(t, row, "", gated, []rowtest.Case{
		{"fewer gates", `spec: {schedulingGates: [{name: b}]}`, ""},
		{"other gates", `spec: {schedulingGates: [{name: c}]}`, "spec.schedulingGates[0].name: Forbidden"},
		{"narrower selector", `spec: {nodeSelector: {c: d}}`, ""},
		{"other selector", `spec: {nodeSelector: {a: c}}`, "spec.nodeSelector: Invalid value"},
		{"narrower affinity", `spec: {` + affinity(`{key: a, operator: Exists}, {key: b, operator: Exists}`) + `}`, ""},
		{"other affinity", `spec: {` + affinity(`{key: b, operator: Exists}`) + `}`,
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value"},
	})
	rowtest.Creates(t, row, simplePod, []rowtest.Case{
		{"ephemeral containers",
			`spec: {ephemeralContainers: [{name: e, image: i, terminationMessagePolicy: File, imagePullPolicy: Always}]}`,
			"spec.ephemeralContainers: Forbidden"},
		{"gates with a node name", `spec: {schedulingGates: [{name: a}]}`, "spec.nodeName: Forbidden"},
	})
	rowtest.Updates(t, row, "ephemeralcontainers", simplePod, []rowtest.Case{
		{"additional container", `spec: {ephemeralContainers: [{name: e, image: i}]}`, ""},
		{"name of another container", `spec: {ephemeralContainers: [{name: c, image: i}]}`,
			"spec.ephemeralContainers[0].name: Duplicate value"},
		{"with a port", `spec: {ephemeralContainers: [{name: e, image: i, ports: [{containerPort: 80}]}]}`,
			"spec.ephemeralContainers[0].ports: Forbidden"},
	})
	rowtest.Updates(t, row, "ephemeralcontainers", `{metadata: {name: p, namespace: ns}, `+
		`spec: {containers: [{name: c, image: i}], ephemeralContainers: [{name: e, image: i}]}}`, []rowtest.Case{
		{"none", `spec: {ephemeralContainers: null}`, "spec.ephemeralContainers: Forbidden"},
		{"another image", `spec: {ephemeralContainers: [{name: e, image: j}]}`, "spec.ephemeralContainers: Forbidden"},
	})
}

func TestPodStatusRules(t *testing.T) {
	row := rowOf(t, "pods")
	statuses := func(text string) string { return `status: {containerStatuses: [{name: c, ` + text + `}]}` }
	rowtest.Updates(t, row, "status", simplePod, []rowtest.Case{
		{"running", statuses(`state: {running: {}}`), ""},
		{"addresses", `status: {podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}], podIP: 10.0.0.1}`, ""},
		{"invalid address", `status: {podIPs: [{ip: a}]}`, "status.podIPs[0]: Invalid value"},
		{"two addresses of a family", `status: {podIPs: [{ip: 10.0.0.1}, {ip: 10.0.0.2}]}`, "status.podIPs: Invalid value"},
		{"duplicate address", `status: {podIPs: [{ip: 10.0.0.1}, {ip: 10.0.0.1}]}`, "status.podIPs: Invalid value"},
		{"nomination of a bound pod", `status: {nominatedNodeName: other}`, "status.nominatedNodeName: Forbidden"},
		{"condition", `status: {conditions: [{type: Ready, status: "True", observedGeneration: 1}]}`, ""},
		{"bad condition", `status: {conditions: [{type: Ready, status: "True", observedGeneration: -1}]}`,
			"status.conditions[0].observedGeneration: Invalid value"},
	})
	rowtest.Updates(t, row, "status", `{metadata: {name: p, namespace: ns}, spec: {containers: [{name: c, `+
		`image: i}]}}`, []rowtest.Case{
		{"nomination", `status: {nominatedNodeName: other}`, ""},
		{"bad nomination", `status: {nominatedNodeName: A_}`, "status.nominatedNodeName: Invalid value"},
	})
	never := `{metadata: {name: p, namespace: ns}, spec: {restartPolicy: Never, nodeName: node, ` +
		`containers: [{name: c, image: i}]}, status: {phase: Running, containerStatuses: [{name: c, ` +
		`state: {terminated: {exitCode: 1}}}]}}`
	rowtest.Updates(t, row, "status", never, []rowtest.Case{
		{"ended", ``, ""},
		{"runs again", statuses(`state: {running: {}}`), "status.containerStatuses[0].state: Forbidden"},
	})
	rowtest.Updates(t, row, "status", `{metadata: {name: p, namespace: ns}, spec: {restartPolicy: OnFailure, `+
		`nodeName: node, containers: [{name: c, image: i}]}, status: {containerStatuses: [{name: c, `+
		`state: {terminated: {exitCode: 1}}}]}}`, []rowtest.Case{
		{"runs again after a failure", statuses(`state: {running: {}}`), ""},
	})
}

// TestAllocatedNames checks the names of allocated resources in the status of a container that has a
// claim, and whose pod has a claim for extended resources.
func TestAllocatedNames(t *testing.T) {
	row := rowOf(t, "pods")
	stored := `{metadata: {name: p, namespace: ns}, spec: {nodeName: node, ` +
		`resourceClaims: [{name: r, resourceClaimName: r}], containers: [` +
		`{name: d, image: i, resources: {limits: {example.com/a: 1}}}, ` +
		`{name: c, image: i, resources: {claims: [{name: r, request: q}], ` +
		`limits: {example.com/a: 1, example.com/none: 0}}}]}, status: {qosClass: BestEffort, ` +
		`extendedResourceClaimStatus: {resourceClaimName: p-extended, requestMappings: [` +
		`{containerName: c, resourceName: example.com/a, requestName: container-0-request-0}, ` +
		`{containerName: d, resourceName: example.com/a, requestName: other}, ` +
		`{containerName: c, resourceName: example.com/none, requestName: none}]}}}`
	const bad = "status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value"
	name := func(name string) string {
		return `status: {containerStatuses: [{name: c, allocatedResourcesStatus: [{name: "` + name + `"}]}]}`
	}
	rowtest.Updates(t, row, "status", stored, []rowtest.Case{
		{"resource", name("example.com/a"), ""},
		{"other resource", name("example.com/b"), bad},
		{"claim and request", name("claim:r/q"), ""},
		{"claim without request", name("claim:r"), bad},
		{"extended claim", name("claim:p-extended/container-0-request-0"), ""},
		{"extended claim without request", name("claim:p-extended"), bad},
		{"request of another container", name("claim:p-extended/other"), bad},
		{"request of nothing", name("claim:p-extended/none"), bad},
		{"another claim", name("claim:q/container-0-request-0"), bad},
	})
}

// TestSysAdmin checks that a container that must not gain privileges cannot have CAP_SYS_ADMIN,
// unless a container of the stored pod has it.
func TestSysAdmin(t *testing.T) {
	row := rowOf(t, "pods")
	const spec = `containers: [{name: c, image: i, terminationMessagePolicy: File, imagePullPolicy: Always, ` +
		`securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}}]`
	rowtest.Creates(t, row, simplePod, []rowtest.Case{
		{"administrator", `spec: {` + spec + `}`, "spec.containers[0].securityContext: Invalid value"},
	})
	rowtest.Updates(t, row, "", `{metadata: {name: p, namespace: ns}, spec: {`+spec+`}}`, []rowtest.Case{
		{"stored administrator", `metadata: {labels: {a: b}}`, ""},
	})
}

func TestPodCells(t *testing.T) {
	row := rowOf(t, "pods")
	env := resource.CellEnv{Age: func(metav1.Time) string { return "5m" }}
	for name, tc := range map[string]struct {
		object string
		want   []any // the cells name, ready, status, restarts
	}{
		"pending": {`{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Pending"}}`, []any{"x", "0/1", "Pending", "0"}},
		"running": {`{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running",` +
			`"containerStatuses":[{"name":"a","ready":true,"restartCount":2,"state":{"running":{}}}]}}`,
			[]any{"x", "1/1", "Running", "2"}},
		"restarted": {`{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running",` +
			`"containerStatuses":[{"name":"a","ready":true,"restartCount":2,"state":{"running":{}},"lastState":{"terminated":{"finishedAt":"2026-01-01T00:00:00Z"}}}]}}`,
			[]any{"x", "1/1", "Running", "2 (5m ago)"}},
		"waiting": {`{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Pending",` +
			`"containerStatuses":[{"name":"a","state":{"waiting":{"reason":"ImagePullBackOff"}}}]}}`,
			[]any{"x", "0/1", "ImagePullBackOff", "0"}},
		"exited": {`{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Failed",` +
			`"containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":3}}}]}}`,
			[]any{"x", "0/1", "ExitCode:3", "0"}},
		"killed": {`{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Failed",` +
			`"containerStatuses":[{"name":"a","state":{"terminated":{"signal":9}}}]}}`,
			[]any{"x", "0/1", "Signal:9", "0"}},
		"completed": {`{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Succeeded",` +
			`"containerStatuses":[{"name":"a","state":{"terminated":{"reason":"Completed"}}}]}}`,
			[]any{"x", "0/1", "Completed", "0"}},
		"initializing": {`{"spec":{"initContainers":[{"name":"i"},{"name":"j"}],` +
			`"containers":[{"name":"a"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{}}},{"name":"j","state":{"running":{}}}]}}`,
			[]any{"x", "0/1", "Init:1/2", "0"}},
		"failed to initialize": {`{"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"a"}]},` +
			`"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":1,"state":{"terminated":{"exitCode":1}}}]}}`,
			[]any{"x", "0/1", "Init:ExitCode:1", "1"}},
		"gated": {`{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Pending",` +
			`"conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}}`,
			[]any{"x", "0/1", "SchedulingGated", "0"}},
		"terminating": {`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},` +
			`"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running"}}`, []any{"x", "0/1", "Terminating", "0"}},
		"node lost": {`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},` +
			`"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running","reason":"NodeLost"}}`,
			[]any{"x", "0/1", "Unknown", "0"}},
		"evicted": {`{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Failed","reason":"Evicted"}}`,
			[]any{"x", "0/1", "Evicted", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.Cells(rowtest.Decode(t, row, "x", tc.object), env); !slices.Equal(got[:4], tc.want) {
				t.Errorf("cells %q, want %q", got[:4], tc.want)
			}
		})
	}
}
