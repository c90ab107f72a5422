// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/api/rowtest"
)

// TestValidate sets the defaults of objects, validates them, and compares the errors.
func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		resource, object string
		want             []string
	}{
		"an ingress needs a backend": {"ingresses", `{"spec":{}}`, []string{
			"spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
		}},
		"an ingress's host is no address": {"ingresses", `{"spec":{"rules":[{"host":"1.2.3.4"}]}}`, []string{
			`spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address`,
		}},
		"an ingress with a path": {"ingresses", `{"spec":{"rules":[{"http":{"paths":[{"path":"/a",` +
			`"pathType":"Prefix","backend":{"service":{"name":"a","port":{"number":80}}}}]}}]}}`, nil},
		"a policy's exception lies within": {"networkpolicies", `{"spec":{"podSelector":{},` +
			`"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["11.0.0.0/9"]}}]}]}}`, []string{
			"spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/9\": must be a strict subset of `cidr`",
		}},
		"a policy's peer is somebody": {"networkpolicies", `{"spec":{"podSelector":{},"egress":[{"to":[{}]}]}}`, []string{
			"spec.egress[0].to[0]: Required value: must specify a peer",
		}},
		"a range of addresses for services": {"servicecidrs", `{"spec":{"cidrs":["10.0.0.0/8","fd00::/64"]}}`, nil},
		"ranges of one family": {"servicecidrs", `{"spec":{"cidrs":["10.0.0.0/8","11.0.0.0/8","fd00::/64"]}}`, []string{
			`spec.cidrs: Invalid value: {"CIDRs":["10.0.0.0/8","11.0.0.0/8","fd00::/64"]}: may only hold up to 2 values`,
		}},
		"an address belongs to something":   {"ipaddresses", `{"spec":{}}`, []string{"spec.parentRef: Required value"}},
		"a storage class has a provisioner": {"storageclasses", `{}`, []string{"provisioner: Required value"}},
		"a node's drivers differ": {"csinodes",
			`{"spec":{"drivers":[{"name":"a","nodeID":"b"},{"name":"a","nodeID":"c"}]}}`, []string{
				`spec.drivers[1].name: Duplicate value: "a"`,
			}},
		"an attachment has a source": {"volumeattachments", `{"spec":{"attacher":"a","nodeName":"n","source":{}}}`, []string{
			"spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
		}},
		"a signer's name has a path": {"certificatesigningrequests",
			`{"spec":{"request":"eHg=","signerName":"a","usages":["client auth"]}}`, []string{
				`spec.request: Invalid value: "eHg=": PEM block type must be CERTIFICATE REQUEST`,
				`spec.signerName: Invalid value: "a": must be a fully qualified domain and path of the form ` +
					`'example.com/signer-name'`,
			}},
		"a metric has its source": {"horizontalpodautoscalers", `{"spec":{"maxReplicas":3,` +
			`"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"a"},"metrics":[{"type":"Resource"}]}}`,
			[]string{
				"spec.metrics[0].resource: Required value: must populate information for the given metric source",
			}},
		"a definition has a schema": {"customresourcedefinitions", `{"metadata":{"name":"as.b.c"},` +
			`"spec":{"group":"b.c","scope":"Cluster","names":{"plural":"as","kind":"A"},` +
			`"versions":[{"name":"v1","served":true,"storage":true}]},"status":{"storedVersions":["v1"]}}`, []string{
			"spec.versions[0].schema.openAPIV3Schema: Required value",
		}},
		"an extension server's priority": {"apiservices", `{"metadata":{"name":"v1.a.b"},` +
			`"spec":{"group":"a.b","version":"v1","groupPriorityMinimum":0,"versionPriority":5,` +
			`"insecureSkipTLSVerify":true,"service":{"name":"a","namespace":"b"}}}`, []string{
			"spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowtest.Row(t, api.Rows(api.Deps{}), tc.resource)
			obj := rowtest.Decode(t, row, "", tc.object)
			rowtest.Check(t, row.Validate(t.Context(), obj), tc.want)
		})
	}
}
