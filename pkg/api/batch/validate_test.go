// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/rowtest"
)

// template is the valid pod template of the jobs in the tests below.
const template = `{metadata: {labels: {app: work}}, spec: {restartPolicy: Never, containers: [{name: work, ` +
	`image: "work:1"}]}}`

// specCases returns test cases of rules that apply to jobs and to the job templates of cron jobs.
// path leads to the job's spec in the object, such as "spec". The cases patch that spec.
func specCases(path ...string) []rowtest.Case {
	const failed, succeeded = "podFailurePolicy.rules", "successPolicy.rules"
	rule := func(text string) string { return `{podFailurePolicy: {rules: [` + text + `]}}` }
	success := func(text string) string {
		return `{completionMode: Indexed, completions: 5, successPolicy: {rules: [` + text + `]}}`
	}
	cases := []rowtest.Case{
		{"valid", `{}`, ""},
		{"negative counts", `{parallelism: -1, completions: -1, backoffLimit: -1, ttlSecondsAfterFinished: -1, ` +
			`activeDeadlineSeconds: -1}`,
			"parallelism: Invalid value, completions: Invalid value, backoffLimit: Invalid value, " +
				"ttlSecondsAfterFinished: Invalid value, activeDeadlineSeconds: Invalid value"},
		{"restart policy Always", `{template: {spec: {restartPolicy: Always}}}`,
			"template.spec.restartPolicy: Required value"},
		{"unknown restart policy", `{template: {spec: {restartPolicy: Sometimes}}}`,
			"template.spec.restartPolicy: Unsupported value"},
		{"no containers", `{template: {spec: {containers: null}}}`, "template.spec.containers: Required value"},
		{"unknown mode", `{completionMode: Other}`, "completionMode: Unsupported value"},
		{"indexed",
			`{completionMode: Indexed, completions: 5, parallelism: 2, backoffLimitPerIndex: 1, maxFailedIndexes: 5}`, ""},
		{"indexed without completions", `{completionMode: Indexed, completions: null, parallelism: 2}`,
			"completions: Required value"},
		{"indexed with too much parallelism", `{completionMode: Indexed, completions: 5, parallelism: 100001}`,
			"parallelism: Invalid value"},
		{"more failed indexes than indexes",
			`{completionMode: Indexed, completions: 5, backoffLimitPerIndex: 1, maxFailedIndexes: 6}`,
			"maxFailedIndexes: Invalid value"},
		{"failed indexes without a limit for each", `{completionMode: Indexed, completions: 5, maxFailedIndexes: 1}`,
			"backoffLimitPerIndex: Required value"},
		{"index settings without the mode", `{backoffLimitPerIndex: 1, maxFailedIndexes: 1}`,
			"backoffLimitPerIndex: Invalid value, maxFailedIndexes: Invalid value"},
		{"many indexes without maxFailedIndexes",
			`{completionMode: Indexed, completions: 100001, backoffLimitPerIndex: 1}`, "maxFailedIndexes: Required value"},
		{"many indexes with too much parallelism", `{completionMode: Indexed, completions: 100001, ` +
			`backoffLimitPerIndex: 1, ` +
			`maxFailedIndexes: 10001, parallelism: 10001}`,
			"parallelism: Invalid value, maxFailedIndexes: Invalid value"},
		{"other controller", `{managedBy: example.com/queue}`, ""},
		{"other controller without a domain", `{managedBy: queue}`, "managedBy: Invalid value"},
		{"other controller with a long name", `{managedBy: example.com/` + strings.Repeat("a", 60) + `}`,
			"managedBy: Too long"},

		{"failure by exit codes",
			rule(`{action: FailJob, onExitCodes: {containerName: work, operator: In, values: [1, 2]}}`), ""},
		{"failure by condition", rule(`{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}`), ""},
		{"21 rules of failure",
			`{podFailurePolicy: {rules: [` + strings.Repeat(`{action: Ignore, onPodConditions: [{type: A}]}, `, 21) + `]}}`,
			failed + ": Too many"},
		{"21 conditions", rule(`{action: Ignore, onPodConditions: [` + strings.Repeat(`{type: A}, `, 21) + `]}`),
			failed + "[0].onPodConditions: Too many"},
		{"no action", rule(`{onPodConditions: [{type: A}]}`), failed + "[0].action: Required value"},
		{"unknown action", rule(`{action: Other, onPodConditions: [{type: A}]}`), failed + "[0].action: Unsupported value"},
		{"action FailIndex without indexes", rule(`{action: FailIndex, onPodConditions: [{type: A}]}`),
			failed + "[0].action: Invalid value"},
		{"neither codes nor conditions", rule(`{action: Count}`), failed + "[0]: Invalid value"},
		{"codes and conditions",
			rule(`{action: Count, onPodConditions: [{type: A}], onExitCodes: {operator: In, values: [1]}}`),
			failed + "[0]: Invalid value"},
		{"bad condition", rule(`{action: Count, onPodConditions: [{type: "a b", status: Maybe}]}`),
			failed + "[0].onPodConditions[0].type: Invalid value, " + failed +
				"[0].onPodConditions[0].status: Unsupported value"},
		{"no operator and no codes", rule(`{action: Count, onExitCodes: {}}`),
			failed + "[0].onExitCodes.operator: Required value, " + failed + "[0].onExitCodes.values: Invalid value"},
		{"unknown operator", rule(`{action: Count, onExitCodes: {operator: Of, values: [1]}}`),
			failed + "[0].onExitCodes.operator: Unsupported value"},
		{"exit code zero", rule(`{action: Count, onExitCodes: {operator: In, values: [0]}}`),
			failed + "[0].onExitCodes.values[0]: Invalid value"},
		{"all exit codes but zero", rule(`{action: Count, onExitCodes: {operator: NotIn, values: [0]}}`), ""},
		{"duplicate exit code", rule(`{action: Count, onExitCodes: {operator: In, values: [1, 1]}}`),
			failed + "[0].onExitCodes.values[1]: Duplicate value"},
		{"unsorted exit codes", rule(`{action: Count, onExitCodes: {operator: In, values: [2, 1]}}`),
			failed + "[0].onExitCodes.values: Invalid value"},
		{"exit codes of an unknown container", rule(`{action: Count, onExitCodes: {containerName: other, operator: In, ` +
			`values: [1]}}`),
			failed + "[0].onExitCodes.containerName: Invalid value"},
		{"failure with restarts", `{template: {spec: {restartPolicy: OnFailure}}, ` +
			`podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: A}]}]}}`,
			"template.spec.restartPolicy: Invalid value"},

		{"success", success(`{succeededIndexes: "0,2-4", succeededCount: 2}`), ""},
		{"success without indexes", `{successPolicy: {rules: [{succeededCount: 1}]}}`, "successPolicy: Invalid value"},
		{"no rules of success", success(``), succeeded + ": Required value"},
		{"empty rule of success", success(`{}`), succeeded + "[0]: Required value"},
		{"21 rules of success", success(strings.Repeat(`{succeededCount: 1}, `, 21)), succeeded + ": Too many"},
		{"succeededCount above completions", success(`{succeededCount: 6}`),
			succeeded + "[0].succeededCount: Invalid value"},
		{"succeededCount above the number of indexes", success(`{succeededIndexes: "0-1", succeededCount: 3}`),
			succeeded + "[0].succeededCount: Invalid value"},
		{"negative succeededCount", success(`{succeededCount: -1}`), succeeded + "[0].succeededCount: Invalid value"},
		{"indexes beyond the last", success(`{succeededIndexes: "5"}`), succeeded + "[0].succeededIndexes: Invalid value"},
		{"decreasing indexes", success(`{succeededIndexes: "3,1"}`), succeeded + "[0].succeededIndexes: Invalid value"},
		{"decreasing interval", success(`{succeededIndexes: "3-1"}`), succeeded + "[0].succeededIndexes: Invalid value"},
		{"interval with three parts", success(`{succeededIndexes: "1-2-3"}`),
			succeeded + "[0].succeededIndexes: Invalid value"},
		{"indexes that are not numbers", success(`{succeededIndexes: "a"}`),
			succeeded + "[0].succeededIndexes: Invalid value"},
		{"long indexes", success(`{succeededIndexes: "` + strings.Repeat("0", maxIndexes+1) + `"}`),
			succeeded + "[0].succeededIndexes: Too long"},

		{"replacement", `{podReplacementPolicy: Failed}`, ""},
		{"unknown replacement", `{podReplacementPolicy: Other}`, "podReplacementPolicy: Unsupported value"},
		{"replacement of terminating pods that fail by rules", `{podReplacementPolicy: TerminatingOrFailed, ` +
			`podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: A}]}]}}`,
			"podReplacementPolicy: Unsupported value"},
	}
	for i, tc := range cases {
		for _, name := range slices.Backward(path) {
			cases[i][1] = `{` + name + `: ` + cases[i][1] + `}`
		}
		if tc[2] != "" {
			prefix := strings.Join(path, ".") + "."
			cases[i][2] = prefix + strings.ReplaceAll(tc[2], ", ", ", "+prefix)
		}
	}
	return cases
}

func TestJob(t *testing.T) {
	row := rowtest.Row(t, Rows(podspec.Policy{}), "jobs")
	const valid = `{metadata: {name: j, uid: u}, spec: {template: ` + template + `}}`
	const manual = `{metadata: {name: j}, spec: {manualSelector: true, selector: {matchLabels: {app: work}}, ` +
		`template: ` + template + `}}`
	rowtest.Creates(t, row, valid, specCases("spec"))
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"selector that was not generated", `spec: {selector: {matchLabels: {app: work}}}`,
			"spec.selector: Invalid value"},
		{"label of another job", `spec: {template: {metadata: {labels: {job-name: other}}}}`,
			"spec.template.metadata.labels[job-name]: Invalid value"},
		{"indexes whose hosts have long names", `{metadata: {name: ` + strings.Repeat("a", 62) +
			`}, spec: {completionMode: Indexed, completions: 10}}`,
			"metadata.name: Invalid value"},
	})
	rowtest.Creates(t, row, manual, []rowtest.Case{
		{"manual selector", ``, ""},
		{"no selector", `spec: {selector: null}`,
			"spec.selector: Required value, spec.template.metadata.labels: Invalid value"},
		{"selector of other pods", `spec: {selector: {matchLabels: {app: other}}}`,
			"spec.template.metadata.labels: Invalid value"},
		{"bad selector", `spec: {selector: {matchLabels: {app: "a b"}}}`, "spec.selector.matchLabels: Invalid value"},
	})
	rowtest.Updates(t, row, "", `{metadata: {name: j, uid: u}, spec: {suspend: true, `+
		`selector: {matchLabels: {app: work}}, template: `+template+`}}`, []rowtest.Case{
		{"stored selector that was not generated", `spec: {parallelism: 3}`, ""},
	})
	change := `spec: {template: {spec: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], ` +
		`containers: [{name: work, image: "work:1", resources: {requests: {cpu: 1}}}]}}}`
	affinity := func(kind string) string {
		return `spec: {template: {spec: {affinity: {` + kind +
			`: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, ` +
			`operator: Exists}]}]}}}}}}`
	}
	rowtest.Updates(t, row, "", manual, []rowtest.Case{
		{"mutable fields",
			`spec: {parallelism: 3, backoffLimit: 2, suspend: true, activeDeadlineSeconds: 5, ` +
				`ttlSecondsAfterFinished: 5}`, ""},
		{"immutable fields", `spec: {completions: 3, selector: {matchLabels: {app: work, b: c}}, ` +
			`template: {metadata: {labels: {b: c}}}, managedBy: example.com/queue}`,
			"spec.completions: Invalid value, spec.selector: Invalid value, spec.template: Invalid value, " +
				"spec.managedBy: Invalid value"},
		{"mode", `spec: {completionMode: Indexed}`, "spec.completionMode: Invalid value"},
		{"policies",
			`spec: {podReplacementPolicy: Failed, podFailurePolicy: {rules: [{action: Ignore, ` +
				`onPodConditions: [{type: A}]}]}}`,
			"spec.podFailurePolicy: Invalid value"},
		{"template of a job that runs", change, "spec.template: Invalid value"},
	})
	suspended := strings.Replace(manual, "spec: {manual", "spec: {suspend: true, manual", 1)
	rowtest.Updates(t, row, "", suspended, []rowtest.Case{
		{"template of a suspended job", change, ""},
		{"affinity of a suspended job", affinity("nodeAffinity"), ""},
		{"image of a suspended job", `spec: {template: {spec: {containers: [{name: work, image: "work:2"}]}}}`,
			"spec.template.spec: Invalid value"},
		{"containers of a suspended job",
			`spec: {template: {spec: {containers: [{name: a, image: a}, {name: b, image: b}]}}}`,
			"spec.template.spec: Invalid value"},
	})
	rowtest.Updates(t, row, "", strings.TrimSuffix(suspended, "}")+`, status: {active: 1}}`, []rowtest.Case{
		{"template of a suspended job that has pods", change, "spec.template: Invalid value"},
	})
	indexed := strings.Replace(manual, "spec: {manual", "spec: {completionMode: Indexed, completions: 3, "+
		"parallelism: 3, manual", 1)
	rowtest.Updates(t, row, "", indexed, []rowtest.Case{
		{"completions with parallelism", `spec: {completions: 5, parallelism: 5}`, ""},
		{"completions alone", `spec: {completions: 5}`, "spec.completions: Invalid value"},
		{"no completions", `spec: {completions: null}`, "spec.completions: Required value"},
	})
}

func TestCronJob(t *testing.T) {
	row := rowtest.Row(t, Rows(podspec.Policy{}), "cronjobs")
	const valid = `{metadata: {name: c}, spec: {schedule: "* * * * *", jobTemplate: {spec: {template: ` + template +
		`}}}}`
	rowtest.Creates(t, row, valid, specCases("spec", "jobTemplate", "spec"))
	cases := []rowtest.Case{
		{"no schedule", `spec: {schedule: null}`, "spec.schedule: Required value"},
		{"schedule in words", `spec: {schedule: "@daily"}`, ""},
		{"bad schedule", `spec: {schedule: "61 * * * *"}`, "spec.schedule: Invalid value"},
		{"zone", `spec: {timeZone: UTC}`, ""},
		{"empty zone", `spec: {timeZone: ""}`, "spec.timeZone: Invalid value"},
		{"local zone", `spec: {timeZone: Local}`, "spec.timeZone: Invalid value"},
		{"zone with two dots", `spec: {timeZone: Europe/..}`, "spec.timeZone: Invalid value"},
		{"unknown zone", `spec: {timeZone: Nowhere/At}`, "spec.timeZone: Invalid value"},
		{"zone in the schedule", `spec: {schedule: "TZ=UTC * * * * *"}`, "spec.schedule: Invalid value"},
		{"negative numbers", `spec: {startingDeadlineSeconds: -1, successfulJobsHistoryLimit: -1, ` +
			`failedJobsHistoryLimit: -1}`,
			"spec.startingDeadlineSeconds: Invalid value, spec.successfulJobsHistoryLimit: Invalid value, " +
				"spec.failedJobsHistoryLimit: Invalid value"},
		{"forbid overlap", `spec: {concurrencyPolicy: Forbid}`, ""},
		{"unknown policy", `spec: {concurrencyPolicy: Some}`, "spec.concurrencyPolicy: Unsupported value"},
		{"selector", `spec: {jobTemplate: {spec: {selector: {matchLabels: {a: b}}}}}`,
			"spec.jobTemplate.spec.selector: Invalid value"},
		{"manual selector", `spec: {jobTemplate: {spec: {manualSelector: true}}}`,
			"spec.jobTemplate.spec.manualSelector: Unsupported value"},
	}
	rowtest.Creates(t, row, valid, cases)
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"longest name", `metadata: {name: ` + strings.Repeat("a", 52) + `}`, ""},
		{"name that is too long", `metadata: {name: ` + strings.Repeat("a", 53) + `}`, "metadata.name: Invalid value"},
	})
	rowtest.Updates(t, row, "", valid, cases)
	rowtest.Updates(t, row, "", `{metadata: {name: `+strings.Repeat("a", 53)+
		`}, spec: {schedule: "TZ=UTC * * * * *", jobTemplate: {spec: {template: `+template+`}}}}`, []rowtest.Case{
		{"old name and zone", `spec: {suspend: true}`, ""},
		{"zone in both places", `spec: {timeZone: UTC}`, "spec.schedule: Invalid value"},
		{"zone in its place", `spec: {timeZone: UTC, schedule: "* * * * *"}`, ""},
	})
}

func TestJobCells(t *testing.T) {
	row := rowtest.Row(t, Rows(podspec.Policy{}), "jobs")
	env := resource.CellEnv{Age: func(metav1.Time) string { return "5m" }}
	for _, tc := range []struct{ object, status, completions, took string }{
		{`{"spec":{"completions":3},"status":{"succeeded":1}}`, "Running", "1/3", ""},
		{`{"spec":{"parallelism":3},"status":{"succeeded":1}}`, "Running", "1/1 of 3", ""},
		{`{"spec":{"parallelism":1}}`, "Running", "0/1", ""},
		{`{"status":{"startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T00:01:10Z",` +
			`"conditions":[{"type":"Complete","status":"True"}]}}`, "Complete", "0/1", "70s"},
		{`{"status":{"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Failed","status":"True"}]}}`,
			"Failed", "0/1", "5m"},
		{`{"status":{"conditions":[{"type":"Suspended","status":"True"}]}}`, "Suspended", "0/1", ""},
		{`{"status":{"conditions":[{"type":"Suspended","status":"False"}]}}`, "Running", "0/1", ""},
		{`{"status":{"conditions":[{"type":"FailureTarget","status":"True"}]}}`, "FailureTarget", "0/1", ""},
		{`{"status":{"conditions":[{"type":"SuccessCriteriaMet","status":"True"}]}}`, "SuccessCriteriaMet", "0/1", ""},
		{`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, "Terminating", "0/1", ""},
	} {
		got := row.Cells(rowtest.Decode(t, row, "j", tc.object), env)
		if want := []any{"j", tc.status, tc.completions, tc.took}; !slices.Equal(got[:4], want) {
			t.Errorf("%s: cells %q, want %q", tc.object, got[:4], want)
		}
	}
}

func TestJobDefaults(t *testing.T) {
	for text, want := range map[string]struct{ completions, parallelism, limit int32 }{
		`{}`:                                  {1, 1, 6},
		`{"spec":{"parallelism":3}}`:          {-1, 3, 6},
		`{"spec":{"completions":3}}`:          {3, 1, 6},
		`{"spec":{"backoffLimitPerIndex":1}}`: {1, 1, 1<<31 - 1},
	} {
		row := rowtest.Row(t, Rows(podspec.Policy{}), "jobs")
		spec := rowtest.Decode(t, row, "j", text).(*batchv1.Job).Spec
		completions := int32(-1)
		if spec.Completions != nil {
			completions = *spec.Completions
		}
		if completions != want.completions || *spec.Parallelism != want.parallelism || *spec.BackoffLimit != want.limit {
			t.Errorf("%s: completions %d, parallelism %d, limit %d, "+
				"want %+v", text, completions, *spec.Parallelism, *spec.BackoffLimit, want)
		}
	}
}
