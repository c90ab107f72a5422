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

func TestPersistentVolumeRules(t *testing.T) {
	row := rowOf(t, "persistentvolumes")
	const stored = `{metadata: {name: pv}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, ` +
		`hostPath: {path: /data}}}`
	source := func(text string) string { return `spec: {hostPath: null, ` + text + `}` }
	zone := `nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, ` +
		`values: [a]}]}]}}`
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"no modes", `spec: {accessModes: []}`, "spec.accessModes: Required value"},
		{"unknown mode", `spec: {accessModes: [Some]}`, "spec.accessModes: Unsupported value"},
		{"ReadWriteOncePod with another mode", `spec: {accessModes: [ReadWriteOncePod, ReadOnlyMany]}`,
			"spec.accessModes: Forbidden"},
		{"no size", `spec: {capacity: null}`, "spec.capacity: Required value, spec.capacity: Unsupported value"},
		{"zero size", `spec: {capacity: {storage: 0}}`, "spec.capacity[storage]: Invalid value"},
		{"size without storage", `spec: {capacity: {storage: null, cpu: 1}}`, "spec.capacity: Unsupported value"},
		{"policy", `spec: {persistentVolumeReclaimPolicy: Delete}`, ""},
		{"unknown policy", `spec: {persistentVolumeReclaimPolicy: Keep}`,
			"spec.persistentVolumeReclaimPolicy: Unsupported value"},
		{"class", `spec: {storageClassName: fast}`, ""},
		{"bad class", `spec: {storageClassName: A_}`, "spec.storageClassName: Invalid value"},
		{"unknown volume mode", `spec: {volumeMode: Tape}`, "spec.volumeMode: Unsupported value"},
	}
	rowtest.Creates(t, row, stored, cases)
	rowtest.Creates(t, row, stored, []rowtest.Case{
		{"no source", source(``), "spec: Required value"},
		{"two sources", `spec: {nfs: {server: a, path: /b}}`, "spec.nfs: Forbidden"},
		{"recycling the root of the host", `spec: {hostPath: {path: /}, persistentVolumeReclaimPolicy: Recycle}`,
			"spec.persistentVolumeReclaimPolicy: Forbidden"},
		{"path of the host with two dots", `spec: {hostPath: {path: /a/../b}}`, "spec.hostPath.path: Invalid value"},
		{"local", source(`local: {path: /a}, ` + zone), ""},
		{"local without a node", source(`local: {path: /a}`), "spec.nodeAffinity: Required value"},
		{"affinity without terms", source(`local: {path: /a}, nodeAffinity: {required: {nodeSelectorTerms: []}}`),
			"spec.nodeAffinity.required.nodeSelectorTerms: Required value"},
		{"empty node affinity", `spec: {nodeAffinity: {}}`, "spec.nodeAffinity.required: Required value"},
		{"driver", source(`csi: {driver: disk.example, volumeHandle: a}`), ""},
		{"driver without a name or volume", source(`csi: {}`),
			"spec.csi.driver: Required value, spec.csi.volumeHandle: Required value"},
		{"driver's secrets", source(`csi: {driver: d, volumeHandle: a, controllerExpandSecretRef: {name: s}, ` +
			`nodePublishSecretRef: {namespace: ns}}`),
			"spec.csi.controllerExpandSecretRef.namespace: Required value, " +
				"spec.csi.nodePublishSecretRef.name: Required value"},
		{"attributes class of a driver",
			source(`csi: {driver: disk.example, volumeHandle: a}, volumeAttributesClassName: fast`), ""},
		{"attributes class without a driver", `spec: {volumeAttributesClassName: fast}`, "spec.csi: Required value"},
		{"empty attributes class", source(`csi: {driver: disk.example, volumeHandle: a}, volumeAttributesClassName: ""`),
			"spec.volumeAttributesClassName: Required value"},
		{"NFS", source(`nfs: {server: a, path: /b}`), ""},
		{"NFS of a relative path", source(`nfs: {server: a, path: b}`), "spec.nfs.path: Invalid value"},
		{"iSCSI", source(`iscsi: {targetPortal: 10.0.0.1, iqn: "iqn.2026-01.example:a"}`), ""},
		{"iSCSI without a portal", source(`iscsi: {iqn: "iqn.2026-01.example:a"}`),
			"spec.iscsi.targetPortal: Required value"},
		{"RBD without required fields", source(`rbd: {}`),
			"spec.rbd.monitors: Required value, spec.rbd.image: Required value"},
		{"fibre channel without parts", source(`fc: {}`), "spec.fc.targetWWNs: Required value"},
		{"Glusterfs without parts", source(`glusterfs: {}`),
			"spec.glusterfs.endpoints: Required value, spec.glusterfs.path: Required value"},
		{"CephFS without monitors", source(`cephfs: {}`), "spec.cephfs.monitors: Required value"},
		{"Azure file without parts", source(`azureFile: {}`),
			"spec.azureFile.secretName: Required value, spec.azureFile.shareName: Required value"},
		{"flexible driver without a name", source(`flexVolume: {}`), "spec.flexVolume.driver: Required value"},
		{"cinder without a volume", source(`cinder: {}`), "spec.cinder.volumeID: Required value"},
		{"disk of a cloud", source(`gcePersistentDisk: {pdName: a, partition: 256}`),
			"spec.persistentDisk.partition: Invalid value"},
		{"mount options in an annotation", `metadata: {annotations: {volume.beta.kubernetes.io/mount-options: ro}}`,
			"metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden"},
		{"mount options of NFS in an annotation",
			`{metadata: {annotations: {volume.beta.kubernetes.io/mount-options: ro}}, spec: {hostPath: null, ` +
				`nfs: {server: a, path: /b}}}`,
			""},
	})
	rowtest.Updates(t, row, "", stored, []rowtest.Case{
		{"mutable fields",
			`spec: {capacity: {storage: 2Gi}, persistentVolumeReclaimPolicy: Delete, ` + zone +
				`, claimRef: {name: c, namespace: ns}}`,
			""},
		{"source", `spec: {hostPath: {path: /other}}`, "spec.persistentvolumesource: Forbidden"},
		{"mode", `spec: {volumeMode: Block}`, "volumeMode: Invalid value"},
		{"no size", `spec: {capacity: null}`, "spec.capacity: Required value, spec.capacity: Unsupported value"},
	})
	rowtest.Updates(t, row, "", `{metadata: {name: pv}, spec: {accessModes: [ReadWriteOnce], `+
		`capacity: {storage: 1Gi}, local: {path: /data}, `+zone+`}}`, []rowtest.Case{
		{"other zone",
			`spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, ` +
				`values: [b]}]}]}}}`,
			"nodeAffinity: Invalid value"},
	})
}

func TestPersistentVolumeClaimRules(t *testing.T) {
	row := rowOf(t, "persistentvolumeclaims")
	const stored = `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOnce], ` +
		`resources: {requests: {storage: 1Gi}}}}`
	rowtest.Creates(t, row, stored, []rowtest.Case{
		{"valid", ``, ""},
		{"no modes", `spec: {accessModes: null}`, "spec.accessModes: Required value"},
		{"unknown mode", `spec: {accessModes: [Some]}`, "spec.accessModes: Unsupported value"},
		{"no size", `spec: {resources: null}`, "spec.resources[storage]: Required value"},
		{"negative size", `spec: {resources: {requests: {storage: -1}}}`, "spec.resources[storage]: Invalid value"},
		{"selector", `spec: {selector: {matchLabels: {a: b}}}`, ""},
		{"bad selector", `spec: {selector: {matchLabels: {a: "b c"}}}`, "spec.selector.matchLabels: Invalid value"},
		{"no class", `spec: {storageClassName: ""}`, ""},
		{"bad class", `spec: {storageClassName: A_}`, "spec.storageClassName: Invalid value"},
		{"unknown volume mode", `spec: {volumeMode: Tape}`, "spec.volumeMode: Unsupported value"},
		{"source", `spec: {dataSource: {kind: PersistentVolumeClaim, name: other}}`, ""},
		{"source without a name", `spec: {dataSource: {kind: PersistentVolumeClaim, name: ""}}`,
			"spec.dataSource.name: Required value, spec.dataSourceRef.name: Required value"},
	})
	rowtest.Updates(t, row, "", stored, []rowtest.Case{
		{"labels", `metadata: {labels: {a: b}}`, ""},
		{"volume", `spec: {volumeName: pv}`, ""},
		{"modes", `spec: {accessModes: [ReadOnlyMany]}`, "spec: Forbidden"},
		{"larger, but not bound", `spec: {resources: {requests: {storage: 2Gi}}}`, "spec: Forbidden"},
	})
	const bound = `{metadata: {name: c, namespace: ns}, spec: {volumeName: pv, storageClassName: fast, ` +
		`accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}, status: {phase: Bound, ` +
		`capacity: {storage: 1Gi}}}`
	rowtest.Updates(t, row, "", bound, []rowtest.Case{
		{"larger", `spec: {resources: {requests: {storage: 3Gi}}}`, ""},
		{"smaller request above the capacity", `spec: {resources: {requests: {storage: 1500Mi}}}`, ""},
		{"request below the capacity", `spec: {resources: {requests: {storage: 1Mi}}}`,
			"spec.resources.requests.storage: Forbidden"},
		{"other volume", `spec: {volumeName: other}`, "spec: Forbidden"},
		{"other class", `spec: {storageClassName: other}`, "spec: Forbidden"},
		{"mode", `spec: {volumeMode: Block}`, "spec: Forbidden, volumeMode: Invalid value"},
	})
	rowtest.Updates(t, row, "status", bound, []rowtest.Case{
		{"size", `status: {capacity: {storage: 2Gi}}`, ""},
		{"no modes", `status: {phase: Lost}`, ""},
	})
}

func TestVolumeCells(t *testing.T) {
	env := resource.CellEnv{Age: func(metav1.Time) string { return "5m" }}
	for _, tc := range []struct {
		resource, object string
		want             []any
	}{
		{"persistentvolumes", `{"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce",` +
			`"ReadOnlyMany"],"claimRef":{"namespace":"ns","name":"c"}},"status":{"phase":"Bound"}}`,
			[]any{"x", "1Gi", "RWO,ROX", "Retain", "Bound", "ns/c", "", "<unset>", "", "5m", "Filesystem"}},
		{"persistentvolumeclaims", `{"spec":{"volumeName":"pv","storageClassName":"fast"},` +
			`"status":{"phase":"Bound","capacity":{"storage":"1Gi"},"accessModes":["ReadWriteMany"]}}`,
			[]any{"x", "Bound", "pv", "1Gi", "RWX", "fast", "<unset>", "5m", "Filesystem"}},
		{"persistentvolumeclaims", `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Pending"}}`,
			[]any{"x", "Terminating", "", "", "", "", "<unset>", "5m", "Filesystem"}},
	} {
		row := rowOf(t, tc.resource)
		if got := row.Cells(rowtest.Decode(t, row, "x", tc.object), env); !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: cells %q, want %q", tc.resource, tc.object, got, tc.want)
		}
	}
}
