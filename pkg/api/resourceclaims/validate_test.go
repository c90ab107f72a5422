// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims_test

import (
	"maps"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/resourceclaims"
	"keelson.dev/keelson/pkg/api/rowtest"
)

// TestValidate sets the defaults of new objects, validates them, and compares the errors.
func TestValidate(t *testing.T) {
	t.Parallel()
	device := func(fields string) string {
		return `{"spec":{"driver":"d.e","pool":{"name":"p","resourceSliceCount":1},"nodeName":"n",` +
			`"devices":[{"name":"x",` + fields + `}]}}`
	}
	for name, tc := range map[string]struct {
		resource, object string
		want             []string
	}{
		"a claim": {"resourceclaims",
			`{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}}`, nil},
		"a request asks for one thing": {"resourceclaims", `{"spec":{"devices":{"requests":[{"name":"r"}]}}}`, []string{
			"spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
		}},
		"a selector says yes or no": {"resourceclaims", `{"spec":{"devices":{"requests":[{"name":"r",` +
			`"exactly":{"deviceClassName":"c","selectors":[{"cel":{"expression":"1"}}]}}]}}}`, []string{
			`spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "1": must ` +
				`evaluate to bool or the unknown type, not int`,
		}},
		"all has no count": {"resourceclaimtemplates", `{"spec":{"spec":{"devices":{"requests":[{"name":"r",` +
			`"exactly":{"deviceClassName":"c","allocationMode":"All","count":2}}]}}}}`, []string{
			"spec.spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
		}},
		"a constraint is about requests": {"resourceclaims", `{"spec":{"devices":{"requests":[{"name":"r",` +
			`"firstAvailable":[{"name":"s","deviceClassName":"c"}]}],"constraints":[{"requests":["r/s",` +
			`"r/t"],"matchAttribute":"a.b/c"}]}}}`, []string{
			`spec.devices.constraints[0].requests[1]: Invalid value: "r/t": must be the name of a request ` +
				`in the claim or the name of a request and a subrequest separated by '/'`,
		}},
		"a class's resource has a domain": {"deviceclasses", `{"spec":{"extendedResourceName":"cpu"}}`, []string{
			`spec.extendedResourceName: Invalid value: "cpu": must be a valid extended resource name`,
		}},
		"a slice is somewhere": {"resourceslices",
			`{"spec":{"driver":"d.e","pool":{"name":"p","resourceSliceCount":1},"nodeName":"n","allNodes":true}}`, []string{
				"spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, " +
					"`allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set",
			}},
		"a device's selector has one term": {"resourceslices",
			`{"spec":{"driver":"d.e","pool":{"name":"p","resourceSliceCount":1},"perDeviceNodeSelection":true,"devices":[{"name":"x",
			"nodeSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]},{"matchExpressions":[{"key":"b","operator":"Exists"}]}]}}]}}`, []string{
				`spec.devices[0].nodeSelector.nodeSelectorTerms: Invalid value: ` +
					`[{"matchExpressions":[{"key":"a","operator":"Exists"}]},{"matchExpressions":[{"key":"b",` +
					`"operator":"Exists"}]}]: must have exactly one node selector term`,
			}},
		"a version is one": {"resourceslices", device(`"attributes":{"v":{"version":"1.0"}}`), []string{
			`spec.devices[0].attributes[v].version: Invalid value: "1.0": must be a string compatible with ` +
				`semver.org spec 2.0.0`,
		}},
		"an attribute has one value": {"resourceslices", device(`"attributes":{"v":{"int":1,"bool":true}}`), []string{
			`spec.devices[0].attributes[v]: Invalid value: {"int":1,"bool":true}: exactly one value must be specified`,
		}},
		"shares are of devices that can be shared": {"resourceslices",
			device(`"capacity":{"c":{"value":"1","requestPolicy":{}}}`), []string{
				"spec.devices[0].capacity[c].requestPolicy: Forbidden: allowMultipleAllocations must be true",
			}},
		"a share is on a step": {"resourceslices", device(`"allowMultipleAllocations":true,` +
			`"capacity":{"c":{"value":"10","requestPolicy":{"default":"4","validRange":{"min":"1","step":"2"}}}}`), []string{
			`spec.devices[0].capacity[c].requestPolicy.validRange.step: Invalid value: "4": value is not a ` +
				`multiple of a given step (2) from (1)`,
		}},
		"a step is not negative": {"resourceslices", device(`"allowMultipleAllocations":true,` +
			`"capacity":{"c":{"value":"10","requestPolicy":{"default":"4","validRange":{"min":"2","step":"-2"}}}}`), []string{
			`spec.devices[0].capacity[c].requestPolicy.validRange.step: Invalid value: "-2": must be greater than zero`,
		}},
		"a step fits into 64 bits": {"resourceslices", device(`"allowMultipleAllocations":true,` +
			`"capacity":{"c":{"value":"1e20","requestPolicy":{"default":"4","validRange":{"min":"2",` +
			`"step":"18446744073709551616"}}}}`), []string{
			`spec.devices[0].capacity[c].requestPolicy.validRange.step: Invalid value: ` +
				`"18446744073709551616": must not be larger than 9223372036854775807`,
		}},
		"fractions of a range are rounded up": {"resourceslices", device(`"allowMultipleAllocations":true,` +
			`"capacity":{"c":{"value":"2","requestPolicy":{"default":"250m","validRange":{"min":"100m","step":"200m"}}}}`),
			nil},
		"the default is rounded up": {"resourceslices", device(`"allowMultipleAllocations":true,` +
			`"capacity":{"c":{"value":"10","requestPolicy":{"default":"1500m","validRange":{"min":"1","step":"2"}}}}`),
			[]string{`spec.devices[0].capacity[c].requestPolicy.validRange.step: Invalid value: "1500m": value is not a ` +
				`multiple of a given step (2) from (1)`}},
		"a default is not below the minimum": {"resourceslices", device(`"allowMultipleAllocations":true,` +
			`"capacity":{"c":{"value":"10","requestPolicy":{"default":"1","validRange":{"min":"2"}}}}`),
			[]string{`spec.devices[0].capacity[c].requestPolicy.validRange.default: Invalid value: "1": default is less ` +
				`than min: 2`}},
		"values are rounded up": {"resourceslices", device(`"allowMultipleAllocations":true,` +
			`"capacity":{"c":{"value":"2","requestPolicy":{"default":"100m","validValues":["100m","200m"]}}}`),
			[]string{`spec.devices[0].capacity[c].requestPolicy.validValues[1]: Duplicate value: "1"`}},
		"what is hoped for is not feared": {"resourceslices",
			device(`"bindingConditions":["a"],"bindingFailureConditions":["a"]`), []string{
				`spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must ` +
					`not overlap with bindingConditions`,
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowtest.Row(t, resourceclaims.Rows(nil), tc.resource)
			rowtest.Check(t, row.Validate(t.Context(), rowtest.Decode(t, row, "a", tc.object)), tc.want)
		})
	}
}

// TestValidateClaimStatus checks that a claim can be allocated only once, and only with devices for
// its requests.
func TestValidateClaimStatus(t *testing.T) {
	t.Parallel()
	const spec = `"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}`
	status := func(s string) string { return `{` + spec + `,"status":` + s + `}` }
	allocated := func(device, more string) string {
		return status(`{"allocation":{"devices":{"results":[{"request":"r","driver":"d","pool":"p","device":"` +
			device + `"}]}}` + more + `}`)
	}
	for name, tc := range map[string]struct {
		old, now string
		want     []string
	}{
		"allocated": {status(`{}`), allocated("x", ""), nil},
		"allocated, invalid toleration": {status(`{}`),
			status(`{"allocation":{"devices":{"results":[{"request":"r","driver":"d","pool":"p","device":"x",` +
				`"tolerations":[{"key":"a b","operator":"Exists","value":"v"}]}]}}}`), []string{
				"status.allocation.devices.results[0].tolerations[0].key: Invalid value: \"a b\": name part must consist of " +
					"alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. " +
					"'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?" +
					"[A-Za-z0-9]')",
				"status.allocation.devices.results[0].tolerations[0].value: Invalid value: \"v\": must be empty for " +
					"operator `Exists`",
			}},
		"reserved, allocated": {status(`{}`),
			allocated("x", `,"reservedFor":[{"resource":"pods","name":"a","uid":"u"}]`), nil},
		"reserved only": {status(`{}`), status(`{"reservedFor":[{"resource":"pods","name":"a","uid":"u"}]}`), []string{
			"status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
		}},
		"another device's state": {status(`{}`),
			allocated("x", `,"devices":[{"driver":"d","pool":"p","device":"y"}]`), []string{
				`status.devices[0]: Invalid value: {"Driver":"d","Pool":"p","Device":"y","ShareID":""}: must be ` +
					`an allocated device in the claim`,
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowtest.Row(t, resourceclaims.Rows(nil), "resourceclaims")
			rowtest.Check(t, row.Subresources[0].ValidateUpdate(t.Context(),
				rowtest.Decode(t, row, "a", tc.now), rowtest.Decode(t, row, "a", tc.old)), tc.want)
		})
	}
	t.Run("allocated again", func(t *testing.T) {
		t.Parallel()
		row := rowtest.Row(t, resourceclaims.Rows(nil), "resourceclaims")
		errs := row.Subresources[0].ValidateUpdate(t.Context(), rowtest.Decode(t, row, "a", allocated("y", "")),
			rowtest.Decode(t, row, "a", allocated("x", "")))
		if len(errs) != 1 || errs[0].Field != "status.allocation" || errs[0].Detail != "field is immutable" {
			t.Error(errs)
		}
	})
}

// TestFreedDevices checks that an update that deallocates a device also removes the status of the
// device.
func TestFreedDevices(t *testing.T) {
	row := rowtest.Row(t, resourceclaims.Rows(nil), "resourceclaims")
	const result, said = `{"request":"r","driver":"d.e","pool":"p","device":`, `{"driver":"d.e","pool":"p","device":`
	old := rowtest.Decode(t, row, "c",
		`{"spec":{"devices":{"requests":[{"name":"r"}]}},"status":{"allocation":{"devices":{"results":[`+
			result+`"a"},`+result+`"b"}]}},"devices":[`+said+`"a"},`+said+`"b"}]}}`)
	sub := &row.Subresources[0]
	for _, tc := range []struct {
		name, allocation string
		want             []string
	}{
		{"one", `"allocation":{"devices":{"results":[` + result + `"b"}]}},`, []string{"b"}},
		{"all", ``, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obj := rowtest.Decode(t, row, "c", `{"status":{`+tc.allocation+`"devices":[`+said+`"a"},`+said+`"b"}]}}`)
			sub.PrepareUpdate(t.Context(), obj, old)
			var got []string
			for _, d := range obj.(*resourcev1.ResourceClaim).Status.Devices {
				got = append(got, d.Device)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("devices %v, want %v", got, tc.want)
			}
		})
	}
}

// TestDropDisabled checks that fields of features that are off are cleared, unless the stored object
// has them.
func TestDropDisabled(t *testing.T) {
	const derived = `"derivedAttributes":[{"name":"d.e/a","expression":"1"}]`
	requests := func(fields string) string {
		return `{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"` + fields + `}},` +
			`{"name":"s","firstAvailable":[{"name":"t","deviceClassName":"c"` + fields + `}]}]}}`
	}
	result := func(fields string) string {
		return `{"spec":` + requests("") + `,"status":{"allocation":{"devices":{"results":[{"request":"r",` +
			`"driver":"d.e","pool":"p","device":"x"` + fields + `}]}}}}`
	}
	for name, tc := range map[string]struct{ resource, subresource, with, without string }{
		"claim": {"resourceclaims", "", `{"spec":` + requests(`,`+derived) + `}`, `{"spec":` + requests("") + `}`},
		"template": {"resourceclaimtemplates", "", `{"spec":{"spec":` + requests(`,`+derived) + `}}`,
			`{"spec":{"spec":` + requests("") + `}}`},
		"status of a claim": {"resourceclaims", "status", result(`,"skipNodeOperations":["NodePrepareResources"]`),
			result("")},
	} {
		t.Run(name, func(t *testing.T) {
			row := rowtest.Row(t, resourceclaims.Rows(nil), tc.resource)
			decode := func(text string) resource.Object { return rowtest.Decode(t, row, "c", text) }
			prepare := row.PrepareUpdate
			if tc.subresource == "" {
				created := decode(tc.with)
				row.PrepareCreate(t.Context(), created)
				if !equality.Semantic.DeepEqual(created, decode(tc.without)) {
					t.Errorf("created: %v", created)
				}
			} else {
				prepare = row.Subresource(tc.subresource).PrepareUpdate
			}
			kept, dropped := decode(tc.with), decode(tc.with)
			prepare(t.Context(), kept, decode(tc.with))
			prepare(t.Context(), dropped, decode(tc.without))
			if !equality.Semantic.DeepEqual(kept, decode(tc.with)) {
				t.Errorf("a field that was used is cleared: %v", kept)
			}
			if !equality.Semantic.DeepEqual(dropped, decode(tc.without)) {
				t.Errorf("not cleared: %v", dropped)
			}
		})
	}
}

// TestSelectSlices checks by which fields clients can select slices.
func TestSelectSlices(t *testing.T) {
	row := rowtest.Row(t, resourceclaims.Rows(nil), "resourceslices")
	got := row.Fields(rowtest.Decode(t, row, "s", `{"spec":{"driver":"d.e","nodeName":"n","pool":{"name":"p"}}}`))
	if want := (fields.Set{"spec.nodeName": "n", "spec.driver": "d.e", "spec.pool.name": "p"}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestStoredSelectors checks that the CEL expressions of a DeviceClass are checked only if they
// change.
func TestStoredSelectors(t *testing.T) {
	row := rowtest.Row(t, resourceclaims.Rows(nil), "deviceclasses")
	class := func(expression, labels string) resource.Object {
		return rowtest.Decode(t, row, "c", `{"metadata":{"labels":`+labels+`},"spec":{"selectors":[{"cel":{"expression":"`+
			expression+`"}}]}}`)
	}
	stored := class("device.unknown", `{}`)
	rowtest.Check(t, row.ValidateUpdate(t.Context(), class("device.unknown", `{"a":"b"}`), stored), nil)
	if errs := row.ValidateUpdate(t.Context(), class("device.other", `{}`), stored); len(errs) != 1 {
		t.Errorf("a new expression: %v", errs)
	}
}

// TestStoredNodeSelector checks that a slice that is stored with a node selector of several terms
// can be updated. The selector cannot be replaced by another one with several terms
// (kubernetes/kubernetes#141213).
func TestStoredNodeSelector(t *testing.T) {
	t.Parallel()
	row := rowtest.Row(t, resourceclaims.Rows(nil), "resourceslices")
	slice := func(generation, key string) resource.Object {
		return rowtest.Decode(t, row, "a",
			`{"metadata":{"resourceVersion":"1"},"spec":{"driver":"d.e","pool":{"name":"p","generation":`+generation+`,"resourceSliceCount":1},
			"perDeviceNodeSelection":true,"devices":[{"name":"x","nodeSelector":{"nodeSelectorTerms":[
			{"matchExpressions":[{"key":"a","operator":"Exists"}]},{"matchExpressions":[{"key":"`+key+`","operator":"Exists"}]}]}}]}}`)
	}
	if errs := row.ValidateUpdate(t.Context(), slice("2", "b"), slice("1", "b")); len(errs) > 0 {
		t.Errorf("another generation: %v", errs)
	}
	if errs := row.ValidateUpdate(t.Context(), slice("1", "c"), slice("1", "b")); len(errs) != 1 {
		t.Errorf("other terms: %v, want one error", errs)
	}
}
