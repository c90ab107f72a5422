// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

// serviceAnswers returns the cases of TestAnswers about services and networks.
func serviceAnswers() []answer {
	return []answer{
		{"endpoint slice without endpoints", "", "POST", "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
			`{"metadata":{"name":"e"},"addressType":"IPv4","endpoints":[],"ports":[]}`, 201,
			`"endpoints":null,"ports":null`, ""},
		{"service with node ports, dry run", "", "POST", coreAPI + "services?dryRun=All",
			`{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"name":"a","port":1,"nodePort":30100},{"name":"b","port":2},{"name":"c","port":3},{"name":"d","port":2,"protocol":"UDP"}]}}`,
			201,
			`"nodePort":30100},{"name":"b","protocol":"TCP","port":2,"targetPort":2,"nodePort":30101},{"name":"c","protocol":"TCP","port":3,"targetPort":3,"nodePort":30102},{"name":"d","protocol":"UDP","port":2,"targetPort":2,"nodePort":30101}],"clusterIP":"10.96.0.0"`,
			""},
		{"service with a chosen node port only, dry run", "", "POST", coreAPI + "services?dryRun=All",
			`{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":1}]}}`, 201, `"nodePort":32769`, ""},
		{"service with one node port for two ports", "", "POST", coreAPI + "services",
			`{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"name":"a","port":1,"nodePort":30100},{"name":"b","port":2,"nodePort":30100,"protocol":"UDP"}]}}`,
			422,
			`"message":"Service \"s\" is invalid: spec.ports[1].nodePort: Invalid value: 30100: provided ` +
				`port is already allocated"`,
			""},
		{"apply of a port with an object as targetPort", "", "PATCH", coreAPI + "services/s?fieldManager=f",
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":1,"targetPort":{}}]}}`,
			500,
			`failed to convert new object (/s; /v1, Kind=Service) to proper version: unable to convert ` +
				`unstructured object to /v1, Kind=Service: json: cannot unmarshal object into Go value of type int32`,
			""},
		{"service with an invalid address", "", "POST", coreAPI + "services",
			`{"metadata":{"name":"s"},"spec":{"clusterIP":"x"}}`, 422,
			`is invalid: spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address`, ""},
		{"service without a name", "", "POST", coreAPI + "services", `{}`, 422,
			`"message":"Service \"\" is invalid: spec.clusterIPs: Invalid value: [\"\"]: failed to allocate ` +
				`IP: IPAddress.networking.k8s.io \"10.96.`,
			""},
		{"headless service", "", "POST", coreAPI + "services",
			`{"metadata":{"name":"headless"},"spec":{"clusterIP":"None"}}`, 201, `"ipFamilies":["IPv4","IPv6"]`, ""},
		{"headless service of the other family only", "headless", "PATCH", coreAPI + "services/headless",
			`{"spec":{"ipFamilies":["IPv6"]}}`, 422,
			`spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary IP family`,
			""},
		{"service with another health check port", "balanced", "PATCH", coreAPI + "services/balanced",
			`{"spec":{"healthCheckNodePort":3}}`, 422,
			`is invalid: spec.healthCheckNodePort: Forbidden: field is immutable`, ""},
		{"service with an address in use, dry run", "", "POST", coreAPI + "services?dryRun=All",
			`{"metadata":{"name":"s"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":1}]}}`, 201, "", ""},
		{"service with an unknown family", "", "POST", coreAPI + "services",
			`{"metadata":{"name":"a","generation":-7},"spec":{"ipFamilies":["x"],"ports":[{"port":1}]}}`, 422,
			`Service \"a\" is invalid: spec.ipFamilies[0]: Unsupported value: \"x\": supported values: ` +
				`\"IPv4\", \"IPv6\"","reason"`,
			""},
		{"external name, dry run", "", "POST", coreAPI + "services?dryRun=All",
			`{"metadata":{"name":"x"},"spec":{"type":"ExternalName","externalName":"a.b","internalTrafficPolicy":"Cluster"}}`,
			201, `"spec":{"type":"ExternalName","sessionAffinity":"None","externalName":"a.b"}`, ""},
		{"proxy to an unknown service", "", "GET", coreAPI + "services/nope/proxy/x", "", 404,
			`services \"nope\" not found`, ""},
		{"proxy to a service without endpoints", "emptyService", "GET", coreAPI + "services/empty/proxy/x", "", 503,
			`no endpoints available for service \"empty\"`, ""},
		{"network policy with host bits in a range", "", "POST", networkAPI + "namespaces/{ns}/networkpolicies",
			`{"metadata":{"name":"n"},"spec":{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.1.2.3/24"}}]}]}}`,
			422, `ipBlock.cidr: Invalid value: \"10.1.2.3/24\": must not have bits set beyond the prefix length`, ""},
		{"change of a service range", "range", "PATCH", networkAPI + "servicecidrs/{ns}",
			`{"spec":{"cidrs":["192.168.1.0/24"]}}`, 422,
			`spec.cidrs[0]: Invalid value: \"192.168.1.0/24\": field is immutable`, ""},
		{"service range with one family twice and host bits", "", "POST", networkAPI + "servicecidrs?dryRun=All",
			`{"metadata":{"name":"two"},"spec":{"cidrs":["192.168.0.0/24","192.168.1.1/24"]}}`, 422,
			`[spec.cidrs[1]: Invalid value: \"192.168.1.1/24\": must not have bits set beyond the prefix ` +
				`length, spec.cidrs: Invalid value: [\"192.168.0.0/24\",\"192.168.1.1/24\"]: may specify no more than one IP`,
			""},
		{"change of a service range to an invalid one", "range", "PATCH", networkAPI + "servicecidrs/{ns}",
			`{"spec":{"cidrs":["192.168.1.0/24","x"]}}`, 422,
			`[spec.cidrs[0]: Invalid value: \"192.168.1.0/24\": field is immutable, spec.cidrs[1]: Invalid ` +
				`value: \"x\": must be a valid CIDR value`,
			""},
		{"service range with one family twice", "", "POST", networkAPI + "servicecidrs?dryRun=All",
			`{"metadata":{"name":"two"},"spec":{"cidrs":["192.168.0.0/24","192.168.1.0/24"]}}`, 422,
			`spec.cidrs: Invalid value: [\"192.168.0.0/24\",\"192.168.1.0/24\"]: may specify no more than one IP`,
			""},
	}
}
