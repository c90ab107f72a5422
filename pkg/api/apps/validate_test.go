// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"slices"
	"testing"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/rowtest"
)

// template is the valid pod template of the workloads in the tests below.
const template = `{metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:1"}]}}`

// templateCases are test cases of rules that apply to the templates of all workloads.
var templateCases = []rowtest.Case{
	{"valid", ``, ""},
	{"no replicas set", `spec: {replicas: null}`, ""},
	{"no selector", `spec: {selector: null}`,
		"spec.selector: Required value, spec.template.metadata.labels: Invalid value"},
	{"empty selector", `spec: {selector: {matchLabels: null}}`, "spec.selector: Invalid value"},
	{"bad selector", `spec: {selector: {matchLabels: {app: "!"}}}`,
		"spec.selector: Invalid value, spec.selector.matchLabels: Invalid value"},
	{"template without the selected labels", `spec: {template: {metadata: {labels: {app: other}}}}`,
		"spec.template.metadata.labels: Invalid value"},
	{"template without containers", `spec: {template: {spec: {containers: null}}}`,
		"spec.template.spec.containers: Required value"},
	{"restart policy Never", `spec: {template: {spec: {restartPolicy: Never}}}`,
		"spec.template.spec.restartPolicy: Unsupported value"},
	{"pods with a deadline", `spec: {template: {spec: {activeDeadlineSeconds: 5}}}`,
		"spec.template.spec.activeDeadlineSeconds: Forbidden"},
	{"negative minReadySeconds", `spec: {minReadySeconds: -1}`, "spec.minReadySeconds: Invalid value"},
}

// without returns the cases except those with the given names.
func without(cases []rowtest.Case, names ...string) []rowtest.Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c rowtest.Case) bool { return slices.Contains(names, c[0]) })
}

func TestDeployment(t *testing.T) {
	row := rowtest.Row(t, Rows(podspec.Policy{}), "deployments")
	const valid = `{metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: ` +
		template + `}}`
	rowtest.Creates(t, row, valid, templateCases)
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"negative replicas", `spec: {replicas: -1}`, "spec.replicas: Invalid value"},
		{"negative history", `spec: {revisionHistoryLimit: -1}`, "spec.revisionHistoryLimit: Invalid value"},
		{"unknown strategy", `spec: {strategy: {type: Sometimes}}`, "spec.strategy: Unsupported value"},
		{"recreate", `spec: {strategy: {type: Recreate}}`, ""},
		{"recreate with a rolling update", `spec: {strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}}`,
			"spec.strategy.rollingUpdate: Forbidden"},
		{"rolling update by a count and a percentage",
			`spec: {strategy: {rollingUpdate: {maxSurge: 3, maxUnavailable: "0%"}}}`, ""},
		{"rolling update without room for a change", `spec: {strategy: {rollingUpdate: {maxSurge: 0, ` +
			`maxUnavailable: "0%"}}}`,
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"rolling update with invalid amounts", `spec: {strategy: {rollingUpdate: {maxSurge: "a", maxUnavailable: -1}}}`,
			"spec.strategy.rollingUpdate.maxSurge: Invalid value, spec.strategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"maxUnavailable above 100%", `spec: {strategy: {rollingUpdate: {maxUnavailable: "101%"}}}`,
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"maxSurge of 200%", `spec: {strategy: {rollingUpdate: {maxSurge: "200%"}}}`, ""},
		{"deadline as long as minReadySeconds", `spec: {minReadySeconds: 600}`,
			"spec.progressDeadlineSeconds: Invalid value"},
		{"negative deadline", `spec: {progressDeadlineSeconds: -1}`, "spec.progressDeadlineSeconds: Invalid value"},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"image volume without a reference", `spec: {template: {spec: {volumes: [{name: v, image: {}}]}}}`,
			"spec.template.spec.volumes[0].image.reference: Required value"},
		{"nothing", ``, ""},
		{"image", `spec: {template: {spec: {containers: [{name: web, image: "web:2"}]}}}`, ""},
		{"selector", `spec: {selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}}}`,
			"spec.selector: Invalid value"},
		{"negative replicas", `spec: {replicas: -1}`, "spec.replicas: Invalid value"},
	})
	rowtest.Updates(t, row, "status", valid, []rowtest.Case{
		{"counts",
			`status: {replicas: 3, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 1, observedGeneration: 1}`, ""},
		{"negative counts", `status: {observedGeneration: -1, unavailableReplicas: -1}`,
			"status.observedGeneration: Invalid value, status.unavailableReplicas: Invalid value"},
		{"counts above replicas", `status: {replicas: 1, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2}`,
			"status.updatedReplicas: Invalid value, status.readyReplicas: Invalid value, " +
				"status.availableReplicas: Invalid value"},
		{"more available than ready", `status: {replicas: 2, readyReplicas: 1, availableReplicas: 2}`,
			"status.availableReplicas: Invalid value"},
	})
	counted := `{metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: ` + template +
		`}, status: {collisionCount: 3}}`
	rowtest.Updates(t, row, "status", counted, []rowtest.Case{
		{"more collisions", `status: {collisionCount: 4}`, ""},
		{"fewer collisions", `status: {collisionCount: 2}`, "status.collisionCount: Invalid value"},
		{"no collisions", `status: {collisionCount: null}`, "status.collisionCount: Invalid value"},
	})
}

// TestStoredTemplates checks that workloads can be updated whose stored templates have fields that
// would be rejected in new templates.
func TestStoredTemplates(t *testing.T) {
	stored := `{metadata: {name: a}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: ` +
		`{app: web}}, spec: {volumes: [{name: v, image: {}}], containers: [{name: web, image: "web:1", ` +
		`securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}}]}}}}`
	for _, name := range []string{"deployments", "replicasets", "daemonsets", "statefulsets"} {
		row := rowtest.Row(t, Rows(podspec.Policy{}), name)
		rowtest.Updates(t, row, "", stored, []rowtest.Case{{name, `spec: {minReadySeconds: 3}`, ""}})
		rowtest.Creates(t, row, stored, []rowtest.Case{{name, ``, "spec.template.spec.volumes[0].image.reference: " +
			"Required value, spec.template.spec.containers[0].securityContext: Invalid value"}})
	}
}

func TestReplicaSet(t *testing.T) {
	row := rowtest.Row(t, Rows(podspec.Policy{}), "replicasets")
	const valid = `{metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: ` +
		template + `}}`
	rowtest.Creates(t, row, valid, templateCases)
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"negative replicas", `spec: {replicas: -1}`, "spec.replicas: Invalid value"},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"image volume without a reference", `spec: {template: {spec: {volumes: [{name: v, image: {}}]}}}`,
			"spec.template.spec.volumes[0].image.reference: Required value"},
		{"replicas", `spec: {replicas: 5}`, ""},
		{"selector", `spec: {selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}}}`,
			"spec.selector: Invalid value"},
		{"selector that no longer matches", `spec: {selector: {matchLabels: {app: other}}}`,
			"spec.selector: Invalid value, spec.template.metadata.labels: Invalid value"},
	})
	rowtest.Updates(t, row, "status", valid, []rowtest.Case{
		{"counts", `status: {replicas: 3, fullyLabeledReplicas: 3, readyReplicas: 2, availableReplicas: 1}`, ""},
		{"negative counts", `status: {availableReplicas: -1, observedGeneration: -1}`,
			"status.availableReplicas: Invalid value, status.observedGeneration: Invalid value"},
		{"counts above replicas", `status: {replicas: 1, fullyLabeledReplicas: 2, readyReplicas: 2}`,
			"status.fullyLabeledReplicas: Invalid value, status.readyReplicas: Invalid value"},
		{"more available than ready", `status: {replicas: 2, readyReplicas: 1, availableReplicas: 2}`,
			"status.availableReplicas: Invalid value"},
	})
}

func TestDaemonSet(t *testing.T) {
	row := rowtest.Row(t, Rows(podspec.Policy{}), "daemonsets")
	const valid = `{metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: ` + template + `}}`
	rowtest.Creates(t, row, valid, without(templateCases, "no selector", "bad selector"))
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"no selector", `spec: {selector: null}`, "spec.template.metadata.labels: Invalid value"},
		{"bad selector", `spec: {selector: {matchLabels: {app: "!"}}}`, "spec.selector.matchLabels: Invalid value"},
		{"negative history", `spec: {revisionHistoryLimit: -1}`, "spec.revisionHistoryLimit: Invalid value"},
		{"on delete", `spec: {updateStrategy: {type: OnDelete}}`, ""},
		{"unknown strategy", `spec: {updateStrategy: {type: Sometimes}}`, "spec.updateStrategy: Unsupported value"},
		{"surge alone", `spec: {updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}`, ""},
		{"surge and unavailable", `spec: {updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}}`,
			"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value"},
		{"neither surge nor unavailable", `spec: {updateStrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}}`,
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value"},
		{"more than all", `spec: {updateStrategy: {rollingUpdate: {maxUnavailable: "200%"}}}`,
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value"},
		{"negative template generation", `metadata: {annotations: {deprecated.daemonset.template.generation: "-1"}}`, ""},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"image volume without a reference", `spec: {template: {spec: {volumes: [{name: v, image: {}}]}}}`,
			"spec.template.spec.volumes[0].image.reference: Required value"},
		{"image", `spec: {template: {spec: {containers: [{name: web, image: "web:2"}]}}}`, ""},
		{"selector", `spec: {selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}}}`,
			"spec.selector: Invalid value"},
	})
	rowtest.Updates(t, row, "status", valid, []rowtest.Case{
		{"counts", `status: {currentNumberScheduled: 1, desiredNumberScheduled: 2, numberReady: 1, observedGeneration: 1}`,
			""},
		{"negative counts", `status: {currentNumberScheduled: -1, numberMisscheduled: -1, desiredNumberScheduled: -1, ` +
			`numberReady: -1, updatedNumberScheduled: -1, numberAvailable: -1, numberUnavailable: -1, ` +
			`observedGeneration: -1, collisionCount: -1}`,
			"status.currentNumberScheduled: Invalid value, status.numberMisscheduled: Invalid value, " +
				"status.desiredNumberScheduled: Invalid value, status.numberReady: Invalid value, " +
				"status.updatedNumberScheduled: Invalid value, status.numberAvailable: Invalid value, " +
				"status.numberUnavailable: Invalid value, status.observedGeneration: Invalid value, " +
				"status.collisionCount: Invalid value"},
	})
}

func TestStatefulSet(t *testing.T) {
	row := rowtest.Row(t, Rows(podspec.Policy{}), "statefulsets")
	const valid = `{metadata: {name: web}, spec: {replicas: 2, serviceName: web, ` +
		`selector: {matchLabels: {app: web}}, template: ` + template + `}}`
	rowtest.Creates(t, row, valid, templateCases)
	const claim = `{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"negative replicas", `spec: {replicas: -1}`, "spec.replicas: Invalid value"},
		{"pod management", `spec: {podManagementPolicy: Parallel}`, ""},
		{"unknown pod management", `spec: {podManagementPolicy: Sometimes}`, "spec.podManagementPolicy: Invalid value"},
		{"on delete", `spec: {updateStrategy: {type: OnDelete}}`, ""},
		{"on delete with a partition", `spec: {updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}}`,
			"spec.updateStrategy.rollingUpdate: Invalid value"},
		{"unknown strategy", `spec: {updateStrategy: {type: Sometimes}}`, "spec.updateStrategy: Invalid value"},
		{"negative partition", `spec: {updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: -1}}}`,
			"spec.updateStrategy.rollingUpdate.partition: Invalid value"},
		{"retention", `spec: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}}`, ""},
		{"unknown retention", `spec: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Never, whenScaled: Never}}`,
			"spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value, " +
				"spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value"},
		{"negative ordinal", `spec: {ordinals: {start: -1}}`, "spec.ordinals.start: Invalid value"},
		{"service name", `spec: {serviceName: "A_"}`, "spec.serviceName: Invalid value"},
		{"volume of a claim",
			`spec: {volumeClaimTemplates: [` + claim + `], template: {spec: {containers: [{name: web, image: "web:1", ` +
				`volumeMounts: [{name: data, mountPath: /data}]}]}}}`,
			""},
		{"mount of an unknown volume", `spec: {template: {spec: {containers: [{name: web, image: "web:1", ` +
			`volumeMounts: [{name: data, mountPath: /data}]}]}}}`,
			"spec.template.spec.containers[0].volumeMounts[0].name: Not found"},
		{"claim without a size", `spec: {volumeClaimTemplates: [{metadata: {name: data}, ` +
			`spec: {accessModes: [ReadWriteOnce]}}]}`,
			"spec.volumeClaimTemplates[0].spec.resources[storage]: Required value"},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"image volume without a reference", `spec: {template: {spec: {volumes: [{name: v, image: {}}]}}}`,
			"spec.template.spec.volumes[0].image.reference: Required value"},
		{"mutable fields",
			`spec: {replicas: 5, minReadySeconds: 3, revisionHistoryLimit: 4, ordinals: {start: 2}, ` +
				`updateStrategy: {type: OnDelete, rollingUpdate: null}, ` +
				`persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}}`,
			""},
		{"pod management", `spec: {podManagementPolicy: Parallel}`, "spec.podManagementPolicy: Invalid value"},
		{"service name", `spec: {serviceName: other}`, "spec.serviceName: Invalid value"},
		{"claims", `spec: {volumeClaimTemplates: [` + claim + `]}`, "spec.volumeClaimTemplates: Invalid value"},
		{"selector", `spec: {selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}}}`,
			"spec.selector: Invalid value"},
	})
	rowtest.Updates(t, row, "status", valid, []rowtest.Case{
		{"counts", `status: {replicas: 3, readyReplicas: 3, currentReplicas: 1, updatedReplicas: 2, availableReplicas: 2}`,
			""},
		{"negative counts", `status: {availableReplicas: -1, observedGeneration: -1, collisionCount: -1}`,
			"status.availableReplicas: Invalid value, status.observedGeneration: Invalid value, " +
				"status.collisionCount: Invalid value"},
		{"counts above replicas", `status: {replicas: 1, readyReplicas: 2, currentReplicas: 2, updatedReplicas: 2}`,
			"status.readyReplicas: Invalid value, status.currentReplicas: Invalid value, " +
				"status.updatedReplicas: Invalid value"},
		{"more available than ready", `status: {replicas: 2, readyReplicas: 1, availableReplicas: 2}`,
			"status.availableReplicas: Invalid value"},
	})
}

func TestControllerRevision(t *testing.T) {
	row := rowtest.Row(t, Rows(podspec.Policy{}), "controllerrevisions")
	const valid = `{metadata: {name: web-1}, revision: 1, data: {spec: {}}}`
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"valid", ``, ""},
		{"negative revision", `revision: -1`, "revision: Invalid value"},
		{"no data", `data: null`, "data: Required value"},
		{"data that is not an object", `data: [1]`, "data: Required value"},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"revision", `revision: 2`, ""},
		{"negative revision", `revision: -2`, "revision: Invalid value"},
		{"data", `data: {spec: {a: 1}}`, "data: Invalid value"},
	})
}
