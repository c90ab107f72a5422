// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/rowtest"
)

// list returns a YAML list of n items. format makes an item from its index.
func list(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = strings.ReplaceAll(format, "#", fmt.Sprint(i))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func TestEndpointSlice(t *testing.T) {
	row := rowtest.Row(t, Rows(), "endpointslices")
	const valid = `{metadata: {name: s}, addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [10.0.0.1]}]}`
	endpoint := func(fields string) string { return `endpoints: [{addresses: [10.0.0.1], ` + fields + `}]` }
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"no ports and endpoints", `{ports: null, endpoints: null}`, ""},
		{"unnamed and named port", `ports: [{port: 80}, {name: dns, port: 53, protocol: UDP}]`, ""},
		{"two unnamed ports", `ports: [{port: 80}, {port: 81}]`, "ports[1].name: Duplicate value"},
		{"bad name of a port", `ports: [{name: "a.b"}]`, "ports[0].name: Invalid value"},
		{"unknown protocol", `ports: [{protocol: ICMP}]`, "ports[0].protocol: Unsupported value"},
		{"application protocol", `ports: [{appProtocol: kubernetes.io/h2c}]`, ""},
		{"bad application protocol", `ports: [{appProtocol: "h2 c"}]`, "ports[0].appProtocol: Invalid value"},
		{"too many ports", `ports: ` + list(20001, `{name: p#}`), "ports: Too many"},
		{"endpoint without addresses", `endpoints: [{}]`, "endpoints[0].addresses: Required value"},
		{"100 addresses", `endpoints: [{addresses: ` + list(100, "10.0.0.#") + `}]`, ""},
		{"101 addresses", `endpoints: [{addresses: ` + list(101, "10.0.0.#") + `}]`, "endpoints[0].addresses: Too many"},
		{"1000 endpoints", `endpoints: ` + list(1000, `{addresses: [10.0.0.1]}`), ""},
		{"1001 endpoints", `endpoints: ` + list(1001, `{addresses: [10.0.0.1]}`), "endpoints: Too many"},
		{"loopback", `endpoints: [{addresses: [127.0.0.1]}]`, "endpoints[0].addresses[0]: Invalid value"},
		{"link-local", `endpoints: [{addresses: [169.254.0.1]}]`, "endpoints[0].addresses[0]: Invalid value"},
		{"invalid address", `endpoints: [{addresses: [a]}]`, "endpoints[0].addresses[0]: Invalid value"},
		{"address of the other family", `endpoints: [{addresses: ["2001:db8::1"]}]`,
			"endpoints[0].addresses: Invalid value"},
		{"host name and node name", endpoint(`hostname: a, nodeName: n.example`), ""},
		{"bad host", endpoint(`hostname: a.b`), "endpoints[0].hostname: Invalid value"},
		{"bad node", endpoint(`nodeName: N_`), "endpoints[0].nodeName: Invalid value"},
		{"hints", endpoint(`hints: {forZones: [{name: a}], forNodes: [{name: node}]}`), ""},
		{"duplicate zone", endpoint(`hints: {forZones: [{name: a}, {name: a}]}`),
			"endpoints[0].hints.forZones[1].name: Duplicate value"},
		{"bad zone", endpoint(`hints: {forZones: [{name: "a b"}]}`), "endpoints[0].hints.forZones[0].name: Invalid value"},
		{"invalid node in hints", endpoint(`hints: {forNodes: [{name: N_}]}`),
			"endpoints[0].hints.forNodes[0].name: Invalid value"},
		{"nine zones", endpoint(`hints: {forZones: ` + list(9, "{name: z#}") + `}`),
			"endpoints[0].hints.forZones: Too many"},
		{"nine nodes", endpoint(`hints: {forNodes: ` + list(9, "{name: n#}") + `}`),
			"endpoints[0].hints.forNodes: Too many"},
	}
	rowtest.Creates(t, row, valid, cases)
	rowtest.Creates(t, row, valid, []rowtest.Case{
		{"no type", `addressType: null`, "addressType: Required value"},
		{"unknown type", `addressType: MAC`, "addressType: Unsupported value"},
		{"names", `{addressType: FQDN, endpoints: [{addresses: [a.example]}]}`, ""},
		{"name without a dot", `{addressType: FQDN, endpoints: [{addresses: [a]}]}`,
			"endpoints[0].addresses[0]: Invalid value"},
		{"IPv6", `{addressType: IPv6, endpoints: [{addresses: ["2001:db8::1"]}]}`, ""},
		{"IPv6 address in another form", `{addressType: IPv6, endpoints: [{addresses: ["2001:DB8::1"]}]}`,
			"endpoints[0].addresses[0]: Invalid value"},
		{"IPv4 among IPv6", `{addressType: IPv6, endpoints: [{addresses: [10.0.0.1]}]}`,
			"endpoints[0].addresses: Invalid value"},
	})
	rowtest.Updates(t, row, "", valid, cases)
	rowtest.Updates(t, row, "", valid, []rowtest.Case{
		{"type", `{addressType: IPv6, endpoints: [{addresses: ["2001:db8::1"]}]}`, "addressType: Invalid value"},
	})
	// The stored endpoints are invalid under today's rules. An update of other fields is still
	// accepted.
	const stored = `{metadata: {name: s}, addressType: IPv4, endpoints: [{addresses: [127.0.0.1]}]}`
	rowtest.Updates(t, row, "", stored, []rowtest.Case{
		{"labels", `metadata: {labels: {a: b}}`, ""},
		{"endpoints", `endpoints: [{addresses: [127.0.0.1, 10.0.0.1]}]`, "endpoints[0].addresses[0]: Invalid value"},
	})
}

// TestGeneration checks that changes of labels and endpoints increment the generation, and changes
// of annotations do not.
func TestGeneration(t *testing.T) {
	row := rowtest.Row(t, Rows(), "endpointslices")
	slice := func(text string) *discoveryv1.EndpointSlice {
		return rowtest.Decode(t, row, "s", text).(*discoveryv1.EndpointSlice)
	}
	for text, want := range map[string]int64{
		`{"addressType":"IPv4"}`: 3,
		`{"addressType":"IPv4","metadata":{"annotations":{"a":"b"}}}`: 3,
		`{"addressType":"IPv4","metadata":{"labels":{"a":"b"}}}`:      4,
		`{"addressType":"IPv4","ports":[{"port":80}]}`:                4,
	} {
		old, updated := slice(`{"addressType":"IPv4"}`), slice(text)
		old.Generation, updated.Generation = 3, 3
		row.PrepareUpdate(t.Context(), updated, old)
		if updated.Generation != want {
			t.Errorf("%s: generation %d, want %d", text, updated.Generation, want)
		}
	}
}

func TestCells(t *testing.T) {
	row := rowtest.Row(t, Rows(), "endpointslices")
	env := resource.CellEnv{Age: func(metav1.Time) string { return "5m" }}
	for text, want := range map[string][]any{
		`{"addressType":"IPv4"}`: {"s", "IPv4", "<unset>", "<unset>", "5m"},
		`{"addressType":"IPv4","ports":[{"port":80},{"port":81,"name":"b"}],` +
			`"endpoints":[{"addresses":["10.0.0.1","10.0.0.2"]}]}`: {"s", "IPv4", "80,81", "10.0.0.1,10.0.0.2", "5m"},
	} {
		if got := row.Cells(rowtest.Decode(t, row, "s", text), env); !slices.Equal(got, want) {
			t.Errorf("%s: cells %q, want %q", text, got, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	row := rowtest.Row(t, Rows(), "endpointslices")
	for text, want := range map[string]int{
		`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}`:      0,
		`{"addressType":"IPv6","endpoints":[{"addresses":["2001:db8::0:1"]}]}`: 1, // not in canonical form
		`{"addressType":"FQDN","endpoints":[{"addresses":["a.example"]}]}`:     1,
		`{"addressType":"IPv6",` +
			`"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}},` +
			`"endpoints":[{"addresses":["2001:db8::0:1"]}]}`: 0,
	} {
		if got := row.Warnings(t.Context(), rowtest.Decode(t, row, "s", text), nil); len(got) != want {
			t.Errorf("%s: warnings %q, want %d", text, got, want)
		}
	}
}
