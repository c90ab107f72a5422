// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// written has objects that are created while 1.37 emulates 1.36. Three of them have fields that 1.36
// does not know, which the API server must drop. They are of kinds that no controller changes, except
// for the StatefulSet and the HorizontalPodAutoscaler.
const written = `
apiVersion: v1
kind: Namespace
metadata: {name: written}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set, namespace: written}
spec:
  replicas: 0
  serviceName: set
  selector: {matchLabels: {app: set}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}
  template:
    metadata: {labels: {app: set}}
    spec: {containers: [{name: c, image: "busybox:1.36"}]}
---
apiVersion: v1
kind: PodTemplate
metadata: {name: template, namespace: written}
template:
  metadata: {labels: {app: template}}
  spec:
    containers: [{name: c, image: "busybox:1.36"}]
    volumes:
    - name: all
      projected:
        sources:
        - {configMap: {name: map}}
        - {clusterTrustBundle: {name: bundle, path: bundle.pem}}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: written.example.com}
spec: {attachRequired: false, preventPodSchedulingIfMissing: true}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaler, namespace: written}
spec:
  minReplicas: 1
  maxReplicas: 3
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: set}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
---
apiVersion: v1
kind: Secret
metadata: {name: secret, namespace: written}
stringData: {key: value}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: policy, namespace: written}
spec: {podSelector: {matchLabels: {app: set}}, policyTypes: [Ingress, Egress]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: ingress, namespace: written}
spec: {defaultBackend: {service: {name: set, port: {number: 80}}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: budget, namespace: written}
spec: {minAvailable: 1, selector: {matchLabels: {app: set}}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: written.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "written.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: claim, namespace: written}
spec: {spec: {devices: {requests: [{name: one, exactly: {deviceClassName: written.example.com}}]}}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: written}
value: 1000
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: never, namespace: written}
spec:
  schedule: "0 0 30 2 *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: c, image: "busybox:1.36"}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: written.example.com}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [podtemplates]}]
  validations: [{expression: "object.metadata.name != 'forbidden'"}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.written.example.com}
spec:
  group: written.example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {size: {type: integer, default: 3}}}
`

// droppedFields checks that the API server has dropped the fields that 1.36 does not know.
func (u *upgrade) droppedFields() {
	u.t.Helper()
	for _, c := range []struct {
		field string
		args  []string
	}{
		{"maxUnavailable", []string{"get", "statefulset", "set", "-n", "written", "-o", "json"}},
		{"clusterTrustBundle", []string{"get", "podtemplate", "template", "-n", "written", "-o", "json"}},
		{"preventPodSchedulingIfMissing", []string{"get", "csidriver", "written.example.com", "-o", "json"}},
	} {
		var o map[string]any
		if err := json.Unmarshal([]byte(u.run("", c.args...)), &o); err != nil {
			u.t.Fatal(err)
		}
		if m, ok := o["metadata"].(map[string]any); ok {
			delete(m, "annotations") // contains the manifest
		}
		text, err := json.Marshal(o)
		if err != nil || strings.Contains(string(text), c.field) {
			u.t.Errorf("%v: %s, %v", c.args, text, err)
		}
	}
}

// object is an object as one API server returned it.
type object struct{ version, json string }

// everything returns all objects that one API server serves. The keys are the path of the list, and
// the object's UID.
func (u *upgrade) everything(at int) map[string]object {
	u.t.Helper()
	out := map[string]object{}
	client := u.servers[at].Discovery()
	lists, err := client.ServerPreferredResources()
	if err != nil {
		u.t.Fatalf("discovery of API server %d: %v", at+1, err)
	}
	for _, l := range lists {
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				continue // metrics, for example, are not stored
			}
			path := "/apis/" + l.GroupVersion + "/" + r.Name
			if l.GroupVersion == "v1" {
				path = "/api/v1/" + r.Name
			}
			body, err := client.RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(u.t.Context())
			var list struct {
				Items []json.RawMessage `json:"items"`
			}
			if err = errors.Join(err, json.Unmarshal(body, &list)); err != nil {
				u.t.Fatalf("%s of API server %d: %v", path, at+1, err)
			}
			for _, item := range list.Items {
				var o metav1.PartialObjectMetadata
				if err := json.Unmarshal(item, &o); err != nil {
					u.t.Fatal(err)
				}
				out[path+" "+string(o.UID)] = object{o.ResourceVersion, u.sorted(item)}
			}
		}
	}
	if len(out) == 0 {
		u.t.Fatalf("API server %d has no objects", at+1)
	}
	return out
}

// sorted returns a JSON object with its fields in alphabetical order and without an empty status.
// Servers of 1.37, but not those of 1.36, write an empty status for CSINodes, as in Kubernetes.
func (u *upgrade) sorted(text []byte) string {
	u.t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		u.t.Fatal(err)
	}
	if status, ok := o["status"].(map[string]any); ok && len(status) == 0 {
		delete(o, "status")
	}
	out, err := json.Marshal(o)
	if err != nil {
		u.t.Fatal(err)
	}
	return string(out)
}

// ownGroup is part of the APIService that API servers create for Keelson's own API group, in which
// nothing is stored. The API servers of the previous release have the group but no APIService for it.
const ownGroup = `"name":"v1alpha1.scheduling.keelson.dev"`

// same checks that objects which were not written between two readings are equal in both, and that no
// object is missing in the second.
func (u *upgrade) same(what string, before, after map[string]object) {
	u.t.Helper()
	equal := 0
	for _, key := range slices.Sorted(maps.Keys(before)) {
		was, is := before[key], after[key]
		switch {
		case is.version == "" && (transient(key) || strings.Contains(was.json, ownGroup)):
		case is.version == "":
			u.t.Errorf("%s: %s is gone: %s", what, key, was.json)
		case is.version != was.version:
		case is.json != was.json:
			u.t.Errorf("%s: %s differs:\n%s\n%s", what, key, was.json, is.json)
		default:
			equal++
		}
	}
	u.t.Logf("%v: %s: %d of %d objects were not written, and are equal", u.at(), what, equal, len(before))
	if equal < len(before)/2 {
		u.t.Errorf("%s: too few objects were compared", what)
	}
}

// transient reports whether an object may have been deleted: events expire, the Lease of an API server
// is deleted when another program has started, and a CSIStorageCapacity is deleted and created again
// if the driver is not registered for a moment, when a kubelet of 1.36 restarts.
func transient(key string) bool {
	return strings.Contains(key, "/events ") || strings.Contains(key, "/leases ") ||
		strings.Contains(key, "/leasecandidates ") || strings.Contains(key, "/csistoragecapacities ")
}
