// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

// podAnswers returns the cases of TestAnswers about pods and their subresources.
func podAnswers() []answer {
	return []answer{
		{"eviction with another uid", "podP", "POST", coreAPI + "pods/p/eviction",
			`{"metadata":{"name":"p"},"deleteOptions":{"preconditions":{"uid":"x"}}}`, 409,
			`Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (x)`, ""},
		{"eviction that ignores read errors", "podP", "POST", coreAPI + "pods/p/eviction",
			`{"metadata":{"name":"p"},"deleteOptions":{"dryRun":["All"],"ignoreStoreReadErrorWithClusterBreakingPotential":true}}`,
			422,
			`Eviction.policy \"p\" is invalid: ` +
				`deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: can ` +
				`not be set for pod eviction, try after removing the option`,
			""},
		{"eviction in policy/v1beta1", "podP", "POST", coreAPI + "pods/p/eviction",
			`{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"p"}}`, 201, `"Success"`, ""},
		{"pod with invalid Windows options", "", "POST", coreAPI + "pods",
			`{"metadata":{"name":"odd"},"spec":{"containers":[{"name":"c","image":"i","securityContext":{"windowsOptions":{"gmsaCredentialSpecName":"<","runAsUserName":"<"}}}]}}`,
			422, `gmsaCredentialSpecName: Invalid value: \"\\u003c\": a lowercase RFC 1123 subdomain`, ""},
		{"pod with a host process in one container only", "", "POST", coreAPI + "pods",
			`{"metadata":{"name":"h"},"spec":{"containers":[{"name":"c","image":"i","securityContext":{"windowsOptions":{"hostProcess":true}}},{"name":"d","image":"i"}]}}`,
			422,
			`[spec: Invalid value: \"\": If pod contains any hostProcess containers then all containers ` +
				`must be HostProcess containers, spec.hostNetwork: Invalid value: false: hostNetwork must ` +
				`be true if pod contains any hostProcess containers]`,
			""},
		{"pod with an empty runtime class", "", "POST", coreAPI + "pods?dryRun=All",
			`{"metadata":{"name":"r"},"spec":{"runtimeClassName":"","containers":[{"name":"c","image":"i"}]}}`, 201,
			"", ""},
		{"log of a pod on an unknown node", "lost", "GET", coreAPI + "pods/lost/log", "", 404,
			`"message":"pods \"nowhere\" not found","reason":"NotFound","details":{"name":"nowhere","kind":"pods"}`,
			""},
		{"exec in a pod on an unknown node", "lost", "POST", coreAPI + "pods/lost/exec?command=a", "", 404,
			`"message":"pods \"nowhere\" not found","reason":"NotFound","details":{"name":"nowhere","kind":"pods"}`,
			""},
		{"log of another pod on an unknown node", "podOnNone", "GET", coreAPI + "pods/o/log", "", 404,
			`pods \"none\" not found`, ""},
		{"exec by GET in a pod on an unknown node", "podOnNone", "GET", coreAPI + "pods/o/exec?command=x&stdout=1",
			"", 404, `pods \"none\" not found`, ""},
		{"log with an empty stream and a negative tailLines", "lost", "GET",
			coreAPI + "pods/lost/log?stream=&tailLines=-1", "", 422,
			`PodLogOptions \"lost\" is invalid: [tailLines: Invalid value: -1: must be greater than or ` +
				`equal to 0, stream: Forbidden: may not be specified]`,
			""},
		{"log with an invalid tailLines", "lost", "GET", coreAPI + "pods/lost/log?tailLines=x", "", 400,
			`"message":"strconv.ParseInt: parsing \"x\": invalid syntax"`, ""},
		{"log of one stream", "podQ", "GET", coreAPI + "pods/q/log?stream=Stdout", "", 422,
			`PodLogOptions \"q\" is invalid: stream: Forbidden: may not be specified`, ""},
		{"log with an invalid tailLines of a pending pod", "podQ", "GET", coreAPI + "pods/q/log?tailLines=x", "", 400,
			`"message":"strconv.ParseInt: parsing \"x\": invalid syntax"`, ""},
		{"log of a pending pod", "podQ", "GET", coreAPI + "pods/q/log", "", 204, "", ""},
		{"log of a pending pod, dry run", "podQ", "GET", coreAPI + "pods/q/log?dryRun=All", "", 204, "", ""},
		{"port-forward to a port out of range", "lost", "POST", coreAPI + "pods/lost/portforward?ports=80,99999", "",
			400, `"message":"cannot convert to []int32: strconv.ParseUint: parsing \"99999\": value out of range"`,
			""},
		{"port-forward to an invalid port", "podQ", "GET", coreAPI + "pods/q/portforward?ports=x", "", 400,
			`"message":"cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax"`, ""},
		{"proxy to a pod, dry run", "podP", "GET", coreAPI + "pods/p/proxy/x?dryRun=All", "", 400,
			`"message":"dryRun is not supported"`, ""},
		{"proxy to an unknown node, dry run", "", "POST", "/api/v1/nodes/none/proxy?dryRun", "", 400,
			`"message":"dryRun is not supported"`, ""},
		{"pod with deprecated seccomp annotations", "", "POST", coreAPI + "pods",
			`{"metadata":{"name":"old","annotations":{"seccomp.security.alpha.kubernetes.io/pod":"x",` +
				`"container.seccomp.security.alpha.kubernetes.io/c":"localhost//x"}},` + podSpec + `}`,
			422,
			`[metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"x\": must be ` +
				`a valid seccomp profile, metadata.annotations.container.seccomp.security.alpha.kubernetes.io/c: ` +
				`Invalid value: \"/x\": must be a relative path]`,
			""},
		{"pod with a deprecated tolerations annotation", "", "POST", coreAPI + "pods",
			`{"metadata":{"name":"old","annotations":{"scheduler.alpha.kubernetes.io/tolerations":"{}"}},` + podSpec + `}`,
			422,
			`metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/tolerations\": json: ` +
				`cannot unmarshal object into Go value of type []core.Toleration`,
			""},
		{"pod with an invalid node name", "", "POST", coreAPI + "pods",
			`{"metadata":{"name":"odd"},"spec":{"nodeName":"/a","containers":[{"name":"c","image":"i"}]}}`, 422,
			`spec.nodeName: Invalid value: \"/a\": a lowercase RFC 1123 subdomain`, ""},
		{"mirror pod with a service account", "", "POST", coreAPI + "pods",
			`{"metadata":{"name":"m","annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"serviceAccountName":"default","containers":[{"name":"c","image":"i"}]}}`,
			403, `pods \"m\" is forbidden: a mirror pod may not reference service accounts`, ""},
		{"status with a claim for an unknown container", "podQ", "PATCH", coreAPI + "pods/q/status",
			`{"status":{"extendedResourceClaimStatus":{"resourceClaimName":"r","requestMappings":[{"containerName":"x","resourceName":"a.b/c","requestName":"q"}]}}}`,
			422,
			`status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: \"x\": ` +
				`must match the name of an entry in spec.initContainers.name or spec.containers.name`,
			""},
		{"status with health of a resource that was not requested", "podQ", "PATCH", coreAPI + "pods/q/status",
			`{"status":{"containerStatuses":[{"name":"c","ready":true,"restartCount":0,"image":"i","imageID":"","allocatedResourcesStatus":[{"name":"a.b/c"}]}]}}`,
			422,
			`status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: \"a.b/c\": must ` +
				`match one of the container's resource requests`,
			""},
		{"status with an invalid finalizer and generateName", "podQ", "PATCH", coreAPI + "pods/q/status",
			`{"metadata":{"generateName":"Bad_","finalizers":["x"]}}`, 422,
			`is invalid: metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer ` +
				`name nor is it fully qualified"`,
			""},
	}
}
