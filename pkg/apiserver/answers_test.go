// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestAnswers sends requests one after the other; code, words and warnings of the
// answers are those of Kubernetes 1.36.
func TestAnswers(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	const (
		core = "/api/v1/namespaces/default/"
		jobs = "/apis/batch/v1/namespaces/default/jobs"
		deps = "/apis/apps/v1/namespaces/default/deployments"
		net  = "/apis/networking.k8s.io/v1/"

		scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"

		pod = `"spec":{"containers":[{"name":"c","image":"i"}]}`
		crd = `{"metadata":{"name":"as.x.example.com"},"spec":{"group":"x.example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},
			"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.a"}],"schema":{"openAPIV3Schema":
			{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string","$ref":"x"}}}}}}}]}}`
		others = `{"metadata":{"name":"bs.y.example.com"},"spec":{"group":"y.example.com","scope":"Namespaced","names":{"plural":"bs","kind":"B"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"n":{"type":"integer"},
				"e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}},
			{"name":"v1beta1","served":true,"storage":false,"deprecated":true,"deprecationWarning":"use v1","schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	)
	define(t, client, s.Config.Host, others, "/apis/y.example.com/v1/bs")
	for _, tc := range []struct {
		name, method, path, body string
		code                     int
		want                     string // in the body
		warning                  string
	}{
		{"range of services", "GET", net + "servicecidrs/kubernetes", ``, 200, `"managedFields":[{"manager":"kubernetes-service-cidr-controller","operation":"Apply","apiVersion":"networking.k8s.io/v1"`, ""},
		{"group of the aggregator", "DELETE", "/apis/apiregistration.k8s.io", ``, 405, `the server does not allow this method on the requested resource`, ""},
		{"another group", "DELETE", "/apis/apps", ``, 200, `"kind":"APIGroup"`, ""},
		{"nothing below a document", "GET", "/version/x", ``, 404, `"message":"the server could not find the requested resource","reason":"NotFound"`, ""},
		{"slashes after a document", "GET", "/version///", ``, 200, `"gitVersion"`, ""},
		{"flags that may be changed", "GET", "/debug/flags", ``, 200, "<tr>v<br>\n", ""},
		{"verbosity", "PUT", "/debug/flags/v", `4`, 200, "successfully set klog.logging.verbosity to 4\n", ""},
		{"verbosity that is none", "PUT", "/debug/flags/v", `x`, 400, "strconv.ParseUint: parsing \"x\": invalid syntax\n", ""},
		{"verbosity is not told", "GET", "/debug/flags/v", ``, 406, "unsupported http method\n", ""},
		{"checks left out by one name", "GET", "/readyz?verbose&exclude=ping,log", ``, 200, `[+]ping ok`, ""},
		{"checks that are none", "GET", "/readyz?verbose&exclude=ping,log&exclude=", ``, 200, `no matches for "","ping,log"`, ""},
		{"command line", "GET", "/debug/pprof/cmdline", ``, 404, `Unknown profile`, ""},
		{"document of custom resources", "GET", "/openapi/v3/apis/y.example.com/v1", ``, 200, `"title":"Kubernetes CRD Swagger"`, ""},
		{"link of a dry run", "PATCH", core[:len(core)-1] + "?dryRun=All", `{"metadata":{"selfLink":"/x"}}`, 200, `"name":"default","selfLink":"/x","uid":`, ""},
		{"link", "PATCH", core[:len(core)-1], `{"metadata":{"selfLink":"/x"}}`, 200, `"name":"default","uid":`, ""},
		{"binding", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"b"},"roleRef":{"kind":"ClusterRole","name":"view"}}`, 201, ``, ""},
		{"order of findings", "PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/b", `{"metadata":{"uid":"x"},"roleRef":{"name":""}}`, 422, `"field":"metadata.uid"},{"reason":"FieldValueRequired","message":"Required value","field":"roleRef.name"},`, ""},
		{"class with parameters", "POST", "/apis/resource.k8s.io/v1/deviceclasses", `{"metadata":{"name":"c"},"spec":{"config":[{"opaque":{"driver":"d","parameters":{"b": 1,"a": 2}}}]}}`, 201, `"generation":1`, ""},
		{"parameters written anew", "PATCH", "/apis/resource.k8s.io/v1/deviceclasses/c", `{"metadata":{"labels":{"a":"b"}}}`, 200, `"generation":2`, ""},
		{"parameters written alike", "PATCH", "/apis/resource.k8s.io/v1/deviceclasses/c", `{"metadata":{"labels":{"a":"c"}}}`, 200, `"generation":2`, ""},
		{"parameters put in order", "PATCH", "/apis/resource.k8s.io/v1/deviceclasses/c?fieldManager=f", `{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","metadata":{"name":"c","labels":{"b":"c"}}}`, 200, `"generation":3`, ""},
		{"custom resource", "POST", "/apis/y.example.com/v1/namespaces/default/bs", `{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"linked"}}`, 201, `"name":"linked"`, ""},
		{"link of a custom resource, dry run", "PATCH", "/apis/y.example.com/v1/namespaces/default/bs/linked?dryRun=All", `{"metadata":{"selfLink":"/x"}}`, 200, `"selfLink":"/x"`, ""},
		{"link of a custom resource", "PATCH", "/apis/y.example.com/v1/namespaces/default/bs/linked", `{"metadata":{"selfLink":"/x","labels":{"a":"b"}}}`, 200, `"name":"linked","namespace":"default","resourceVersion":`, ""},
		{"custom resource of no version", "PUT", "/apis/y.example.com/v1/namespaces/default/bs/linked", `{"apiVersion":null,"kind":"B","metadata":{"name":"linked"}}`, 400, `B in version \"\" cannot be handled as a B: .apiVersion accessor error: \u003cnil\u003e is of the type \u003cnil\u003e, expected string`, ""},
		{"custom resource without labels", "PATCH", "/apis/y.example.com/v1/namespaces/default/bs/linked?fieldManager=f&force=true", `{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"linked","annotations":{}}}`, 200, `"metadata":{"creationTimestamp"`, ""},
		{"object without a name in a custom resource", "PATCH", "/apis/y.example.com/v1/namespaces/default/bs/linked?fieldManager=f", `{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"linked"},"e":{"apiVersion":"v1","kind":"C","metadata":{"name":null,"labels":{"a":"b"}}}}`, 200, `"metadata":{"labels":{"a":"b"}}},"kind":"B"`, ""},
		{"no link is kept", "PATCH", "/apis/y.example.com/v1/namespaces/default/bs/linked", `{"metadata":{"generation":9}}`, 200, `,"uid":`, ""},
		{"order of a document", "GET", "/openapi/v3/apis/batch/v1", ``, 200, `{"openapi":"3.0.0","info":{"title":"Kubernetes","version":"`, ""},
		{"kinds of operations", "GET", "/openapi/v3/apis/batch/v1", ``, 200, `"x-kubernetes-group-version-kind":{"group":"batch","version":"v1","kind":"CronJob"}`, ""},
		{"kinds of options of custom resources", "GET", "/openapi/v3/apis/y.example.com/v1", ``, 200, `"x-kubernetes-group-version-kind":[{"group":"","kind":"DeleteOptions","version":"v1"},{"group":"admissionregistration.k8s.io",`, ""},
		{"words of custom resources", "GET", "/openapi/v3/apis/y.example.com/v1", ``, 200, `"description":"list objects of kind B"`, ""},
		{"export", "GET", "/api/v1/namespaces/nope?export=", ``, 400, `"message":"the export parameter, deprecated since v1.14, is no longer supported","reason":"BadRequest","code":400`, ""},
		{"no export", "GET", "/api/v1/namespaces/default?export=False", ``, 200, `"kind":"Namespace"`, ""},
		{"old version", "GET", "/apis/y.example.com/v1beta1/namespaces/default/bs/b", ``, 404, ``, "use v1"},
		{"status that an old version has not", "GET", "/apis/y.example.com/v1beta1/namespaces/default/bs/b/status", ``, 404, ``, "use v1"},
		{"account", "POST", core + "serviceaccounts", `{"metadata":{"name":"default"}}`, 201, "", ""},
		{"no rules", "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", `{"metadata":{"name":"r"},"rules":[]}`, 201, `"rules":null`, ""},
		{"no rules, read", "GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r", ``, 200, `"rules":null`, ""},
		{"no endpoints", "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `{"metadata":{"name":"e"},"addressType":"IPv4","endpoints":[],"ports":[]}`, 201, `"endpoints":null,"ports":null`, ""},
		{"pods of no network", "POST", "/api/v1/nodes", `{"metadata":{"name":"m"},"spec":{"podCIDRs":["10.0.0.0/24","x"]}}`, 422, `{"reason":"InternalError","message":"Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: \u003cnil\u003e (invalid CIDR address: x)","field":"spec.podCIDRs"},{"reason":"FieldValueInvalid","message":"Invalid value: [\"10.0.0.0/24\",\"x\"]: may specify no more than one CIDR for each IP family","field":"spec.podCIDRs"}`, ""},
		{"controller named with a wrong prefix", "POST", core + "replicationcontrollers", `{"metadata":{"name":"r","generateName":"a/b"},"spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, 422, `"message":"ReplicationController \"r\" is invalid: metadata.generateName: Invalid value: \"a/b\": may not contain '/'"`, ""},
		{"trial of a service", "POST", core + "services?dryRun=All", `{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"name":"a","port":1,"nodePort":30100},{"name":"b","port":2},{"name":"c","port":3},{"name":"d","port":2,"protocol":"UDP"}]}}`, 201, `"nodePort":30100},{"name":"b","protocol":"TCP","port":2,"targetPort":2,"nodePort":30101},{"name":"c","protocol":"TCP","port":3,"targetPort":3,"nodePort":30102},{"name":"d","protocol":"UDP","port":2,"targetPort":2,"nodePort":30101}],"clusterIP":"10.96.0.0"`, ""},
		{"trial of a service without node ports", "POST", core + "services?dryRun=All", `{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":1}]}}`, 201, `"nodePort":32769`, ""},
		{"node port of two ports", "POST", core + "services", `{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"name":"a","port":1,"nodePort":30100},{"name":"b","port":2,"nodePort":30100,"protocol":"UDP"}]}}`, 422, `"message":"Service \"s\" is invalid: spec.ports[1].nodePort: Invalid value: 30100: provided port is already allocated"`, ""},
		{"budget without a name", "POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", `{}`, 422, `"message":"PodDisruptionBudget.policy \"\" is invalid: metadata.name: Required value: name or generateName is required"`, ""},
		{"budget without name or sense", "POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", `{"spec":{"minAvailable":-1}}`, 422, `"message":"PodDisruptionBudget.policy \"\" is invalid: spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"`, ""},
		{"nothing allocatable", "POST", "/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"capacity":{"cpu":"1"},"allocatable":{}}}`, 201, `"allocatable":{"cpu":"1"}`, ""},
		{"job", "POST", jobs, `{"metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, 201, "", ""},
		{"job with options that are none", "DELETE", jobs + "/j?dryRun=x", ``, 422, `DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value`, ""},
		{"object for a port applied", "PATCH", core + "services/s?fieldManager=f", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":1,"targetPort":{}}]}}`, 500, `failed to convert new object (/s; /v1, Kind=Service) to proper version: unable to convert unstructured object to /v1, Kind=Service: json: cannot unmarshal object into Go value of type int32`, ""},
		{"job of another uid", "PATCH", jobs + "/j?dryRun=All", `{"metadata":{"uid":"x"},"spec":{"parallelism":-1}}`, 422, `{"reason":"FieldValueInvalid","message":"Invalid value: -1: must be greater than or equal to 0","field":"spec.parallelism"}]`, ""},
		{"job left alone", "DELETE", jobs + "/j?dryRun=All", ``, 200, "", "child pods are preserved by default"},
		{"job with pods", "DELETE", jobs + "/j?propagationPolicy=Background", ``, 200, "", ""},
		{"map", "POST", core + "configmaps", `{"metadata":{"name":"m"}}`, 201, "", ""},
		{"options of any version", "DELETE", core + "configmaps/m", `{"kind":"DeleteOptions","apiVersion":"nope/v1"}`, 200, `"Success"`, ""},
		{"pod", "POST", core + "pods", `{"metadata":{"name":"p"},` + pod + `}`, 201, "", ""},
		{"pod of another's uid", "POST", core + "pods/p/eviction", `{"metadata":{"name":"p"},"deleteOptions":{"preconditions":{"uid":"x"}}}`, 409, `Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (x)`, ""},
		{"eviction of what cannot be read", "POST", core + "pods/p/eviction", `{"metadata":{"name":"p"},"deleteOptions":{"dryRun":["All"],"ignoreStoreReadErrorWithClusterBreakingPotential":true}}`, 422, `Eviction.policy \"p\" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: can not be set for pod eviction, try after removing the option`, ""},
		{"odd account", "POST", core + "pods", `{"metadata":{"name":"odd"},"spec":{"containers":[{"name":"c","image":"i","securityContext":{"windowsOptions":{"gmsaCredentialSpecName":"<","runAsUserName":"<"}}}]}}`, 422, `gmsaCredentialSpecName: Invalid value: \"\\u003c\": a lowercase RFC 1123 subdomain`, ""},
		{"old eviction", "POST", core + "pods/p/eviction", `{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"p"}}`, 201, `"Success"`, ""},
		{"deployment", "POST", deps, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` + pod + `}}}`, 201, "", ""},
		{"another's scale", "PATCH", deps + "/d/scale", `{"metadata":{"name":"e"}}`, 400, "the name of the object (e) does not match the name on the URL (d)", ""},
		{"odd scale", "PATCH", deps + "/d/scale", `{"bogus":1}`, 200, "", `unknown field \"bogus\"`},
		{"some host processes", "POST", core + "pods", `{"metadata":{"name":"h"},"spec":{"containers":[{"name":"c","image":"i","securityContext":{"windowsOptions":{"hostProcess":true}}},{"name":"d","image":"i"}]}}`, 422,
			`[spec: Invalid value: \"\": If pod contains any hostProcess containers then all containers must be HostProcess containers, spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers]`, ""},
		{"address", "POST", core + "services", `{"metadata":{"name":"s"},"spec":{"clusterIP":"x"}}`, 422, `is invalid: spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address`, ""},
		{"claim", "POST", core + "persistentvolumeclaims", `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, 201, "", ""},
		{"claim of less than nothing", "PATCH", core + "persistentvolumeclaims/c/status", `{"status":{"allocatedResources":{"storage":"-1"}}}`, 422, `status.allocatedResources[storage]: Invalid value: -1: must be a valid resource quantity`, ""},
		{"claim in no state", "PATCH", core + "persistentvolumeclaims/c/status", `{"status":{"allocatedResourceStatuses":{"storage":"x"}}}`, 422, `status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: \"ControllerResizeInProgress\"`, ""},
		{"range with bits", "POST", net + "namespaces/default/networkpolicies", `{"metadata":{"name":"n"},"spec":{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.1.2.3/24"}}]}]}}`, 422, `ipBlock.cidr: Invalid value: \"10.1.2.3/24\": must not have bits set beyond the prefix length`, ""},
		{"range", "POST", net + "servicecidrs", `{"metadata":{"name":"c"},"spec":{"cidrs":["192.168.0.0/24"]}}`, 201, "", ""},
		{"other range", "PATCH", net + "servicecidrs/c", `{"spec":{"cidrs":["192.168.1.0/24"]}}`, 422, `spec.cidrs[0]: Invalid value: \"192.168.1.0/24\": field is immutable`, ""},
		{"container resource", "POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `{"metadata":{"name":"h"},"spec":{"maxReplicas":2,"scaleTargetRef":{"kind":"D","name":"d"},"metrics":[{"type":"ContainerResource","containerResource":{"name":"x","container":"c","target":{"type":"Utilization","averageUtilization":5}}}]}}`, 422,
			`spec.metrics[0].containerResource.name: Invalid value: \"x\": must be a standard resource for containers`, ""},
		{"definition of a generated name", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.x.example.com","generateName":"x"},"spec":{"group":"x.example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, 422, `metadata.generateName: Invalid value: \"x\": must be spec.names.plural+\".\"+spec.group`, ""},
		{"definition with a hollow schema", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.x.example.com"},"spec":{"group":"x.example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{}},{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","nullable":true}}}]}}`, 422,
			`[spec.versions[0].schema.openAPIV3Schema: Required value, spec.versions[1].schema.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root]`, ""},
		{"definition with a hollow schema, selectable", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.x.example.com"},"spec":{"group":"x.example.com","scope":"Cluster","names":{"plural":"as","kind":"A"},
			"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.a"}],"schema":{}}]}}`, 422, `is invalid: spec.versions[0].schema.openAPIV3Schema: Required value"`, ""},
		{"older version", "POST", deps, `{"apiVersion":"apps/v1beta1","kind":"Deployment","metadata":{"name":"d"}}`, 400, `the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)`, ""},
		{"older definition", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition"}`, 400, `the API version in the data (apiextensions.k8s.io/v1beta1) does not match`, ""},
		{"patch to no kind", "PATCH", deps + "/d", `{"kind":"Foo"}`, 422, `no kind \"Foo\" is registered for version \"apps/v1\" in scheme \"pkg/runtime/scheme.go:111\"`, ""},
		{"patch to no version", "PATCH", deps + "/d?dryRun=All", `{"apiVersion":null}`, 400, `the name of the object (d based on URL) was undeterminable: name must be provided`, `unknown field \"metadata\"`},
		{"patch to no version, of wrong types", "PATCH", deps + "/d?dryRun=All", `{"apiVersion":null,"spec":{"replicas":"x"}}`, 400, `the name of the object (d based on URL) was undeterminable: name must be provided`, `unknown field \"metadata\"`},
		{"patch to no kind of no version", "PATCH", deps + "/d", `{"apiVersion":null,"kind":"Foo"}`, 422, `no kind \"Foo\" is registered for the internal version of group \"apps\" in scheme \"pkg/runtime/scheme.go:111\"`, ""},
		{"patch to a version of many parts", "PATCH", deps + "/d", `{"apiVersion":"a/b/c"}`, 422, `\": unexpected GroupVersion string: a/b/c"`, ""},
		{"patch to a revision that is none", "PATCH", deps + "/d", `{"metadata":{"resourceVersion":"x"}}`, 500, `"message":"strconv.ParseUint: parsing \"x\": invalid syntax","code":500`, ""},
		{"patch of a prefix", "PATCH", deps + "/d", `{"metadata":{"generateName":"a/b"}}`, 422, `metadata.generateName: Invalid value: \"a/b\": may not contain '/'`, ""},
		{"created with a revision", "POST", core + "configmaps", `{"metadata":{"name":"v","resourceVersion":"5"}}`, 500, `resourceVersion should not be set on objects to be created`, ""},
		{"created with a revision, tried", "POST", core + "configmaps?dryRun=All", `{"metadata":{"name":"v","resourceVersion":"5"}}`, 201, `"resourceVersion":"5"`, ""},
		{"created with a revision that is none", "POST", core + "configmaps", `{"metadata":{"name":"v","resourceVersion":"x"}}`, 201, ``, ""},
		{"review with times", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"metadata":{"selfLink":"x","uid":"y"},"spec":{"nonResourceAttributes":{"path":"/x","verb":"get"}}}`, 201, `"allowed":true`, ""},
		{"claim of other things", "PATCH", core + "persistentvolumeclaims/c/status", `{"status":{"allocatedResources":{"cpu":"1"}}}`, 422, `status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\"`, ""},
		{"counted by letters", "POST", "/apis/apps/v1/namespaces/default/daemonsets", `{"metadata":{"name":"g","annotations":{"deprecated.daemonset.template.generation":"x"}}}`, 400, `DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strconv.ParseInt: parsing \"x\": invalid syntax`, ""},
		{"older version with more", "POST", deps + "?fieldValidation=Strict", `{"apiVersion":"apps/v1beta1","kind":"Deployment","nope":1}`, 400, `Deployment in version \"v1beta1\" cannot be handled as a Deployment: strict decoding error: unknown field \"nope\"`, ""},
		{"patch to another kind", "PATCH", deps + "/d", `{"apiVersion":"v1","kind":"Secret","data":{"a":"b"}}`, 422, `illegal base64 data at input byte 0`, ""},
		{"patch to another kind that fits", "PATCH", deps + "/d", `{"apiVersion":"v1","kind":"Binding"}`, 422, `converting (v1.Binding) to (apps.Deployment): unknown conversion`, ""},
		{"patch to no version, strictly", "PATCH", deps + "/d?fieldValidation=Strict", `{"apiVersion":null}`, 422, `strict decoding error: unknown field \"metadata\", unknown field \"spec\", unknown field \"status\"`, ""},
		{"options of another kind", "DELETE", core + "configmaps?labelSelector=a%3Db", `{"kind":"Pod","apiVersion":"v1"}`, 400, `no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"`, ""},
		{"options of another kind for one", "DELETE", core + "configmaps/nope", `{"kind":"Pod","apiVersion":"v1"}`, 400, `no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"`, ""},
		{"options of another kind of no group", "DELETE", core + "configmaps/nope", `{"kind":"Pod"}`, 400, `no kind \"Pod\" is registered for version \"meta.k8s.io/v1\" in scheme`, ""},
		{"status for options", "DELETE", core + "configmaps?labelSelector=a%3Db", `{"kind":"Status","apiVersion":"v1"}`, 400, `converting (v1.Status) to (v1.DeleteOptions): unknown conversion`, ""},
		{"options of any version, of wrong types", "DELETE", core + "configmaps/nope", `{"kind":"DeleteOptions","apiVersion":"nope/v1","gracePeriodSeconds":"x"}`, 400, `"message":"json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"`, ""},
		{"impossible name", "PUT", core + "configmaps/..", `{"metadata":{"name":".."}}`, 400, `Name parameter invalid: \"..\": may not be '..'`, ""},
		{"impossible name of no object", "PUT", core + "configmaps/..", `{}`, 400, `the name of the object (.. based on URL) was undeterminable: name must be provided`, ""},
		{"impossible name and options", "PATCH", deps + "/a%25b?dryRun=x", `{}`, 422, `PatchOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]`, ""},
		{"impossible name and options of scale", "PATCH", deps + "/a%25b/scale?dryRun=x", `{}`, 422, `PatchOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]`, ""},
		{"impossible name and options of its end", "DELETE", core + "configmaps/a%25b", `{"dryRun":["x"]}`, 422, `DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value`, ""},
		{"scale of no kind", "PATCH", deps + "/d/scale?fieldManager=f", `{"bogus":1,"metadata":{"name":"d"}}`, 400, `invalid object type: /, Kind=`, ""},
		{"token bound to nothing", "POST", core + "serviceaccounts/default/token", `{"spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1"}}}`, 400, `"message":"Name parameter required."`, ""},
		{"metrics forgotten", "DELETE", "/metrics", ``, 200, "metrics reset\n", ""},
		{"finalizers of a review", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"metadata":{"finalizers":["a.b/c"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},"spec":{"token":"x"}}`, 201, `{"f:metadata":{"f:finalizers":{".":{},"v:\"a.b/c\"":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"u\"}":{}}},"f:spec":{"f:token":{}}}`, ""},
		{"review of a blank token", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":" "}}`, 201, `"status":{"authenticated":true,"user":{"username":"system:anonymous","groups":["system:unauthenticated"]},"audiences":["`, ""},
		{"service without a name", "POST", core + "services", `{}`, 422, `"message":"Service \"\" is invalid: spec.clusterIPs: Invalid value: [\"\"]: failed to allocate IP: IPAddress.networking.k8s.io \"10.96.`, ""},
		{"another's uid for what is not there", "PUT", core + "limitranges/absent", `{"metadata":{"name":"absent","uid":"x"}}`, 409, `Operation cannot be fulfilled on limitranges \"absent\": StorageError: invalid object, Code: 4, Key: /registry/limitranges/default/absent, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: x, UID in object meta: "`, ""},
		{"selected thing", "POST", core + "podtemplates", `{"metadata":{"name":"a","labels":{"a":"b"}},"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`, 201, ``, ""},
		{"last of those selected", "GET", core + "podtemplates?limit=1&labelSelector=a", ``, 200, `"metadata":{"resourceVersion":"`, ""},
		{"thing after it", "POST", core + "podtemplates", `{"metadata":{"name":"b"},"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`, 201, ``, ""},
		{"page before things not selected", "GET", core + "podtemplates?limit=1&labelSelector=a", ``, 200, `","continue":"`, ""},
		{"page of one name", "GET", core + "podtemplates?limit=1&fieldSelector=metadata.name%3Da", ``, 200, `"},"items":[{"metadata":{"name":"a"`, ""},
		{"page of one name without a namespace", "GET", "/api/v1/namespaces?limit=1&fieldSelector=metadata.name%3Ddefault", ``, 200, `"},"items":[{"metadata":{"name":"default"`, ""},
		{"one name of many namespaces", "GET", "/api/v1/podtemplates?limit=1&fieldSelector=metadata.name%3Da", ``, 200, `","continue":"`, ""},
		{"first event", "POST", core + "events", `{"metadata":{"name":"e1"},"involvedObject":{"namespace":"default"}}`, 201, ``, ""},
		{"second event", "POST", core + "events", `{"metadata":{"name":"e2"},"involvedObject":{"namespace":"default"}}`, 201, ``, ""},
		{"page of events of any time", "GET", core + "events?limit=1&resourceVersion=0", ``, 200, `"remainingItemCount":1`, ""},
		{"review of a token that is not signed", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9.AAAA"}}`, 201, `"error":"[invalid bearer token, `, ""},
		{"token of another", "POST", core + "serviceaccounts/default/token", `{"metadata":{"uid":"x"}}`, 409, `Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"default\": the UID in the token request (x) does not match the UID of the service account (`, ""},
		{"pod of the runtime class without a name", "POST", core + "pods?dryRun=All", `{"metadata":{"name":"r"},"spec":{"runtimeClassName":"","containers":[{"name":"c","image":"i"}]}}`, 201, "", ""},
		{"pod of no node", "POST", core + "pods", `{"metadata":{"name":"lost"},"spec":{"nodeName":"nowhere","containers":[{"name":"c","image":"i"}]}}`, 201, "", ""},
		{"log of no node", "GET", core + "pods/lost/log", ``, 404, `"message":"pods \"nowhere\" not found","reason":"NotFound","details":{"name":"nowhere","kind":"pods"}`, ""},
		{"exec on no node", "POST", core + "pods/lost/exec?command=a", ``, 404, `"message":"pods \"nowhere\" not found","reason":"NotFound","details":{"name":"nowhere","kind":"pods"}`, ""},
		{"log of one stream", "GET", core + "pods/lost/log?stream=&tailLines=-1", ``, 422, `PodLogOptions \"lost\" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, stream: Forbidden: may not be specified]`, ""},
		{"log of some lines", "GET", core + "pods/lost/log?tailLines=x", ``, 400, `"message":"strconv.ParseInt: parsing \"x\": invalid syntax"`, ""},
		{"port that is none", "POST", core + "pods/lost/portforward?ports=80,99999", ``, 400, `"message":"cannot convert to []int32: strconv.ParseUint: parsing \"99999\": value out of range"`, ""},
		{"headless service", "POST", core + "services", `{"metadata":{"name":"headless"},"spec":{"clusterIP":"None"}}`, 201, `"ipFamilies":["IPv4","IPv6"]`, ""},
		{"headless service of the other family", "PATCH", core + "services/headless", `{"spec":{"ipFamilies":["IPv6"]}}`, 422, `spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary IP family`, ""},
		{"ranges of one family, one with bits", "POST", net + "servicecidrs?dryRun=All", `{"metadata":{"name":"two"},"spec":{"cidrs":["192.168.0.0/24","192.168.1.1/24"]}}`, 422, `[spec.cidrs[1]: Invalid value: \"192.168.1.1/24\": must not have bits set beyond the prefix length, spec.cidrs: Invalid value: [\"192.168.0.0/24\",\"192.168.1.1/24\"]: may specify no more than one IP`, ""},
		{"other range and one more", "PATCH", net + "servicecidrs/c", `{"spec":{"cidrs":["192.168.1.0/24","x"]}}`, 422, `[spec.cidrs[0]: Invalid value: \"192.168.1.0/24\": field is immutable, spec.cidrs[1]: Invalid value: \"x\": must be a valid CIDR value`, ""},
		{"status of a deployment", "PATCH", deps + "/d/status", `{"status":{"readyReplicas":3,"terminatingReplicas":-1}}`, 422, `[status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0, status.readyReplicas: Invalid value: 3: cannot be greater than status.replicas]`, ""},
		{"claim with a selector and modes that are none", "POST", core + "persistentvolumeclaims", `{"metadata":{"name":"d"},"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"x"}]},"accessModes":["y"],"resources":{"requests":{"storage":"1Gi"}}}}`, 422, `[spec.selector.matchExpressions[0].operator: Invalid value: \"x\": not a valid selector operator, spec.accessModes: Unsupported value: \"y\"`, ""},
		{"event of no name and of no controller", "POST", core + "events", `{"involvedObject":{"namespace":"default"},"eventTime":"2026-01-01T00:00:00.000000Z","reportingInstance":"i","action":"a","reason":"r"}`, 422, `Event \"\" is invalid: [reportingComponent: Required value, reportingComponent: Invalid`, ""},
		{"metric of a name that is none", "POST", scalers, `{"metadata":{"name":"m"},"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"},"metrics":[{"type":"ContainerResource","containerResource":{"name":"<x>","container":"c","target":{"type":"Utilization","averageUtilization":5}}}]}}`, 422, `[spec.metrics[0].containerResource.name: Invalid value: \"\u003cx\u003e\": name part must consist of`, ""},
		{"scale with a prefix", "PATCH", deps + "/d/scale", `{"metadata":{"generateName":"/"},"spec":{"replicas":-1}}`, 422, `Scale.autoscaling \"d\" is invalid: [metadata.generateName: Invalid value: \"/\": a lowercase RFC 1123 subdomain`, ""},
		{"applied with a revision that is none", "PATCH", core + "configmaps/revised?fieldManager=f", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"revised","resourceVersion":"x"}}`, 500, `"message":"strconv.ParseUint: parsing \"x\": invalid syntax","code":500`, ""},
		{"applied with a revision, tried", "PATCH", core + "configmaps/revised?fieldManager=f&dryRun=All", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"revised","resourceVersion":"5"}}`, 201, `"resourceVersion":"5"`, ""},
		{"applied with a revision", "PATCH", core + "configmaps/revised?fieldManager=f", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"revised","resourceVersion":"5"}}`, 201, `"name":"revised"`, ""},
		{"owner of a version that is gone", "PUT", core + "configmaps/revised", `{"metadata":{"name":"revised","managedFields":[{"manager":"a","operation":"Update","apiVersion":"x","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}},{"manager":"b","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:immutable":{}}}]},"data":{"a":"b"},"immutable":false}`, 200, `"managedFields":[{"manager":"`, ""},
		{"one owner twice", "PUT", core + "configmaps/revised", `{"metadata":{"name":"revised","managedFields":[{"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}},{"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:immutable":{}}}]},"data":{"a":"b"},"immutable":false}`, 200, `"managedFields":[{"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:immutable":{}}}]`, ""},
		{"balanced service", "POST", core + "services", `{"metadata":{"name":"balanced"},"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local","ports":[{"port":1}]}}`, 201, "", ""},
		{"other health port", "PATCH", core + "services/balanced", `{"spec":{"healthCheckNodePort":3}}`, 422, `is invalid: spec.healthCheckNodePort: Forbidden: field is immutable`, ""},
		{"revision with spaces", "POST", "/apis/apps/v1/namespaces/default/controllerrevisions", `{"metadata":{"name":"r"},"revision":1,"data":{"b": 1}}`, 201, `"data":{"b":1}`, ""},
		{"revision that is patched", "PATCH", "/apis/apps/v1/namespaces/default/controllerrevisions/r", `{"metadata":{"labels":{"a":"b"}}}`, 422, `is invalid: data: Invalid value: {\"b\":1}: field is immutable`, ""},
		{"ranges of one family", "POST", net + "servicecidrs?dryRun=All", `{"metadata":{"name":"two"},"spec":{"cidrs":["192.168.0.0/24","192.168.1.0/24"]}}`, 422, `spec.cidrs: Invalid value: [\"192.168.0.0/24\",\"192.168.1.0/24\"]: may specify no more than one IP`, ""},
		{"quota of no scope", "POST", core + "resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"requests.storage":"1Gi"},"scopes":["x"]}}`, 422, `"message":"ResourceQuota \"q\" is invalid: spec.scopes: Invalid value: [\"x\"]: unsupported scope"`, ""},
		{"old names of profiles", "POST", core + "pods", `{"metadata":{"name":"old","annotations":{"seccomp.security.alpha.kubernetes.io/pod":"x","container.seccomp.security.alpha.kubernetes.io/c":"localhost//x"}},` + pod + `}`, 422, `[metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"x\": must be a valid seccomp profile, metadata.annotations.container.seccomp.security.alpha.kubernetes.io/c: Invalid value: \"/x\": must be a relative path]`, ""},
		{"old tolerations", "POST", core + "pods", `{"metadata":{"name":"old","annotations":{"scheduler.alpha.kubernetes.io/tolerations":"{}"}},` + pod + `}`, 422, `metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/tolerations\": json: cannot unmarshal object into Go value of type []core.Toleration`, ""},
		{"old taints", "POST", "/api/v1/nodes", `{"metadata":{"name":"old","annotations":{"scheduler.alpha.kubernetes.io/taints":"x","scheduler.alpha.kubernetes.io/preferAvoidPods":"[]"}}}`, 422, `[metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/taints\": invalid character 'x' looking for beginning of value, metadata.annotations.AvoidPods: Invalid value: \"scheduler.alpha.kubernetes.io/preferAvoidPods\": json: cannot unmarshal array into Go value of type v1.AvoidPods]`, ""},
		{"old mount options", "POST", "/api/v1/persistentvolumes", `{"metadata":{"name":"old","annotations":{"volume.beta.kubernetes.io/mount-options":"x"}},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1"},"hostPath":{"path":"/x"}}}`, 422, `metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type`, ""},
		{"job with a selector", "POST", jobs, `{"metadata":{"name":"manual"},"spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, 201, "", ""},
		{"job with a selector, given up", "PATCH", jobs + "/manual", `{"spec":{"manualSelector":false}}`, 422, `Required value: must be 'manual', spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `, ""},
		{"attached volume of two kinds", "POST", "/apis/storage.k8s.io/v1/volumeattachments", `{"metadata":{"name":"a"},"spec":{"attacher":"a","nodeName":"n","source":{"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"nfs":{"path":"/x"},"csi":{"driver":"d","volumeHandle":"h","nodeExpandSecretRef":{"name":"x"}}}}}}`, 422, `is invalid: [spec.source.inlineVolumeSpec.nfs.server: Required value, spec.source.inlineVolumeSpec.csi: Forbidden: may not specify more than 1 volume type]`, ""},
		{"pod of a node of no name", "POST", core + "pods", `{"metadata":{"name":"odd"},"spec":{"nodeName":"/a","containers":[{"name":"c","image":"i"}]}}`, 422, `spec.nodeName: Invalid value: \"/a\": a lowercase RFC 1123 subdomain`, ""},
		{"namespace of another uid", "DELETE", "/api/v1/namespaces/default", `{"preconditions":{"uid":"x"}}`, 409, `Operation cannot be fulfilled on namespaces \"default\": Precondition failed: UID in precondition: x, UID in object meta: `, ""},
		{"proxy to no service", "GET", core + "services/nope/proxy/x", ``, 404, `services \"nope\" not found`, ""},
		{"page", "GET", "/api/v1/namespaces?limit=1", ``, 200, `"continue":"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6`, ""},
		{"page after a list", "GET", core + "configmaps?continue=W10", ``, 400, `json: cannot unmarshal array into Go value of type storage.continueToken`, ""},
		{"watch of what cannot be watched", "GET", "/api/v1/componentstatuses?watch=1", ``, 405, `watch is not supported on resources of kind \"componentstatuses\"`, ""},
		{"watch of what will go", "GET", core + "endpoints?watch=1&timeoutSeconds=1", ``, 200, ``, "v1 Endpoints is deprecated"},
		{"watch of the future", "GET", core + "configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999", ``, 200, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 99999999, current: `, ""},
		{"controller", "POST", core + "replicationcontrollers", `{"metadata":{"name":"r"},"spec":{"template":{"metadata":{"labels":{"a":"b"}},` + pod + `}}}`, 201, "", ""},
		{"controller with a deprecated selector", "PATCH", core + "replicationcontrollers/r", `{"spec":{"template":{"spec":{"nodeSelector":{"beta.kubernetes.io/os":"x"}}}}}`, 200, "", `spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14`},
		{"controller without it", "PATCH", core + "replicationcontrollers/r", `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`, 200, "", ""},
		{"driver", "POST", "/apis/storage.k8s.io/v1/csidrivers", `{"metadata":{"name":"d.x"},"spec":{"attachRequired":true}}`, 201, "", ""},
		{"driver that is attached no more", "PATCH", "/apis/storage.k8s.io/v1/csidrivers/d.x", `{"spec":{"attachRequired":false}}`, 422, `spec.attachRequired: Invalid value: false: field is immutable`, ""},
		{"attachment", "POST", "/apis/storage.k8s.io/v1/volumeattachments", `{"metadata":{"name":"va"},"spec":{"attacher":"d.x","nodeName":"n","source":{"persistentVolumeName":"v"}}}`, 201, "", ""},
		{"attachment with a long error", "PATCH", "/apis/storage.k8s.io/v1/volumeattachments/va/status", `{"status":{"attachError":{"message":"` + strings.Repeat("x", 1025) + `"}}}`, 422, `status.attachError.message: Too long: may not be more than 1024 bytes`, ""},
		{"autoscaler", "POST", scalers, `{"metadata":{"name":"counted"},"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"}}}`, 201, `"generation":1`, ""},
		{"autoscaler with more", "PATCH", scalers + "/counted", `{"spec":{"maxReplicas":3}}`, 200, `"generation":2`, ""},
		{"autoscaler with a label", "PATCH", scalers + "/counted", `{"metadata":{"labels":{"a":"b"}}}`, 200, `"generation":2`, ""},
		{"autoscaler's status", "PATCH", scalers + "/counted/status", `{"status":{"desiredReplicas":2}}`, 200, `"generation":2`, ""},
		{"controller's status", "PUT", core + "replicationcontrollers/r/status", `{"metadata":{"name":"r"}}`, 200, `"labels":{"a":"b"}},"spec":`, ""},
		{"watch by POST", "POST", "/api/v1/watch/namespaces/default/configmaps/m", `{}`, 405, `the server does not allow this method on the requested resource`, ""},
		{"set", "POST", "/apis/apps/v1/namespaces/default/daemonsets", `{"metadata":{"name":"g"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` + pod + `}}}`, 201, "", ""},
		{"patched to letters", "PATCH", "/apis/apps/v1/namespaces/default/daemonsets/g", `{"metadata":{"name":"g","annotations":{"deprecated.daemonset.template.generation":"x"}}}`, 422, `strconv.ParseInt: parsing \"x\": invalid syntax`, ""},
		{"finalizer of a role", "PUT", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r", `{"metadata":{"name":"r","finalizers":["b!"]}}`, 422,
			`"field":"metadata.finalizers"},{"reason":"FieldValueInvalid","message":"Invalid value: \"b!\": name is neither a standard finalizer name nor is it fully qualified","field":"metadata.finalizers[0]"}]`, ""},
		{"handler", "POST", "/apis/node.k8s.io/v1/runtimeclasses", `{"metadata":{"name":"h"},"handler":"h"}`, 201, "", ""},
		{"no handler and another uid", "PATCH", "/apis/node.k8s.io/v1/runtimeclasses/h", `{"metadata":{"uid":"x"},"handler":null}`, 422, `"field":"metadata.uid"},{"reason":"FieldValueRequired","message":"Required value","field":"handler"}`, ""},
		{"volume", "POST", "/api/v1/persistentvolumes", `{"metadata":{"name":"twice"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1"},"hostPath":{"path":"/x"}}}`, 201, "", ""},
		{"order of a volume's findings", "PATCH", "/api/v1/persistentvolumes/twice", `{"metadata":{"finalizers":["x"]},"spec":{"persistentVolumeReclaimPolicy":"x"}}`, 422, `fully qualified, spec.persistentVolumeReclaimPolicy: Unsupported value`, ""},
		{"node", "POST", "/api/v1/nodes", `{"metadata":{"name":"ordered"}}`, 201, "", ""},
		{"order of a node's findings", "PATCH", "/api/v1/nodes/ordered", `{"metadata":{"uid":"x"},"spec":{"taints":[{"key":"a","effect":"y"}]}}`, 422, `"field":"metadata.uid"},{"reason":"FieldValueNotSupported","message":"Unsupported value: \"y\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"","field":"metadata.taints[0].effect"}]`, ""},
		{"secret", "POST", core + "secrets", `{"metadata":{"name":"ordered"}}`, 201, "", ""},
		{"order of a secret's findings", "PATCH", core + "secrets/ordered", `{"metadata":{"generateName":"A_"},"type":"y"}`, 422, `"field":"metadata.generateName"},{"reason":"FieldValueInvalid","message":"Invalid value: \"y\": field is immutable","field":"type"}]`, ""},
		{"address in use, for a trial", "POST", core + "services?dryRun=All", `{"metadata":{"name":"s"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":1}]}}`, 201, "", ""},
		{"malformed addresses alone", "POST", core + "services", `{"metadata":{"name":"a","generation":-7},"spec":{"ipFamilies":["x"],"ports":[{"port":1}]}}`, 422, `Service \"a\" is invalid: spec.ipFamilies[0]: Unsupported value: \"x\": supported values: \"IPv4\", \"IPv6\"","reason"`, ""},
		{"no handler", "PATCH", "/apis/node.k8s.io/v1/runtimeclasses/h", `{"handler":null}`, 422, `[handler: Required value, handler: Invalid value: \"\": field is immutable]`, ""},
		{"name outside", "POST", core + "services?dryRun=All", `{"metadata":{"name":"x"},"spec":{"type":"ExternalName","externalName":"a.b","internalTrafficPolicy":"Cluster"}}`, 201, `"spec":{"type":"ExternalName","sessionAffinity":"None","externalName":"a.b"}`, ""},
		{"review in a namespace", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"metadata":{"name":"q","namespace":"x"},"spec":{"token":"x"}}`, 201, `"metadata":{"name":"q","managedFields"`, ""},
		{"patch to a number", "PATCH", deps + "/d", `{"kind":1}`, 422, `couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string`, ""},
		{"applied number", "PATCH", deps + "/d?fieldManager=f", `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"paused":1099511627776}}`, 500, `.spec.paused: expected boolean, got \u0026{1099511627776}`, ""},
		{"applied time", "PATCH", deps + "/d?fieldManager=f", `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":1.5}}`, 500, `to proper version: unable to convert unstructured object to apps/v1, Kind=Deployment: cannot convert float64 to int32`, ""},
		{"long job", "POST", jobs, `{"metadata":{"name":"` + strings.Repeat("j", 64) + `"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, 422, ` is invalid: spec.template.labels: Invalid value: `, ""},
		{"another's uid, tried", "PUT", core + "persistentvolumeclaims/c?dryRun=All", `{"metadata":{"name":"c","uid":"x"}}`, 409, `Code: 4, Key: /persistentvolumeclaims/default/c, ResourceVersion: 0`, ""},
		{"huge limit", "POST", core + "limitranges", `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","min":{"cpu":"1"},"max":{"cpu":"4"},"maxLimitRequestRatio":{"cpu":"10"}}]}}`, 422, `ratio 10 is greater than max/min = 4.000000`, ""},
		{"inline volume", "POST", "/apis/storage.k8s.io/v1/volumeattachments", `{"metadata":{"name":"v"},"spec":{"attacher":"a.b","nodeName":"n","source":{"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1"}}}}}`, 422,
			`[spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes, spec.source.inlineVolumeSpec.csi: Required value: has to be specified`, ""},
		{"mirror of a pod with an account", "POST", core + "pods", `{"metadata":{"name":"m","annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"serviceAccountName":"default","containers":[{"name":"c","image":"i"}]}}`, 403, `pods \"m\" is forbidden: a mirror pod may not reference service accounts`, ""},
		{"another pod", "POST", core + "pods", `{"metadata":{"name":"q"},` + pod + `}`, 201, "", ""},
		{"claim of no container", "PATCH", core + "pods/q/status", `{"status":{"extendedResourceClaimStatus":{"resourceClaimName":"r","requestMappings":[{"containerName":"x","resourceName":"a.b/c","requestName":"q"}]}}}`, 422,
			`status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: \"x\": must match the name of an entry in spec.initContainers.name or spec.containers.name`, ""},
		{"health of what was not asked for", "PATCH", core + "pods/q/status", `{"status":{"containerStatuses":[{"name":"c","ready":true,"restartCount":0,"image":"i","imageID":"","allocatedResourcesStatus":[{"name":"a.b/c"}]}]}}`, 422,
			`status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: \"a.b/c\": must match one of the container's resource requests`, ""},
		{"status with a bad label", "PATCH", core + "pods/q/status", `{"metadata":{"generateName":"Bad_","finalizers":["x"]}}`, 422, `is invalid: metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified"`, ""},
		{"no field of jobs", "GET", jobs + "?fieldSelector=status.x%3Dy", ``, 400, `field label \"status.x\" not supported for Job`, ""},
		{"no field of replica sets", "GET", "/apis/apps/v1/replicasets?fieldSelector=status.replicas%3D1", ``, 400, `\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"`, ""},
		{"autoscaler", "POST", scalers, `{"metadata":{"name":"h"},"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"D","name":"d"},"metrics":[{"type":"Resource","resource":{"name":"memory","target":{"type":"Utilization","averageUtilization":5}}}]}}`, 201, "", ""},
		{"patch to the older version", "PATCH", scalers + "/h?dryRun=All", `{"apiVersion":"autoscaling/v1"}`, 200, `"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]`, `unknown field \"spec.metrics\"`},
		{"patch to the older version, strictly", "PATCH", scalers + "/h?dryRun=All&fieldValidation=Strict", `{"apiVersion":"autoscaling/v1"}`, 422, `strict decoding error: unknown field \"spec.metrics\"`, ""},
		{"patch to the newer version", "PATCH", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h?dryRun=All", `{"apiVersion":"autoscaling/v2","spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":7}}}]}}`, 200, `"targetCPUUtilizationPercentage":7`, ""},
		{"event", "POST", core + "events", `{"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","name":"p","namespace":"default"},"reason":"R","message":"m"}`, 201, "", ""},
		{"patch to the event of another group", "PATCH", core + "events/e?dryRun=All", `{"apiVersion":"events.k8s.io/v1","note":"n"}`, 200, `"reason":"R","message":"n"`, `unknown field \"firstTimestamp\"`},
		{"order of an event's findings", "PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/e?dryRun=All", `{"metadata":{"uid":"x"},"regarding":{"namespace":"x"}}`, 422, `[metadata.uid: Invalid value: \"x\": field is immutable, involvedObject.namespace: Invalid value: \"x\": does not match event.namespace, `, ""},
		{"event of another uid", "DELETE", "/apis/events.k8s.io/v1/namespaces/default/events/e", `{"preconditions":{"uid":"x"}}`, 409, `cannot be fulfilled on Event \"e\": the UID in the precondition (x)`, ""},
		{"patch to the event of the core", "PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/e?dryRun=All", `{"apiVersion":"v1","message":"n"}`, 422, `message: Invalid value: \"n\": field is immutable`, `unknown field \"deprecatedFirstTimestamp\"`},
		{"object of a revision that is none", "GET", core + "configmaps/revised?resourceVersion=x", ``, 400, `"message":"invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax","reason":"BadRequest"`, ""},
		{"template with an image volume of no image", "POST", deps, `{"metadata":{"name":"hollow"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"volumes":[{"name":"v","image":{}}],"containers":[{"name":"c","image":"i"}]}}}}`, 422, `spec.template.spec.volumes[0].image.reference: Required value`, ""},
		{"event of a revision that is none", "GET", core + "events/e?resourceVersion=x", ``, 400, `"message":"invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax","reason":"BadRequest"`, ""},
		{"event of the future", "GET", core + "events/e?resourceVersion=99999999", ``, 504, `"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}`, ""},
		{"nothing between name and subresource", "DELETE", core + "pods/q//log", ``, 404, `the server could not find the requested resource`, ""},
		{"nothing between name and subresource, read", "GET", deps + "/d//scale", ``, 404, `the server could not find the requested resource`, ""},
		{"of no namespace", "GET", "/api/v1/namespaces//configmaps/m", ``, 400, `"message":"Namespace parameter required.","reason":"BadRequest","code":400`, ""},
		{"patch of no namespace", "PATCH", "/api/v1/namespaces//configmaps/m", `{}`, 400, `Namespace parameter required.`, ""},
		{"delete in no namespace", "DELETE", "/apis/apps/v1/namespaces//deployments", ``, 400, `Namespace parameter required.`, ""},
		{"scale of no namespace", "GET", "/apis/apps/v1/namespaces//deployments/d/scale", ``, 400, `Namespace parameter required.`, ""},
		{"scale of nothing", "GET", "/apis/apps/v1/namespaces//deployments//scale", ``, 400, `name must be provided`, ""},
		{"put to no namespace", "PUT", "/apis/apps/v1/namespaces//deployments/d", `{"metadata":{"name":"d"}}`, 400, `Namespace parameter required.`, ""},
		{"put of no name to no namespace", "PUT", "/apis/apps/v1/namespaces//deployments/d", `{}`, 400, `the name of the object (d based on URL) was undeterminable`, ""},
		{"put to what is not put, in no namespace", "PUT", "/api/v1/namespaces//pods/q/log", `{}`, 405, `the server does not allow this method on the requested resource`, ""},
		{"core group among the others", "GET", "/apis//v1", ``, 404, `404 page not found`, ""},
		{"core group's kind among the others", "GET", "/apis//v1/configmaps", ``, 404, `404 page not found`, ""},
		{"root with more slashes", "GET", "/apis//", ``, 404, `404 page not found`, ""},
		{"old watch of what cannot be watched", "GET", "/api/v1/watch/componentstatuses", ``, 404, `the server could not find the requested resource`, ""},
		{"old path of a proxy", "GET", "/api/v1/proxy/nodes/n1", ``, 404, `the server could not find the requested resource`, ""},
		{"namespaces of a namespace", "GET", "/api/v1/namespaces/default/namespaces", ``, 404, `the server could not find the requested resource`, ""},
		{"namespace of a namespace", "PUT", "/api/v1/namespaces/default/namespaces/default", `{}`, 404, `the server could not find the requested resource`, ""},
		{"namespace that is called so", "GET", "/api/v1/namespaces/namespaces", ``, 404, `namespaces \"namespaces\" not found`, ""},
		{"old watch of a subresource", "GET", "/apis/apps/v1/watch/namespaces/default/deployments/d/scale", ``, 404, `the server could not find the requested resource`, ""},
		{"old watch of a subresource by POST", "POST", "/api/v1/watch/namespaces/default/pods/q/status", `{}`, 404, `the server could not find the requested resource`, ""},
		{"old watch of one in no namespace", "GET", "/apis/apps/v1/watch/namespaces//deployments/d?timeoutSeconds=1", ``, 200, `{"type":"ADDED","object":{"kind":"Deployment"`, ""},
		{"old watch of one in no namespace by POST", "POST", "/apis/apps/v1/watch/namespaces//deployments/d", `{}`, 405, `the server does not allow this method on the requested resource`, ""},
		{"old watch of all in no namespace by POST", "POST", "/apis/apps/v1/watch/namespaces//deployments", `{}`, 405, `the server does not allow this method on the requested resource`, ""},
		{"more after a subresource", "POST", core + "pods/q/eviction/x", `{}`, 404, `the server could not find the requested resource`, ""},
		{"log of one stream", "GET", core + "pods/q/log?stream=Stdout", ``, 422, `PodLogOptions \"q\" is invalid: stream: Forbidden: may not be specified`, ""},
		{"log of letters", "GET", core + "pods/q/log?tailLines=x", ``, 400, `"message":"strconv.ParseInt: parsing \"x\": invalid syntax"`, ""},
		{"ports of letters", "GET", core + "pods/q/portforward?ports=x", ``, 400, `"message":"cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax"`, ""},
		{"pod of a node that is none", "POST", core + "pods", `{"metadata":{"name":"o"},"spec":{"nodeName":"none","containers":[{"name":"c","image":"i"}]}}`, 201, ``, ""},
		{"log from a node that is none", "GET", core + "pods/o/log", ``, 404, `pods \"none\" not found`, ""},
		{"command on a node that is none", "GET", core + "pods/o/exec?command=x&stdout=1", ``, 404, `pods \"none\" not found`, ""},
		{"service of no endpoints", "POST", core + "services", `{"metadata":{"name":"empty"},"spec":{"ports":[{"port":80}]}}`, 201, ``, ""},
		{"proxy to a service of no endpoints", "GET", core + "services/empty/proxy/x", ``, 404, `services \"empty\" not found`, ""},
		{"log of a pod of no node", "GET", core + "pods/q/log", ``, 204, ``, ""},
		{"null applied to another", "PATCH", "/apis/y.example.com/v1/namespaces/default/bs/n?fieldManager=f", `{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"n"},"n":null}`, 422, `n: Invalid value: \"null\": n in body must be of type integer: \"null\"`, ""},
		{"namespace", "POST", "/api/v1/namespaces", `{"metadata":{"name":"going"}}`, 201, "", ""},
		{"namespace whose dependents go first", "DELETE", "/api/v1/namespaces/going?orphanDependents=false", ``, 202, `"finalizers":["foregroundDeletion"]`, ""},
		{"namespace that goes already", "DELETE", "/api/v1/namespaces/going?propagationPolicy=Background", ``, 200, `"finalizers":["foregroundDeletion"]`, ""},
		{"event that would orphan", "POST", core + "events", `{"metadata":{"name":"orphaning","finalizers":["orphan"]},"involvedObject":{"namespace":"default"},"type":"Normal"}`, 201, "", ""},
		{"event that orphans nothing", "DELETE", core + "events/orphaning?propagationPolicy=Orphan", ``, 200, `"Success"`, ""},
		{"put to all others", "PUT", "/apis/y.example.com/v1/namespaces/default/bs", `{}`, 400, `"message":"name must be provided"`, ""},
		{"patch of all others", "PATCH", "/apis/y.example.com/v1/namespaces/default/bs/", `{}`, 400, `"message":"name must be provided"`, ""},
		{"posted to another", "POST", "/apis/y.example.com/v1/namespaces/default/bs/x", `{"apiVersion":"y.example.com/v1","kind":"B","metadata":{"name":"b"}}`, 201, ``, ""},
		{"field twice in a value", "PATCH", "/apis/y.example.com/v1/namespaces/default/bs/b?fieldValidation=Strict", `[{"op":"add","path":"/metadata/labels","value":{"a":"1","a":"2"}}]`, 422, `strict decoding error: json patch duplicate field \"[0].value.a\", duplicate field \"metadata.labels.a\"`, ""},
		{"old watch of another of no namespace", "GET", "/apis/y.example.com/v1/watch/bs/b?timeoutSeconds=1", ``, 200, `{"type":"ADDED","object":{"apiVersion":"y.example.com/v1"`, ""},
		{"old watch of another by POST", "POST", "/apis/y.example.com/v1/watch/namespaces/default/bs/b?timeoutSeconds=1", ``, 200, `{"type":"ADDED","object":{"apiVersion":"y.example.com/v1"`, ""},
		{"posted to one of no namespace", "POST", "/api/v1/namespaces//configmaps/m", `{}`, 405, `the server does not allow this method on the requested resource`, ""},
		{"nobody's binding in no namespace", "POST", "/api/v1/namespaces//pods/p/binding", `{"target":{"kind":"Node","name":"n"}}`, 400, `name in URL does not match name in Binding object`, ""},
		{"binding in no namespace", "POST", "/api/v1/namespaces//pods/p/binding", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`, 400, `Namespace parameter required.`, ""},
		{"binding of a name that none has", "POST", core + "pods/P%25/binding", `{}`, 400, `name in URL does not match name in Binding object`, ""},
		{"binding posted to no namespace", "POST", "/api/v1/namespaces//bindings", `{"metadata":{"name":"p","namespace":"default"},"target":{"name":"n"}}`, 400, `Namespace parameter required.`, ""},
		{"binding to nothing in no namespace", "POST", "/api/v1/namespaces//bindings", `{"metadata":{"name":"p"},"target":{}}`, 500, `"message":"target.name: Required value"`, ""},
		{"binding without a name in no namespace", "POST", "/api/v1/namespaces//pods//binding", `{"target":{"name":"n"}}`, 400, `name must be provided`, ""},
		{"nobody's eviction in no namespace", "POST", "/api/v1/namespaces//pods/p/eviction", `{"metadata":{"name":"q"}}`, 400, `name in URL does not match name in Eviction object`, ""},
		{"eviction in no namespace", "POST", "/api/v1/namespaces//pods/p/eviction", `{"metadata":{"name":"p"}}`, 400, `Namespace parameter required.`, ""},
		{"token in no namespace", "POST", "/api/v1/namespaces//serviceaccounts/default/token", `{}`, 400, `Namespace parameter required.`, ""},
		{"another's token in no namespace", "POST", "/api/v1/namespaces//serviceaccounts/default/token", `{"metadata":{"name":"x"}}`, 422, `metadata.name: Invalid value: \"x\": must match the service account name if specified`, ""},
		{"nobody's scale in no namespace", "PUT", "/apis/apps/v1/namespaces//deployments/d/scale", `{"spec":{"replicas":0}}`, 400, `the name of the object (d based on URL) was undeterminable: name must be provided`, ""},
		{"another's scale in no namespace", "PUT", "/apis/apps/v1/namespaces//deployments/d/scale", `{"metadata":{"name":"q"}}`, 400, `the name of the object (q) does not match the name on the URL (d)`, ""},
		{"scale put to no namespace", "PUT", "/apis/apps/v1/namespaces//deployments/d/scale", `{"metadata":{"name":"d","namespace":"x"}}`, 400, `Namespace parameter required.`, ""},
		{"review in no namespace", "POST", "/apis/authorization.k8s.io/v1/namespaces//localsubjectaccessreviews", `{"metadata":{"namespace":"default"},"spec":{"user":"u","resourceAttributes":{"verb":"get"}}}`, 400, `"message":"namespace is required on this type: "`, ""},
		{"review of another namespace in none", "POST", "/apis/authorization.k8s.io/v1/namespaces//localsubjectaccessreviews", `{"spec":{"user":"u","resourceAttributes":{"namespace":"default"}}}`, 422, `spec.resourceAttributes.namespace: Invalid value: \"default\": must match metadata.namespace`, ""},
		{"created in no namespace", "POST", "/api/v1/namespaces//configmaps", `{"metadata":{"name":"x","namespace":"default"}}`, 422, `ConfigMap \"x\" is invalid: metadata.namespace: Required value`, ""},
		{"account of a pod in no namespace", "POST", "/api/v1/namespaces//pods", `{"metadata":{"name":"x"}}`, 403, `error looking up service account /default: serviceaccount \"default\" not found`, ""},
		{"trial of a proxy", "GET", core + "pods/p/proxy/x?dryRun=All", ``, 400, `"message":"dryRun is not supported"`, ""},
		{"trial of nothing by a proxy", "POST", "/api/v1/nodes/none/proxy?dryRun", ``, 400, `"message":"dryRun is not supported"`, ""},
		{"trial of a command in no namespace", "POST", "/api/v1/namespaces//pods//exec?dryRun=", ``, 400, `"message":"dryRun is not supported"`, ""},
		{"trial of a log", "GET", core + "pods/q/log?dryRun=All", ``, 204, ``, ""},
		{"schema that cannot be walked", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd, 422, "$ref is not supported", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, s.Config.Host+tc.path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			if tc.method == http.MethodPatch {
				req.Header.Set("Content-Type", "application/merge-patch+json")
			}
			if strings.HasPrefix(tc.body, "[") {
				req.Header.Set("Content-Type", "application/json-patch+json")
			}
			if strings.Contains(tc.path, "fieldManager=") {
				req.Header.Set("Content-Type", "application/apply-patch+yaml")
			}
			resp, body := testserver.Do(t, client, req)
			warning := resp.Header.Get("Warning")
			if resp.StatusCode != tc.code || !strings.Contains(body, tc.want) || !strings.Contains(warning, tc.warning) || tc.warning == "" && warning != "" {
				t.Errorf("%d %s (warning %q), want %d %s (warning %q)", resp.StatusCode, body, warning, tc.code, tc.want, tc.warning)
			}
		})
	}
}

// define makes a definition of custom resources, and waits until they are served at path.
func define(t *testing.T, client *http.Client, host, definition, path string) {
	t.Helper()
	resp, err := client.Post(host+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", strings.NewReader(definition))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
		resp, err := client.Get(host + path)
		if err != nil {
			return false, err
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestForms looks at answers in other forms than the object's own.
func TestForms(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	const (
		tables = "application/json;as=Table;g=meta.k8s.io;v=v1"
		part   = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		list   = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		pods   = "/api/v1/namespaces/default/pods"
		daemon = "/apis/apps/v1/namespaces/default/daemonsets"

		foreign = "k8s\x00\n\x0f\n\x02v1\x12\x09ConfigMap\x12\x02\n\x00" // of another kind
		initial = "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	)
	for _, step := range []struct {
		method, path, mediaType, body string
		has, hasNone                  string
	}{
		{"POST", "/api/v1/namespaces/default/serviceaccounts", "", `{"metadata":{"name":"default"}}`, "", "Failure"},
		{"POST", pods, "", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, "", "Failure"},
		{"GET", pods + "/p", tables, "", `,"object":`, `"conditions"`},
		{"PATCH", pods + "/p/status", "", `{"status":{"phase":"Succeeded"}}`, "", "Failure"},
		{"GET", pods, tables, "", `"conditions":[{"type":"Completed","status":"True","reason":"Succeeded","message":"The pod has completed successfully."}],"object":`, ""},
		{"POST", "/apis/apps/v1/namespaces/default/deployments", "", `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, "", "Failure"},
		{"POST", daemon, "", `{"metadata":{"name":"d","annotations":{"a":"b"}},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, `"deprecated.daemonset.template.generation":"1"`, ""},
		{"GET", daemon + "/d", part, "", `"annotations":{"a":"b"}`, `"deprecated`},
		{"GET", daemon, tables, "", `"annotations":{"a":"b"}`, `"deprecated`},
		{"GET", "/apis/apps/v1/namespaces/default/deployments/d/scale", part, "", `"kind":"PartialObjectMetadata"`, `"spec"`},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", part, "{}", `"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"creationTimestamp":`, `"userInfo"`},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", list, "{}", `the requested object is not a list (*authentication.SelfSubjectReview)`, ""},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", tables, "{}", `"code": 406`, ""},
		{"POST", "/api/v1/namespaces/default/serviceaccounts/default/token", part, `{"spec":{}}`, `"subresource":"token"`, `"spec":`},
		{"POST", pods + "/p/eviction?dryRun=All", part, `{"metadata":{"name":"p"}}`, `"status":"Success","code":201`, ""},
		{"GET", "/api/v1/limitranges", tables, "", `"rows":null}`, ""},
		{"GET", "/api/v1/resourcequotas", tables, "", `"rows":[]}`, ""},
		{"GET", "/api/v1/resourcequotas", list, "", `"items":null}`, ""},
		{"GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", tables, "", `"rows":[{"cells":["exempt",`, ""},
		{"GET", pods + "/p/log", part, "", `"message": "object does not implement the Object interfaces"`, ""},
		{"GET", pods + "/p/log", list, "", `the requested object is not a list (*rest.LocationStreamer)`, ""},
		{"GET", "/openapi/v3/apis/apps/v1", "*/json", "", `"/apis/apps/v1/deployments"`, ""},
		{"GET", pods + "/p/resize", tables, "", `"code": 406`, ""},
		{"GET", pods + "/p/status", tables, "", `"kind":"Table"`, ""},
		{"GET", "/apis", "*/json", "", `"code": 406`, ""},
		{"GET", "/apis/events.k8s.io/v1/events", part, "", `the requested object is a list (*core.EventList)`, ""},
		{"PUT", "/api/v1/namespaces/default/finalize", tables, "{}", `"code": 406`, ""},
		{"GET", "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "", "io.k8s.api.core.v1.Pod", `"status":"Failure"`},
		{"GET", pods + "?watch=1&timeoutSeconds=1", list, "", "", `"type"`},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", part, `{"spec":{"namespace":"default"}}`, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}`, ""},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", list, `{"spec":{"namespace":"default"}}`, `the requested object is not a list (*authorization.SelfSubjectRulesReview)`, ""},
		{"POST", pods + "/d/eviction?dryRun=All", list, `{"metadata":{"name":"q"}}`, `name in URL does not match name in Eviction object`, ""},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", tables, `{"spec":{"token":"t"}}`, `only the following media types are accepted`, ""},
		{"GET", pods + initial, "", "", `"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}`, ""},
		{"GET", pods + initial, part, "", `"k8s.io/initial-events-end":"true"}}}}`, ""},
		{"GET", pods + initial, "application/vnd.kubernetes.protobuf", "", "k8s.io/initial-events-end\x12\x04true\x12", ""},
		{"GET", pods + initial + "&includeObject=Object", tables, "", `"spec":{"containers":null},"status":{}}}]}}`, ""},
		{"GET", "/apis/autoscaling/v1/horizontalpodautoscalers" + initial, "", "", `"k8s.io/initial-events-end":"true"}},"spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},"status":{`, ""},
		{"POST", pods + "/p/eviction", "", foreign, `converting (v1.ConfigMap) to (policy.Eviction): unknown conversion`, ""},
		{"DELETE", pods + "/p", "", foreign, `no kind \"ConfigMap\" is registered for version \"v1\" in scheme`, ""},
		{"POST", "/api/v1/namespaces/default/configmaps", "", strings.Replace(foreign, "v1", "v2", 1), `no kind \"ConfigMap\" is registered for version \"v2\" in scheme`, ""},
		{"GET", "/openapi/v3/api/v1", "application/json", "", `"/api/v1/watch/pods"`, "sinceTime-"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), step.method, s.Config.Host+step.path, strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", step.mediaType)
		req.Header.Set("Content-Type", "application/json")
		if strings.HasPrefix(step.body, "k8s\x00") {
			req.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf")
		}
		if step.method == http.MethodPatch {
			req.Header.Set("Content-Type", "application/merge-patch+json")
		}
		_, body := testserver.Do(t, client, req)
		if !strings.Contains(body, step.has) || step.hasNone != "" && strings.Contains(body, step.hasNone) {
			t.Errorf("%s %s as %q: %.2000s, want %s in it, and not %s", step.method, step.path, step.mediaType, body, step.has, step.hasNone)
		}
	}
}

// TestLengths looks at which answers tell their length: those that fit into what
// net/http holds back.
func TestLengths(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	for path, told := range map[string]bool{"/api": true, "/apis": true, "/apis/batch/v1": true, "/api/v1/namespaces/default": true, "/api/v1": false, "/api/v1/namespaces/nope": true} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Config.Host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "identity")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("Content-Length"); (got != "") != told {
			t.Errorf("%s: Content-Length %q, told %v", path, got, told)
		}
	}
}
