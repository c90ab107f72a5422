// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/api/podspec"
)

// validate returns the errors in a pod specification in YAML, each as "field: reason".
func validate(t *testing.T, text string) sets.Set[string] {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	podspec.DefaultSpec(&pod.Spec)
	podspec.DefaultPod(pod)
	for _, gated := range podspec.Gated[*corev1.Pod]() {
		if gated.Feature != "GenericWorkload" { // its rules are tested too
			gated.Visit(pod, true)
		}
	}
	found := sets.New[string]()
	for _, err := range podspec.ValidateSpec(t.Context(), &pod.Spec, &metav1.ObjectMeta{}, nil) {
		found.Insert(err.Field + ": " + err.Type.String())
	}
	return found
}

type rule struct{ name, spec, want string }

// check validates each specification and compares the errors. want has the expected errors,
// separated by a comma and a space.
func check(t *testing.T, rules []rule) {
	t.Helper()
	for _, tc := range rules {
		t.Run(tc.name, func(t *testing.T) {
			got, want := validate(t, tc.spec), sets.New[string]()
			if tc.want != "" {
				want.Insert(strings.Split(tc.want, ", ")...)
			}
			if !got.Equal(want) {
				t.Errorf("findings:\n\t%s\nwant:\n\t%s", strings.Join(sets.List(got), "\n\t"),
					strings.Join(sets.List(want), "\n\t"))
			}
		})
	}
}

// container returns a specification in YAML with one container. The container has the given fields
// in addition to the required ones.
func container(fields string) string { return `{containers: [{name: c, image: i, ` + fields + `}]}` }

// pod returns a specification in YAML that has the given fields in addition to the required ones.
func pod(fields string) string { return `{containers: [{name: c, image: i}], ` + fields + `}` }

func TestEnvironmentRules(t *testing.T) {
	from := func(source string) string { return container(`env: [{name: A, valueFrom: {` + source + `}}]`) }
	const at = "containers[0].env[0].valueFrom"
	check(t, []rule{
		{"field", from(`fieldRef: {fieldPath: metadata.name}`), ""},
		{"label", from(`fieldRef: {fieldPath: "metadata.labels['a']"}`), ""},
		{"invalid label name", from(`fieldRef: {fieldPath: "metadata.labels['a b']"}`), at + ".fieldRef: Invalid value"},
		{"unsupported field in the downward API", from(`fieldRef: {fieldPath: spec.restartPolicy}`),
			at + ".fieldRef.fieldPath: Unsupported value"},
		{"unknown field", from(`fieldRef: {fieldPath: a}`), at + ".fieldRef.fieldPath: Invalid value"},
		{"resource", from(`resourceFieldRef: {resource: limits.cpu, divisor: 1m}`), ""},
		{"unknown resource", from(`resourceFieldRef: {resource: limits.gpu}`),
			at + ".resourceFieldRef.resource: Unsupported value"},
		{"no resource", from(`resourceFieldRef: {}`), at + ".resourceFieldRef.resource: Required value"},
		{"invalid divisor of CPU", from(`resourceFieldRef: {resource: limits.cpu, divisor: 2m}`),
			at + ".resourceFieldRef.divisor: Invalid value"},
		{"divisor of memory", from(`resourceFieldRef: {resource: limits.memory, divisor: 1Mi}`), ""},
		{"bad divisor of memory", from(`resourceFieldRef: {resource: limits.memory, divisor: 3}`),
			at + ".resourceFieldRef.divisor: Invalid value"},
		{"key of a config map", from(`configMapKeyRef: {name: m, key: a}`), ""},
		{"config map without a key", from(`configMapKeyRef: {name: m}`), at + ".configMapKeyRef.key: Required value"},
		{"key of a secret", from(`secretKeyRef: {name: s, key: "a b"}`), at + ".secretKeyRef.key: Invalid value"},
		{"two sources", from(`secretKeyRef: {name: s, key: a}, configMapKeyRef: {name: m, key: a}`), at +
			": Invalid value"},
		{"no source", from(``), at + ": Invalid value"},
		{"source and value", container(`env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`),
			at + ": Invalid value"},
		{"environment from a config map", container(`envFrom: [{prefix: a_, configMapRef: {name: m}}]`), ""},
		{"environment from no source", container(`envFrom: [{}]`), "containers[0].envFrom: Invalid value"},
		{"environment from two sources", container(`envFrom: [{configMapRef: {name: m}, secretRef: {name: s}}]`),
			"containers[0].envFrom: Invalid value"},
		{"bad prefix", container(`envFrom: [{prefix: "=", secretRef: {name: s}}]`),
			"containers[0].envFrom[0].prefix: Invalid value"},
		{"bad name of a config map", container(`envFrom: [{configMapRef: {name: "a b"}}]`),
			"containers[0].envFrom[0].configMapRef.name: Invalid value"},
	})
}

func TestVolumeRules(t *testing.T) {
	volume := func(source string) string { return pod(`volumes: [{name: v, ` + source + `}]`) }
	projected := func(source string) string { return volume(`projected: {sources: [{` + source + `}]}`) }
	const first = "volumes[0].projected.sources[0]"
	check(t, []rule{
		{"projected token", projected(`serviceAccountToken: {path: t}`), ""},
		{"bundle by name", projected(`clusterTrustBundle: {name: b, path: p}`), ""},
		{"bundle of a signer by name", projected(`clusterTrustBundle: {name: "example.com:s:b", path: p}`), ""},
		{"bundles of a signer", projected(`clusterTrustBundle: {signerName: example.com/s, path: p, labelSelector: {}}`), ""},
		{"bundle by name and signer", projected(`clusterTrustBundle: {name: b, signerName: example.com/s, path: p}`),
			first + ".clusterTrustBundle: Invalid value"},
		{"bundle without a name", projected(`clusterTrustBundle: {path: p}`), first + ".clusterTrustBundle: Required value"},
		{"bundle with an empty name", projected(`clusterTrustBundle: {name: "", path: p}`),
			first + ".clusterTrustBundle.name: Required value, " + first + ".clusterTrustBundle.name: Invalid value"},
		{"bundle by name with a selector", projected(`clusterTrustBundle: {name: b, path: p, labelSelector: {}}`),
			first + ".clusterTrustBundle.labelSelector: Invalid value"},
		{"bundle of an invalid signer", projected(`clusterTrustBundle: {signerName: s, path: p}`),
			first + ".clusterTrustBundle.signerName: Invalid value"},
		{"bundle without a path", projected(`clusterTrustBundle: {name: b, path: ""}`),
			first + ".clusterTrustBundle.path: Required value"},
		{"certificate", projected(`podCertificate: {signerName: example.com/s, keyType: ED25519, keyPath: k, ` +
			`certificateChainPath: c, maxExpirationSeconds: 7862400, userAnnotations: {example.com/a: b}}`), ""},
		{"certificate without a signer", projected(`podCertificate: {signerName: "", keyType: ED25519, keyPath: k}`),
			first + ".podCertificate.signerName: Required value"},
		{"certificate of an unknown key type",
			projected(`podCertificate: {signerName: example.com/s, keyType: X, keyPath: k}`),
			first + ".podCertificate.keyType: Unsupported value"},
		{"certificate without a file", projected(`podCertificate: {signerName: example.com/s, keyType: RSA3072}`),
			first + ".podCertificate: Required value"},
		{"certificate with one file for two purposes",
			projected(`podCertificate: {signerName: example.com/s, keyType: RSA4096, keyPath: k, certificateChainPath: k}`),
			"volumes[0].projected: Invalid value"},
		{"certificate in another directory",
			projected(`podCertificate: {signerName: example.com/s, keyType: RSA4096, credentialBundlePath: ../k}`),
			first + ".podCertificate.credentialBundlePath: Invalid value"},
		{"certificate that expires too early", projected(`podCertificate: {signerName: example.com/s, ` +
			`keyType: ECDSAP256, keyPath: k, maxExpirationSeconds: 3599}`),
			first + ".podCertificate.maxExpirationSeconds: Invalid value"},
		{"certificate that expires too late", projected(`podCertificate: {signerName: example.com/s, ` +
			`keyType: ECDSAP384, keyPath: k, maxExpirationSeconds: 7862401}`),
			first + ".podCertificate.maxExpirationSeconds: Invalid value"},
		{"certificate of Kubernetes that expires too late", projected(`podCertificate: {signerName: kubernetes.io/s, ` +
			`keyType: ECDSAP521, keyPath: k, maxExpirationSeconds: 86401}`),
			first + ".podCertificate.maxExpirationSeconds: Invalid value"},
		{"certificate with an annotation without a domain", projected(`podCertificate: {signerName: example.com/s, ` +
			`keyType: ED25519, keyPath: k, userAnnotations: {a: b}}`),
			first + ".podCertificate.userAnnotations: Invalid value"},
		{"projected token without a path", projected(`serviceAccountToken: {path: ""}`),
			"volumes[0].projected.path: Required value"},
		{"projected token that expires too early", projected(`serviceAccountToken: {path: t, expirationSeconds: 60}`),
			first + ".serviceAccountToken.expirationSeconds: Invalid value"},
		{"projected token that expires too late", projected(`serviceAccountToken: {path: t, ` +
			`expirationSeconds: 4294967297}`),
			first + ".serviceAccountToken.expirationSeconds: Invalid value"},
		{"projected config map", projected(`configMap: {name: m, items: [{key: a, path: b}]}`), ""},
		{"projected config map without a name", projected(`configMap: {}`), first + ".configMap.name: Required value"},
		{"projected secret with a bad path", projected(`secret: {name: s, items: [{key: a, path: ../b}]}`),
			first + ".secret.items[0].path: Invalid value"},
		{"projected field", projected(`downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.labels}}]}`), ""},
		{"projected field and resource", projected(`downwardAPI: {items: [{path: a, ` +
			`fieldRef: {fieldPath: metadata.labels}, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}`),
			first + ".downwardAPI: Invalid value"},
		{"two sources at once", projected(`secret: {name: s}, configMap: {name: m}`), first + ": Forbidden"},
		{"no sources", volume(`projected: {sources: []}`), ""},
		{"duplicate projected path", volume(`projected: {sources: [{secret: {name: s, items: [{key: a, path: p}]}}, ` +
			`{secret: {name: r, items: [{key: b, path: p}]}}]}`),
			"volumes[0].projected: Invalid value"},
		{"driver", volume(`csi: {driver: disk.example}`), ""},
		{"driver without a name", volume(`csi: {driver: ""}`), "volumes[0].csi.driver: Required value"},
		{"driver's secret", volume(`csi: {driver: d, nodePublishSecretRef: {name: ""}}`),
			"volumes[0].csi.nodePublishSecretRef.name: Required value"},
		{"ephemeral volume",
			volume(`ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], ` +
				`resources: {requests: {storage: 1Gi}}}}}`),
			""},
		{"ephemeral volume without a claim", volume(`ephemeral: {}`),
			"volumes[0].ephemeral.volumeClaimTemplate: Required value"},
		{"NFS of a relative path", volume(`nfs: {server: s, path: a}`), "volumes[0].nfs.path: Invalid value"},
		{"RBD without required fields", volume(`rbd: {monitors: [], image: ""}`),
			"volumes[0].rbd.monitors: Required value, volumes[0].rbd.image: Required value"},
		{"fibre channel", volume(`fc: {targetWWNs: [a], lun: 1}`), ""},
		{"fibre channel with names and IDs", volume(`fc: {targetWWNs: [a], wwids: [b], lun: 1}`),
			"volumes[0].fc.targetWWNs: Invalid value"},
		{"disk of AWS", volume(`awsElasticBlockStore: {volumeID: a, partition: 256}`),
			"volumes[0].awsElasticBlockStore.partition: Invalid value"},
		{"dataset with name and UUID", volume(`flocker: {datasetName: a, datasetUUID: b}`),
			"volumes[0].flocker: Invalid value"},
		{"Quobyte without a registry", volume(`quobyte: {registry: "", volume: v}`),
			"volumes[0].quobyte.registry: Required value"},
		{"Azure disk", volume(`azureDisk: {diskName: a, diskURI: "https://a.blob.core.windows.net/vhds/a.vhd"}`), ""},
		{"Azure disk without a URI", volume(`azureDisk: {diskName: a, diskURI: ""}`),
			"volumes[0].azureDisk.diskURI: Required value, volumes[0].azureDisk.diskURI: Unsupported value"},
		{"image", volume(`image: {reference: i}`), ""},
		{"image without a reference", volume(`image: {}`), "volumes[0].image.reference: Required value"},
		{"block device",
			`{containers: [{name: c, image: i, volumeDevices: [{name: v, devicePath: /dev/a}]}], volumes: [{name: v, ` +
				`persistentVolumeClaim: {claimName: p}}]}`,
			""},
		{"block device of an emptyDir volume", `{containers: [{name: c, image: i, volumeDevices: [{name: v, ` +
			`devicePath: /dev/a}]}], ` +
			`volumes: [{name: v, emptyDir: {}}]}`,
			"containers[0].volumeDevices[0].name: Invalid value"},
		{"block device with two dots in its path", `{containers: [{name: c, image: i, volumeDevices: [{name: v, ` +
			`devicePath: /dev/../a}]}], volumes: [{name: v, persistentVolumeClaim: {claimName: p}}]}`,
			"containers[0].volumeDevices[0].devicePath: Invalid value"},
	})
}

func TestPlacementRules(t *testing.T) {
	const term = `{topologyKey: zone, labelSelector: {matchLabels: {a: b}}`
	terms := func(term string) string {
		return pod(`affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [` + term + `]}}`)
	}
	const at = "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
	check(t, []rule{
		{"pods", terms(term + `}`), ""},
		{"pods without a topology", terms(`{labelSelector: {}}`),
			at + ".topologyKey: Required value, " + at + ".topologyKey: Invalid value"},
		{"pods with an invalid topology key", terms(`{topologyKey: "a b"}`), at + ".topologyKey: Invalid value"},
		{"pods with invalid labels", terms(`{topologyKey: zone, labelSelector: {matchLabels: {a: "b c"}}}`),
			at + ".labelSelector.matchLabels: Invalid value"},
		{"pods with an invalid namespace", terms(`{topologyKey: zone, namespaces: ["A_"]}`),
			at + ".namespace: Invalid value"},
		{"label keys", terms(term + `, matchLabelKeys: [c]}`), ""},
		{"label keys without a selector", terms(`{topologyKey: zone, matchLabelKeys: [c]}`),
			at + ".matchLabelKeys: Forbidden"},
		{"label key in both lists", terms(term + `, matchLabelKeys: [c], mismatchLabelKeys: [c]}`),
			at + ".matchLabelKeys[0]: Invalid value"},
		{"weight", pod(`affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, ` +
			`podAffinityTerm: {topologyKey: zone}}]}}`),
			"affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value"},
		{"node field",
			pod(`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ` +
				`{nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}`),
			""},
		{"unknown node field", pod(`affinity: {nodeAffinity: ` +
			`{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: a, ` +
			`operator: In, values: [n1]}]}]}}}`),
			"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution." +
				"nodeSelectorTerms[0].matchFields[0].key: Invalid value"},
		{"toleration with an invalid operator", pod(`tolerations: [{key: a, operator: Of}]`),
			"tolerations[0].operator: Unsupported value"},
		{"toleration Exists with a value", pod(`tolerations: [{key: a, operator: Exists, value: b}]`),
			"tolerations[0].operator: Invalid value"},
		{"toleration seconds with another effect",
			pod(`tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}]`),
			"tolerations[0].effect: Invalid value"},
		{"scheduling group", pod(`schedulingGroup: {podGroupName: a.b}`), ""},
		{"scheduling group without a name", pod(`schedulingGroup: {}`), "schedulingGroup.podGroupName: Invalid value"},
		{"scheduling group with an invalid name", pod(`schedulingGroup: {podGroupName: A}`),
			"schedulingGroup.podGroupName: Invalid value"},
	})
}

func TestContainerRules(t *testing.T) {
	check(t, []rule{
		{"probe with two actions", container(`livenessProbe: {httpGet: {port: 80}, exec: {command: [a]}}`),
			"containers[0].livenessProbe.httpGet: Forbidden"},
		{"probe with no action", container(`livenessProbe: {}`), "containers[0].livenessProbe: Required value"},
		{"hook", container(`lifecycle: {preStop: {sleep: {seconds: 5}}}`), ""},
		{"hook with an invalid port", container(`lifecycle: {postStart: {httpGet: {port: 0}}}`),
			"containers[0].lifecycle.postStart.httpGet.port: Invalid value"},
		{"resize policy", container(`resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]`), ""},
		{"duplicate resize policy",
			container(`resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, ` +
				`restartPolicy: NotRequired}]`),
			"containers[0].resizePolicy[1]: Duplicate value"},
		{"resize policy for another resource",
			container(`resizePolicy: [{resourceName: example.com/a, restartPolicy: NotRequired}]`),
			"containers[0].resizePolicy: Unsupported value"},
		{"host port", `{hostNetwork: true, containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 80}]}]}`,
			""},
		{"host port that differs from the container port", `{hostNetwork: true, containers: [{name: c, image: i, ` +
			`ports: [{containerPort: 80, hostPort: 81}]}]}`,
			"containers[0].ports[0].hostPort: Invalid value"},
		{"ephemeral container",
			pod(`ephemeralContainers: [{name: e, image: i, terminationMessagePolicy: File, imagePullPolicy: Always}]`), ""},
		{"ephemeral container with a probe", pod(`ephemeralContainers: [{name: e, image: i, ` +
			`terminationMessagePolicy: File, imagePullPolicy: Always, livenessProbe: {exec: {command: [a]}}}]`),
			"ephemeralContainers[0].livenessProbe: Forbidden"},
		{"ephemeral container with an unknown target", pod(`ephemeralContainers: [{name: e, image: i, ` +
			`targetContainerName: x, ` +
			`terminationMessagePolicy: File, imagePullPolicy: Always}]`),
			"ephemeralContainers[0].targetContainerName: Not found"},
		{"claims",
			`{resourceClaims: [{name: r, resourceClaimName: rc}], containers: [{name: c, image: i, ` +
				`resources: {claims: [{name: r}]}}]}`,
			""},
		{"unknown claim", container(`resources: {claims: [{name: r}]}`), "containers[0].resources.claims[0]: Not found"},
		{"duplicate claim",
			`{resourceClaims: [{name: r, resourceClaimName: rc}], containers: [{name: c, image: i, ` +
				`resources: {claims: [{name: r}, {name: r}]}}]}`,
			"containers[0].resources.claims[1]: Duplicate value"},
		{"claim with two sources", pod(`resourceClaims: [{name: r, resourceClaimName: a, resourceClaimTemplateName: b}]`),
			"resourceClaims[0]: Invalid value"},
		{"claim without a source", pod(`resourceClaims: [{name: r}]`), "resourceClaims[0]: Invalid value"},
		{"pod-level resources", pod(`resources: {requests: {cpu: 1}, limits: {cpu: 2}}`), ""},
		{"pod-level resources below those of the containers",
			`{resources: {requests: {cpu: 1}}, containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}]}`,
			"resources.requests[cpu]: Invalid value"},
		{"pod-level ephemeral storage", pod(`resources: {requests: {ephemeral-storage: 1}}`),
			"resources.requests[ephemeral-storage]: Unsupported value"},
	})
}

func TestSystemRules(t *testing.T) {
	check(t, []rule{
		{"DNS",
			pod(`dnsPolicy: None, dnsConfig: {nameservers: [10.0.0.1], searches: [a.example], options: [{name: ndots}]}`), ""},
		{"too many servers", pod(`dnsConfig: {nameservers: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}`),
			"dnsConfig.nameservers: Invalid value"},
		{"name server that is not an address", pod(`dnsConfig: {nameservers: [a]}`),
			"dnsConfig.nameservers[0]: Invalid value"},
		{"invalid search domain", pod(`dnsConfig: {searches: ["a b"]}`), "dnsConfig.searches[0]: Invalid value"},
		{"option without a name", pod(`dnsConfig: {options: [{}]}`), "dnsConfig.options[0]: Required value"},
		{"sysctl", pod(`securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: "1"}]}`), ""},
		{"duplicate sysctl", pod(`securityContext: {sysctls: [{name: a.b, value: "1"}, {name: a.b, value: "1"}]}`),
			"securityContext.sysctls[1].name: Duplicate value"},
		{"sysctl without a name", pod(`securityContext: {sysctls: [{name: "", value: "1"}]}`),
			"securityContext.sysctls[0].name: Required value"},
		{"network sysctl in the host's network", pod(`hostNetwork: true, securityContext: {sysctls: [{name: net.a, ` +
			`value: "1"}]}`),
			"securityContext.sysctls[0].name: Invalid value"},
		{"SELinux label by mount option", pod(`securityContext: {seLinuxChangePolicy: MountOption}`), ""},
		{"SELinux label of each file", pod(`securityContext: {seLinuxChangePolicy: Recursive}`), ""},
		{"unknown way to set SELinux labels", pod(`securityContext: {seLinuxChangePolicy: Other}`),
			"securityContext.seLinuxChangePolicy: Unsupported value"},
		{"AppArmor profile", pod(`securityContext: {appArmorProfile: {type: Localhost, localhostProfile: a}}`), ""},
		{"local AppArmor profile without a name", pod(`securityContext: {appArmorProfile: {type: Localhost}}`),
			"securityContext.appArmorProfile.localhostProfile: Required value"},
		{"name of a profile that is not local", pod(`securityContext: {appArmorProfile: {type: RuntimeDefault, ` +
			`localhostProfile: a}}`),
			"securityContext.appArmorProfile.localhostProfile: Invalid value"},
		{"unknown type of AppArmor profile", pod(`securityContext: {appArmorProfile: {type: Other}}`),
			"securityContext.appArmorProfile.type: Unsupported value"},
		{"Linux with a Windows user", pod(`os: {name: linux}, securityContext: {windowsOptions: {runAsUserName: a}}`),
			"securityContext.windowsOptions: Forbidden"},
		{"Windows", pod(`os: {name: windows}, securityContext: {windowsOptions: {runAsUserName: 'A\b'}}`), ""},
		{"Windows with a Linux user", pod(`os: {name: windows}, hostPID: true, securityContext: {runAsUser: 1}`),
			"hostPID: Forbidden, securityContext.runAsUser: Forbidden"},
		{"Windows with a bad user", pod(`os: {name: windows}, securityContext: {windowsOptions: {runAsUserName: 'A\'}}`),
			"securityContext.windowsOptions.runAsUserName: Invalid value"},
		{"unknown operating system", pod(`os: {name: plan9}`), "os: Unsupported value"},
		{"user namespace", pod(`hostUsers: false`), ""},
		{"user namespace with the host's PID namespace", pod(`hostUsers: false, hostPID: true`), "HostPID: Forbidden"},
	})
}

func TestClaimRules(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"valid":   {`{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, ""},
		"nothing": {`{}`, "accessModes: Required value, resources[storage]: Required value"},
		"modes that clash": {`{accessModes: [ReadWriteOncePod, ReadWriteOnce], ` +
			`resources: {requests: {storage: 1Gi}}}`, "accessModes: Forbidden"},
		"source with an invalid group": {`{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, ` +
			`dataSource: {apiGroup: "a b", kind: K, name: x}, dataSourceRef: {apiGroup: "a b", kind: K, name: x}}`,
			"dataSource.apiGroup: Invalid value, dataSourceRef.apiGroup: Invalid value"},
		"two sources": {`{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, ` +
			`dataSource: {kind: PersistentVolumeClaim, name: x}, dataSourceRef: {kind: PersistentVolumeClaim, name: y}}`,
			"<nil>: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PersistentVolumeClaimSpec{}
			if err := yaml.UnmarshalStrict([]byte(tc.spec), spec); err != nil {
				t.Fatal(err)
			}
			podspec.DefaultClaimSpec(spec)
			got, want := sets.New[string](), sets.New[string]()
			for _, err := range podspec.ValidateClaimSpec(spec, nil) {
				got.Insert(err.Field + ": " + err.Type.String())
			}
			if tc.want != "" {
				want.Insert(strings.Split(tc.want, ", ")...)
			}
			if !got.Equal(want) {
				t.Errorf("findings %v, want %v", sets.List(got), sets.List(want))
			}
		})
	}
}

func TestAnnotationRules(t *testing.T) {
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	for name, tc := range map[string]struct {
		annotations map[string]string
		findings    int
	}{
		"none":                               {nil, 0},
		"deletion cost":                      {map[string]string{corev1.PodDeletionCost: "-5"}, 0},
		"deletion cost that is not a number": {map[string]string{corev1.PodDeletionCost: "a"}, 1},
		"deletion cost with a plus sign":     {map[string]string{corev1.PodDeletionCost: "+5"}, 1},
		"AppArmor": {
			map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"}, 0},
		"AppArmor annotation of an unknown container": {
			map[string]string{"container.apparmor.security.beta.kubernetes.io/d": "runtime/default"}, 1},
		"unknown AppArmor profile": {
			map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "other"}, 1},
		"unknown seccomp profile": {
			map[string]string{"seccomp.security.alpha.kubernetes.io/pod": "other"}, 1},
		"valid seccomp profile": {
			map[string]string{"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}, 0},
		"tolerations that are not JSON": {map[string]string{corev1.TolerationsAnnotationKey: "{"}, 1},
	} {
		if errs := podspec.ValidateAnnotations(tc.annotations, spec,
			field.NewPath("metadata", "annotations")); len(errs) != tc.findings {
			t.Errorf("%s: findings %v, want %d", name, errs, tc.findings)
		}
	}
}

func TestQOSClass(t *testing.T) {
	for text, want := range map[string]corev1.PodQOSClass{
		container(``): corev1.PodQOSBestEffort,
		container(`resources: {requests: {cpu: 1}}`):                                           corev1.PodQOSBurstable,
		container(`resources: {limits: {cpu: 1, memory: 1}, requests: {cpu: 1, memory: 1}}`):   corev1.PodQOSGuaranteed,
		container(`resources: {limits: {cpu: 2, memory: 1}, requests: {cpu: 1, memory: 1}}`):   corev1.PodQOSBurstable,
		container(`resources: {limits: {cpu: 1}, requests: {cpu: 1}}`):                         corev1.PodQOSBurstable,
		pod(`initContainers: [{name: d, image: i, resources: {requests: {memory: 1}}}]`):       corev1.PodQOSBurstable,
		pod(`resources: {limits: {cpu: 1, memory: 1}, requests: {cpu: 1, memory: 1}}`):         corev1.PodQOSGuaranteed,
		container(`resources: {requests: {example.com/gpu: 1}, limits: {example.com/gpu: 1}}`): corev1.PodQOSBestEffort,
	} {
		p := &corev1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatal(err)
		}
		if got := podspec.QOSClass(&p.Spec); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
