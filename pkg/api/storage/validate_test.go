// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/rowtest"
)

func TestStorageClass(t *testing.T) {
	row := rowtest.Row(t, Rows(), "storageclasses")
	const valid = `{metadata: {name: fast}, provisioner: disk.example/csi, parameters: {type: ssd}}`
	term := func(key, values string) string {
		return `{matchLabelExpressions: [{key: ` + key + `, values: [` + values + `]}]}`
	}
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"valid", ``, ""},
		{"no provisioner", `provisioner: null`, "provisioner: Required value"},
		{"bad provisioner", `provisioner: "a b"`, "provisioner: Invalid value"},
		{"upper case letters", `provisioner: Disk.Example/CSI`, ""},
		{"parameter without a name", `parameters: {"": a}`, "parameters: Invalid value"},
		{"large parameters", `parameters: {a: ` + strings.Repeat("a", maxParametersSize) + `}`, "parameters: Too long"},
		{"512 parameters", `parameters: ` + numbered(511), ""},
		{"513 parameters", `parameters: ` + numbered(512), "parameters: Too long"},
		{"reclaim policy Retain", `reclaimPolicy: Retain`, ""},
		{"reclaim policy Recycle", `reclaimPolicy: Recycle`, "reclaimPolicy: Unsupported value"},
		{"binding mode WaitForFirstConsumer", `volumeBindingMode: WaitForFirstConsumer`, ""},
		{"unknown binding", `volumeBindingMode: Later`, "volumeBindingMode: Unsupported value"},
		{"topologies", `allowedTopologies: [` + term("zone", "a, b") + `, ` + term("zone", "c") + `]`, ""},
		{"topology without values", `allowedTopologies: [` + term("zone", "") + `]`,
			"allowedTopologies[0].matchLabelExpressions[0].values: Required value"},
		{"topology with an invalid key", `allowedTopologies: [` + term(`"a b"`, "a") + `]`,
			"allowedTopologies[0].matchLabelExpressions[0].key: Invalid value"},
		{"duplicate value", `allowedTopologies: [` + term("zone", "a, a") + `]`,
			"allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value"},
		{"duplicate key", `allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a]}, {key: zone, ` +
			`values: [b]}]}]`,
			"allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value"},
		{"duplicate term, in another order", `allowedTopologies: [` + term("zone", "a, b") + `, ` + term("zone", "b, a") +
			`]`,
			"allowedTopologies[1].matchLabelExpressions: Duplicate value"},
		{"empty term", `allowedTopologies: [{}]`, "allowedTopologies[0].matchLabelExpressions: Duplicate value"},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"mutable fields",
			`{allowVolumeExpansion: true, mountOptions: [ro], allowedTopologies: [` + term("zone", "a") + `]}`, ""},
		{"immutable fields", `{provisioner: other, parameters: {type: disk}, reclaimPolicy: Retain, ` +
			`volumeBindingMode: WaitForFirstConsumer}`,
			"provisioner: Invalid value, parameters: Invalid value, reclaimPolicy: Invalid value, " +
				"volumeBindingMode: Invalid value"},
	})
}

// numbered returns a YAML map with n keys.
func numbered(n int) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		fmt.Fprintf(&b, "k%d: a, ", i)
	}
	return b.String() + "}"
}

func TestVolumeAttributesClass(t *testing.T) {
	row := rowtest.Row(t, Rows(), "volumeattributesclasses")
	const valid = `{metadata: {name: fast}, driverName: disk.example, parameters: {iops: "5"}}`
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"valid", ``, ""},
		{"no driver", `driverName: null`, "driverName: Required value"},
		{"no parameters", `parameters: null`, "parameters: Required value"},
		{"513 parameters", `parameters: ` + numbered(512), "parameters: Too long"},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"labels", `metadata: {labels: {a: b}}`, ""},
		{"driver and parameters", `{driverName: other, parameters: {iops: "6"}}`,
			"driverName: Forbidden, parameters: Forbidden"},
	})
}

func TestCSIDriver(t *testing.T) {
	row := rowtest.Row(t, Rows(), "csidrivers")
	const valid = `{metadata: {name: disk.example}, spec: {attachRequired: true}}`
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"valid", ``, ""},
		{"group policy", `spec: {fsGroupPolicy: None}`, ""},
		{"unknown group policy", `spec: {fsGroupPolicy: Some}`, "spec.fsGroupPolicy: Unsupported value"},
		{"modes", `spec: {volumeLifecycleModes: [Persistent, Ephemeral]}`, ""},
		{"unknown mode", `spec: {volumeLifecycleModes: [Persistent, Other]}`,
			"spec.volumeLifecycleModes: Unsupported value"},
		{"tokens", `spec: {tokenRequests: [{audience: a, expirationSeconds: 600}, {audience: b}]}`, ""},
		{"duplicate audience", `spec: {tokenRequests: [{audience: a}, {audience: a}]}`,
			"spec.tokenRequests[1].audience: Duplicate value"},
		{"short token", `spec: {tokenRequests: [{audience: a, expirationSeconds: 599}]}`,
			"spec.tokenRequests[0].expirationSeconds: Invalid value"},
		{"long token", `spec: {tokenRequests: [{audience: a, expirationSeconds: 4294967297}]}`,
			"spec.tokenRequests[0].expirationSeconds: Invalid value"},
		{"tokens in secrets", `spec: {serviceAccountTokenInSecrets: true, tokenRequests: [{audience: a}]}`, ""},
		{"no tokens in secrets", `spec: {serviceAccountTokenInSecrets: true}`,
			"spec.serviceAccountTokenInSecrets: Invalid value"},
		{"update period", `spec: {nodeAllocatableUpdatePeriodSeconds: 10}`, ""},
		{"short update period", `spec: {nodeAllocatableUpdatePeriodSeconds: 9}`,
			"spec.nodeAllocatableUpdatePeriodSeconds: Invalid value"},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"mutable fields",
			`spec: {podInfoOnMount: true, storageCapacity: true, fsGroupPolicy: None, requiresRepublish: true, ` +
				`seLinuxMount: true, tokenRequests: [{audience: a}]}`,
			""},
		{"immutable fields", `spec: {attachRequired: false, volumeLifecycleModes: [Ephemeral]}`,
			"spec.attachRequired: Invalid value, spec.volumeLifecycleModes: Invalid value"},
		{"nothing set", `spec: {attachRequired: null}`, ""},
	})
}

func TestCSINode(t *testing.T) {
	row := rowtest.Row(t, Rows(), "csinodes")
	const valid = `{metadata: {name: node}, spec: {drivers: [{name: disk.example, nodeID: a, topologyKeys: [zone], ` +
		`allocatable: {count: 5}}]}}`
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"no drivers", `spec: {drivers: []}`, ""},
		{"another driver", `spec: {drivers: [{name: a, nodeID: b}]}`, ""},
		{"driver without a name", `spec: {drivers: [{nodeID: b}]}`, "spec.drivers[0].name: Required value"},
		{"driver with a long name", `spec: {drivers: [{name: ` + strings.Repeat("a", 64) + `, nodeID: b}]}`,
			"spec.drivers[0].name: Too long"},
		{"duplicate driver", `spec: {drivers: [{name: a, nodeID: b}, {name: a, nodeID: b}]}`,
			"spec.drivers[1].name: Duplicate value"},
		{"driver without a node ID", `spec: {drivers: [{name: a}]}`, "spec.drivers[0].nodeID: Required value"},
		{"longest node ID", `spec: {drivers: [{name: a, nodeID: ` + strings.Repeat("a", 256) + `}]}`, ""},
		{"node ID that is too long", `spec: {drivers: [{name: a, nodeID: ` + strings.Repeat("a", 257) + `}]}`,
			"spec.drivers[0].nodeID: Invalid value"},
		{"negative count", `spec: {drivers: [{name: a, nodeID: b, allocatable: {count: -1}}]}`,
			"spec.drivers[0].allocatable.count: Invalid value"},
		{"empty key", `spec: {drivers: [{name: a, nodeID: b, topologyKeys: [""]}]}`,
			"spec.drivers[0]: Required value, spec.drivers[0]: Invalid value"},
		{"duplicate key", `spec: {drivers: [{name: a, nodeID: b, topologyKeys: [c, c]}]}`,
			"spec.drivers[0]: Duplicate value"},
		{"bad key", `spec: {drivers: [{name: a, nodeID: b, topologyKeys: ["c d"]}]}`, "spec.drivers[0]: Invalid value"},
	}
	rowtest.Creates(t, row, valid, cases)
	rowtest.Updates(t, row, "", valid, cases)
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"count", `spec: {drivers: [{name: disk.example, nodeID: a, topologyKeys: [zone], allocatable: {count: 6}}]}`, ""},
		{"node", `spec: {drivers: [{name: disk.example, nodeID: b, topologyKeys: [zone], allocatable: {count: 5}}]}`,
			"spec.drivers: Invalid value"},
		{"keys", `spec: {drivers: [{name: disk.example, nodeID: a, topologyKeys: [zone, rack], allocatable: {count: 5}}]}`,
			"spec.drivers: Invalid value"},
	})
}

func TestCSIStorageCapacity(t *testing.T) {
	row := rowtest.Row(t, Rows(), "csistoragecapacities")
	const valid = `{metadata: {name: a}, storageClassName: fast, nodeTopology: {matchLabels: {zone: a}}, capacity: 1Gi}`
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"valid", ``, ""},
		{"class alone", `{nodeTopology: null, capacity: null}`, ""},
		{"bad class", `storageClassName: "A_"`, "storageClassName: Invalid value"},
		{"bad topology", `nodeTopology: {matchLabels: {zone: "a b"}}`, "nodeTopology.matchLabels: Invalid value"},
		{"negative capacity", `capacity: "-1"`, "capacity: Invalid value"},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"capacity", `{capacity: 2Gi, maximumVolumeSize: 1Gi}`, ""},
		{"class and topology", `{storageClassName: slow, nodeTopology: null}`,
			"storageClassName: Invalid value, nodeTopology: Invalid value"},
	})
}

func TestVolumeAttachment(t *testing.T) {
	row := rowtest.Row(t, Rows(), "volumeattachments")
	const valid = `{metadata: {name: a}, spec: {attacher: disk.example, nodeName: node, ` +
		`source: {persistentVolumeName: pv}}}`
	inline := func(fields string) string {
		return `spec: {source: {persistentVolumeName: null, inlineVolumeSpec: {accessModes: [ReadWriteOnce], ` + fields +
			`}}}`
	}
	const csi, at = `csi: {driver: disk.example, volumeHandle: a}, `, "spec.source.inlineVolumeSpec."
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"valid", ``, ""},
		{"no attacher", `spec: {attacher: null}`, "spec.attacher: Required value"},
		{"bad attacher", `spec: {attacher: "a b"}`, "spec.attacher: Invalid value"},
		{"bad node", `spec: {nodeName: null}`, "spec.nodeName: Invalid value"},
		{"no source", `spec: {source: {persistentVolumeName: null}}`, "spec.source: Required value"},
		{"empty source", `spec: {source: {persistentVolumeName: ""}}`,
			"spec.source.persistentVolumeName: Required value, spec.source.persistentVolumeName: Invalid value"},
		{"inline volume", inline(csi), ""},
		{"both sources", `spec: {source: {inlineVolumeSpec: {accessModes: [ReadWriteOnce], ` + csi + `}}}`,
			"spec.source: Forbidden"},
		{"inline volume without a driver", inline(`hostPath: {path: /a}`), at + "csi: Required value"},
		{"inline volume with a claim", inline(csi + `claimRef: {name: c}`), at + "claimRef: Forbidden"},
		{"inline volume with a size", inline(csi + `capacity: {storage: 1Gi}`), at + "capacity: Forbidden"},
		{"inline volume with reclaim policy Delete", inline(csi + `persistentVolumeReclaimPolicy: Delete`),
			at + "persistentVolumeReclaimPolicy: Forbidden"},
		{"inline volume with reclaim policy Retain", inline(csi + `persistentVolumeReclaimPolicy: Retain`), ""},
		{"inline volume with node affinity", inline(csi + `nodeAffinity: {}`), at + "nodeAffinity: Forbidden"},
		{"inline volume with a class", inline(csi + `storageClassName: fast`), at + "storageClassName: Forbidden"},
		{"inline block volume", inline(csi + `volumeMode: Block`), at + "volumeMode: Forbidden"},
		{"inline volume without access modes", inline(csi + `accessModes: []`), at + "accessModes: Required value"},
		{"status is cleared", `status: {attachError: {message: ` + strings.Repeat("a", 1025) + `}}`, ""},
	})
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"labels", `metadata: {labels: {a: b}}`, ""},
		{"spec", `spec: {nodeName: other}`, "spec: Invalid value"},
	})
	rowtest.Updates(t, row, "status", valid, []rowtest.Case{
		{"attached", `status: {attached: true, attachmentMetadata: {a: b}}`, ""},
		{"large metadata", `status: {attachmentMetadata: {a: ` + strings.Repeat("a", maxAttachmentMetadata) + `}}`,
			"status.attachmentMetadata: Too long"},
		{"errors", `status: {attachError: {message: ` + strings.Repeat("a", 1024) + `}, detachError: {errorCode: 5}}`, ""},
		{"bad errors", `status: {attachError: {message: ` + strings.Repeat("a", 1025) + `}, detachError: {errorCode: -5}}`,
			"status.attachError.message: Too long, status.detachError.errorCode: Invalid value"},
	})
}

// TestDefaultClass checks which class of a list is marked as the default.
func TestDefaultClass(t *testing.T) {
	row := rowtest.Row(t, Rows(), "storageclasses")
	class := func(name, second, annotations string) resource.Object {
		return rowtest.Decode(t, row, name, `{"provisioner":"p","metadata":{"creationTimestamp":"2026-01-01T00:00:`+
			second+`Z","annotations":{`+annotations+`}}}`)
	}
	const (
		isDefault = `"storageclass.kubernetes.io/is-default-class":"true"`
		beta      = `"storageclass.beta.kubernetes.io/is-default-class":"true"`
	)
	for name, tc := range map[string]struct {
		list []resource.Object
		want []string
	}{
		"none": {[]resource.Object{class("a", "01", "")}, []string{"a"}},
		"one":  {[]resource.Object{class("a", "01", isDefault), class("b", "02", "")}, []string{"a (default)", "b"}},
		"newest": {[]resource.Object{class("a", "01", isDefault), class("b", "03", beta), class("c", "02", isDefault)},
			[]string{"a", "b (default)", "c"}},
		"same second": {[]resource.Object{class("b", "01", isDefault), class("a", "01", isDefault)},
			[]string{"b", "a (default)"}},
	} {
		t.Run(name, func(t *testing.T) {
			cells := row.ListCells(tc.list)
			var got []string
			for _, c := range tc.list {
				got = append(got, cells(c, resource.CellEnv{Age: func(metav1.Time) string { return "5m" }})[0].(string))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestCells(t *testing.T) {
	env := resource.CellEnv{Age: func(metav1.Time) string { return "5m" }}
	for _, tc := range []struct {
		resource, object string
		want             []any
	}{
		{"storageclasses", `{"provisioner":"p"}`, []any{"a", "p", "Delete", "Immediate", false, "5m"}},
		{"storageclasses",
			`{"provisioner":"p","metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"allowVolumeExpansion":true}`,
			[]any{"a", "p", "Delete", "Immediate", true, "5m"}},
		{"csidrivers", `{}`, []any{"a", true, false, false, "<unset>", false, "Persistent", "5m"}},
		{"csidrivers", `{"spec":{"attachRequired":false,"tokenRequests":[{"audience":"x"},{"audience":"y"}],` +
			`"volumeLifecycleModes":["Persistent","Ephemeral"]}}`,
			[]any{"a", false, false, false, "x,y", false, "Persistent,Ephemeral", "5m"}},
		{"csinodes", `{"spec":{"drivers":[{"name":"d"}]}}`, []any{"a", int64(1), "5m"}},
		{"volumeattributesclasses", `{"driverName":"d"}`, []any{"a", "d", "5m"}},
		{"volumeattachments", `{"spec":{"attacher":"d","nodeName":"node",` +
			`"source":{"persistentVolumeName":"pv"}},"status":{"attached":true}}`,
			[]any{"a", "d", "pv", "node", true, "5m"}},
	} {
		row := rowtest.Row(t, Rows(), tc.resource)
		if got := row.Cells(rowtest.Decode(t, row, "a", tc.object), env); !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: cells %q, want %q", tc.resource, tc.object, got, tc.want)
		}
	}
}
