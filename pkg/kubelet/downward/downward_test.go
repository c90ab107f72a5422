// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package downward

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMetadata(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "p", Namespace: "ns", UID: "u",
		Labels:      map[string]string{"b": "2", "a": "x\n\"y\""},
		Annotations: map[string]string{"example.com/Key": "v"},
	}}
	for path, c := range map[string]struct{ want, err string }{
		"metadata.name":                           {"p", ""},
		"metadata.namespace":                      {"ns", ""},
		"metadata.uid":                            {"u", ""},
		"metadata.labels":                         {"a=\"x\\n\\\"y\\\"\"\nb=\"2\"", ""},
		"metadata.annotations":                    {`example.com/Key="v"`, ""},
		"metadata.labels['b']":                    {"2", ""},
		"metadata.labels['c']":                    {"", ""},
		"metadata.annotations['example.com/Key']": {"v", ""},
		"metadata.labels['']": {"", "invalid key subscript in metadata.labels['']: name " +
			"part must be non-empty;name part must consist of alphanumeric characters, '-', '_' or '.', and " +
			"must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or " +
			"'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"},
		"metadata.name['x']": {"", `fieldPath "metadata.name['x']" does not support subscript`},
		"status.podIP":       {"", "unsupported fieldPath: status.podIP"},
	} {
		got, err := Metadata(pod, path)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: %q %v, want %q %s", path, got, err, c.want, c.err)
		}
	}
}

func TestResource(t *testing.T) {
	q := resource.MustParse
	c := &v1.Container{Resources: v1.ResourceRequirements{
		Limits:   v1.ResourceList{v1.ResourceMemory: q("100Mi"), "hugepages-2Mi": q("4Mi")},
		Requests: v1.ResourceList{v1.ResourceCPU: q("250m")},
	}}
	r := WithLimits(c, v1.ResourceList{v1.ResourceCPU: q("1900m"), v1.ResourceMemory: q("1Gi"),
		v1.ResourceEphemeralStorage: q("10Gi"), "hugepages-2Mi": q("1Gi")})
	if len(c.Resources.Limits) != 2 {
		t.Fatal("the container was changed")
	}
	r.Limits["hugepages-1Gi"] = q("16E")
	for name, c := range map[string]struct{ resource, divisor, want string }{
		"limit above allocatable": {"limits.hugepages-1Gi", "1", "9223372036854775807"},
		"own limit":               {"limits.memory", "1Mi", "100"},
		"node's":                  {"limits.cpu", "1", "2"},
		"milli":                   {"limits.cpu", "1m", "1900"},
		"rounded up":              {"limits.memory", "1Gi", "1"},
		"disk":                    {"limits.ephemeral-storage", "0", "10737418240"},
		"huge pages":              {"limits.hugepages-2Mi", "1Mi", "4"},
		"request":                 {"requests.cpu", "1m", "250"},
		"request not set":         {"requests.memory", "1", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Resource(&v1.ResourceFieldSelector{Resource: c.resource, Divisor: q(c.divisor)}, r)
			if err != nil || got != c.want {
				t.Errorf("got %q %v, want %s", got, err, c.want)
			}
		})
	}
	for _, bad := range []string{"limits.pods", "cpu", "requests.example.com/gpu"} {
		if got, err := Resource(&v1.ResourceFieldSelector{Resource: bad}, r); err == nil {
			t.Errorf("%s: %q", bad, got)
		}
	}
}
