// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import "strings"

// workloadAnswers are requests about jobs, deployments and other workloads.
func workloadAnswers() []answer {
	return []answer{
		{"delete a job with invalid options", "job", "DELETE", jobsAPI + "/j?dryRun=x", "",
			422, `DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value`, ""},
		{"job with another uid", "job", "PATCH", jobsAPI + "/j?dryRun=All", `{"metadata":{"uid":"x"},"spec":{"parallelism":-1}}`,
			422, `"field":"metadata.uid"},{"reason":"FieldValueInvalid","message":"Invalid value: -1: must be greater than or equal to 0","field":"spec.parallelism"}`, ""},
		{"delete a job and keep its pods", "job", "DELETE", jobsAPI + "/j?dryRun=All", "",
			200, "", "child pods are preserved by default"},
		{"delete a job and its pods", "job", "DELETE", jobsAPI + "/j?propagationPolicy=Background", "",
			200, "", ""},
		{"job with a long name", "", "POST", jobsAPI, `{"metadata":{"name":"` + strings.Repeat("j", 64) + `"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`,
			422, ` is invalid: spec.template.labels: Invalid value: `, ""},
		{"job that drops its manual selector", "manualJob", "PATCH", jobsAPI + "/manual", `{"spec":{"manualSelector":false}}`,
			422, `Required value: must be 'manual', spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `, ""},
		{"unknown field selector of jobs", "", "GET", jobsAPI + "?fieldSelector=status.x%3Dy", "",
			400, `field label \"status.x\" not supported for Job`, ""},
		{"unknown field selector of replica sets", "", "GET", "/apis/apps/v1/replicasets?fieldSelector=status.replicas%3D1", "",
			400, `\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"`, ""},
		{"status of a deployment with impossible counts", "deployment", "PATCH", deploymentsAPI + "/d/status", `{"status":{"readyReplicas":3,"terminatingReplicas":-1}}`,
			422, `[status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0, status.readyReplicas: Invalid value: 3: cannot be greater than status.replicas]`, ""},
		{"template with an image volume without a reference", "", "POST", deploymentsAPI, `{"metadata":{"name":"hollow"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"volumes":[{"name":"v","image":{}}],"containers":[{"name":"c","image":"i"}]}}}}`,
			422, `spec.template.spec.volumes[0].image.reference: Required value`, ""},
		{"daemon set with an invalid template generation", "", "POST", "/apis/apps/v1/namespaces/{ns}/daemonsets", `{"metadata":{"name":"g","annotations":{"deprecated.daemonset.template.generation":"x"}}}`,
			400, `DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strconv.ParseInt: parsing \"x\": invalid syntax`, ""},
		{"patch of a daemon set to an invalid template generation", "daemonSet", "PATCH", "/apis/apps/v1/namespaces/{ns}/daemonsets/g", `{"metadata":{"name":"g","annotations":{"deprecated.daemonset.template.generation":"x"}}}`,
			422, `strconv.ParseInt: parsing \"x\": invalid syntax`, ""},
		{"controller revision with spaces", "", "POST", "/apis/apps/v1/namespaces/{ns}/controllerrevisions", `{"metadata":{"name":"r"},"revision":1,"data":{"b": 1}}`,
			201, `"data":{"b":1}`, ""},
		{"patch of a controller revision", "controllerRevision", "PATCH", "/apis/apps/v1/namespaces/{ns}/controllerrevisions/r", `{"metadata":{"labels":{"a":"b"}}}`,
			422, `is invalid: data: Invalid value: {\"b\":1}: field is immutable`, ""},
		{"replication controller with an invalid generateName", "", "POST", coreAPI + "replicationcontrollers", `{"metadata":{"name":"r","generateName":"a/b"},"spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			422, `"message":"ReplicationController \"r\" is invalid: metadata.generateName: Invalid value: \"a/b\": may not contain '/'"`, ""},
		{"replication controller with a deprecated node selector", "controller", "PATCH", coreAPI + "replicationcontrollers/r", `{"spec":{"template":{"spec":{"nodeSelector":{"beta.kubernetes.io/os":"x"}}}}}`,
			200, "", `spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14`},
		{"replication controller without the deprecated node selector", "controller controllerDeprecated", "PATCH", coreAPI + "replicationcontrollers/r", `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`,
			200, "", ""},
		{"status of a replication controller", "controller", "PUT", coreAPI + "replicationcontrollers/r/status", `{"metadata":{"name":"r"}}`,
			200, `"labels":{"a":"b"}},"spec":`, ""},
		{"autoscaler with an unknown container resource", "", "POST", "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers", `{"metadata":{"name":"h"},"spec":{"maxReplicas":2,"scaleTargetRef":{"kind":"D","name":"d"},"metrics":[{"type":"ContainerResource","containerResource":{"name":"x","container":"c","target":{"type":"Utilization","averageUtilization":5}}}]}}`,
			422, `spec.metrics[0].containerResource.name: Invalid value: \"x\": must be a standard resource for containers`, ""},
		{"autoscaler with an invalid resource name", "", "POST", scalersAPI, `{"metadata":{"name":"m"},"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"},"metrics":[{"type":"ContainerResource","containerResource":{"name":"<x>","container":"c","target":{"type":"Utilization","averageUtilization":5}}}]}}`,
			422, `[spec.metrics[0].containerResource.name: Invalid value: \"\u003cx\u003e\": name part must consist of`, ""},
		{"generation of a new autoscaler", "", "POST", scalersAPI, `{"metadata":{"name":"counted"},"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"}}}`,
			201, `"generation":1`, ""},
		{"generation after a change of spec", "counted", "PATCH", scalersAPI + "/counted", `{"spec":{"maxReplicas":3}}`,
			200, `"generation":2`, ""},
		{"generation after a change of labels", "counted countedMore", "PATCH", scalersAPI + "/counted", `{"metadata":{"labels":{"a":"b"}}}`,
			200, `"generation":2`, ""},
		{"generation after a change of status", "counted countedMore", "PATCH", scalersAPI + "/counted/status", `{"status":{"desiredReplicas":2}}`,
			200, `"generation":2`, ""},
		{"disruption budget without a name", "", "POST", "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", `{}`,
			422, `"message":"PodDisruptionBudget.policy \"\" is invalid: metadata.name: Required value: name or generateName is required"`, ""},
		{"disruption budget without a name and with a negative minimum", "", "POST", "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", `{"spec":{"minAvailable":-1}}`,
			422, `"message":"PodDisruptionBudget.policy \"\" is invalid: spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"`, ""},
	}
}
