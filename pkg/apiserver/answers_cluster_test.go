// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import "strings"

// clusterAnswers returns the cases of TestAnswers about nodes, volumes and classes.
func clusterAnswers() []answer {
	return []answer{
		{"node with an invalid pod CIDR", "", "POST", "/api/v1/nodes",
			`{"metadata":{"name":"m"},"spec":{"podCIDRs":["10.0.0.0/24","x"]}}`, 422,
			`{"reason":"InternalError","message":"Internal error: invalid PodCIDRs. failed to check with ` +
				`dual stack with error:invalid CIDR[1]: \u003cnil\u003e (invalid CIDR address: x)",` +
				`"field":"spec.podCIDRs"},{"reason":"FieldValueInvalid","message":"Invalid value: ` +
				`[\"10.0.0.0/24\",\"x\"]: may specify no more than one CIDR for each IP family","field":"spec.podCIDRs"}`,
			""},
		{"node without allocatable resources", "", "POST", "/api/v1/nodes",
			`{"metadata":{"name":"{ns}"},"status":{"capacity":{"cpu":"1"},"allocatable":{}}}`, 201,
			`"allocatable":{"cpu":"1"}`, ""},
		{"node with invalid deprecated annotations", "", "POST", "/api/v1/nodes",
			`{"metadata":{"name":"old","annotations":{"scheduler.alpha.kubernetes.io/taints":"x","scheduler.alpha.kubernetes.io/preferAvoidPods":"[]"}}}`,
			422,
			`[metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/taints\": invalid ` +
				`character 'x' looking for beginning of value, metadata.annotations.AvoidPods: Invalid ` +
				`value: \"scheduler.alpha.kubernetes.io/preferAvoidPods\": json: cannot unmarshal array ` +
				`into Go value of type v1.AvoidPods]`,
			""},
		{"order of a node's errors", "node", "PATCH", "/api/v1/nodes/{ns}",
			`{"metadata":{"uid":"x"},"spec":{"taints":[{"key":"a","effect":"y"}]}}`, 422,
			`"field":"metadata.uid"},{"reason":"FieldValueNotSupported","message":"Unsupported value: ` +
				`\"y\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",` +
				`"field":"metadata.taints[0].effect"}]`,
			""},
		{"claim with negative size", "claim", "PATCH", coreAPI + "persistentvolumeclaims/c/status",
			`{"status":{"allocatedResources":{"storage":"-1"}}}`, 422,
			`status.allocatedResources[storage]: Invalid value: -1: must be a valid resource quantity`, ""},
		{"claim with an unknown resize status", "claim", "PATCH", coreAPI + "persistentvolumeclaims/c/status",
			`{"status":{"allocatedResourceStatuses":{"storage":"x"}}}`, 422,
			`status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: \"ControllerResizeInProgress\"`,
			""},
		{"claim with an unknown resource", "claim", "PATCH", coreAPI + "persistentvolumeclaims/c/status",
			`{"status":{"allocatedResources":{"cpu":"1"}}}`, 422,
			`status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\"`, ""},
		{"claim with an invalid selector and access mode", "", "POST", coreAPI + "persistentvolumeclaims",
			`{"metadata":{"name":"d"},"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"x"}]},"accessModes":["y"],"resources":{"requests":{"storage":"1Gi"}}}}`,
			422,
			`[spec.selector.matchExpressions[0].operator: Invalid value: \"x\": not a valid selector ` +
				`operator, spec.accessModes: Unsupported value: \"y\"`,
			""},
		{"claim with another uid, dry run", "claim", "PUT", coreAPI + "persistentvolumeclaims/c?dryRun=All",
			`{"metadata":{"name":"c","uid":"x"}}`, 409,
			`Code: 4, Key: /persistentvolumeclaims/{ns}/c, ResourceVersion: 0`, ""},
		{"volume with unsupported mount options", "", "POST", "/api/v1/persistentvolumes",
			`{"metadata":{"name":"old","annotations":{"volume.beta.kubernetes.io/mount-options":"x"}},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1"},"hostPath":{"path":"/x"}}}`,
			422,
			`metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount ` +
				`options for this volume type`,
			""},
		{"order of a volume's errors", "volume", "PATCH", "/api/v1/persistentvolumes/{ns}",
			`{"metadata":{"finalizers":["x"]},"spec":{"persistentVolumeReclaimPolicy":"x"}}`, 422,
			`fully qualified, spec.persistentVolumeReclaimPolicy: Unsupported value`,
			""},
		{"driver with a changed attachRequired", "driver", "PATCH", "/apis/storage.k8s.io/v1/csidrivers/{ns}.d.x",
			`{"spec":{"attachRequired":false}}`, 422, `spec.attachRequired: Invalid value: false: field is immutable`,
			""},
		{"attachment with two volume types", "", "POST", "/apis/storage.k8s.io/v1/volumeattachments",
			`{"metadata":{"name":"a"},"spec":{"attacher":"a","nodeName":"n","source":{"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"nfs":{"path":"/x"},"csi":{"driver":"d","volumeHandle":"h","nodeExpandSecretRef":{"name":"x"}}}}}}`,
			422,
			`is invalid: [spec.source.inlineVolumeSpec.nfs.server: Required value, ` +
				`spec.source.inlineVolumeSpec.csi: Forbidden: may not specify more than 1 volume type]`,
			""},
		{"attachment with an incomplete inline volume", "", "POST", "/apis/storage.k8s.io/v1/volumeattachments",
			`{"metadata":{"name":"v"},"spec":{"attacher":"a.b","nodeName":"n","source":{"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1"}}}}}`,
			422,
			`[spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of ` +
				`inline volumes, spec.source.inlineVolumeSpec.csi: Required value: has to be specified`,
			""},
		{"attachment with a long error", "attachment", "PATCH",
			"/apis/storage.k8s.io/v1/volumeattachments/{ns}/status",
			`{"status":{"attachError":{"message":"` + strings.Repeat("x", 1025) + `"}}}`, 422,
			`status.attachError.message: Too long: may not be more than 1024 bytes`, ""},
		{"generation of a new device class", "", "POST", "/apis/resource.k8s.io/v1/deviceclasses",
			`{"metadata":{"name":"{ns}"},"spec":{"config":[{"opaque":{"driver":"d","parameters":{"b": 1,"a": 2}}}]}}`,
			201, `"generation":1`, ""},
		{"generation after the first write of parameters", "class", "PATCH",
			"/apis/resource.k8s.io/v1/deviceclasses/{ns}", `{"metadata":{"labels":{"a":"b"}}}`, 200, `"generation":2`,
			""},
		{"generation after another write of parameters", "class classPatched", "PATCH",
			"/apis/resource.k8s.io/v1/deviceclasses/{ns}", `{"metadata":{"labels":{"a":"c"}}}`, 200, `"generation":2`,
			""},
		{"generation after an apply of parameters", "class classPatched classPatchedAgain", "PATCH",
			"/apis/resource.k8s.io/v1/deviceclasses/{ns}?fieldManager=f",
			`{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","metadata":{"name":"{ns}","labels":{"b":"c"}}}`,
			200, `"generation":3`, ""},
		{"runtime class without a handler and with another uid", "runtimeClass", "PATCH",
			"/apis/node.k8s.io/v1/runtimeclasses/{ns}", `{"metadata":{"uid":"x"},"handler":null}`, 422,
			`"field":"metadata.uid"},{"reason":"FieldValueRequired","message":"Required value","field":"handler"}`,
			""},
		{"runtime class without a handler", "runtimeClass", "PATCH", "/apis/node.k8s.io/v1/runtimeclasses/{ns}",
			`{"handler":null}`, 422, `[handler: Required value, handler: Invalid value: \"\": field is immutable]`,
			""},
	}
}
