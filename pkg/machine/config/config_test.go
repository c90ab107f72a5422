// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// facts are those of a machine with addresses of both families.
func facts() Facts {
	return Facts{HostName: "M1", Addresses: []netip.Addr{
		netip.MustParseAddr("192.168.7.11"), netip.MustParseAddr("fd07::11"),
	}}
}

// load returns the configuration for flags and the content of a file; text is empty if there is no file.
func load(t *testing.T, text string, args ...string) (*KeelsonConfiguration, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := AddFlags(fs)
	if text != "" {
		file := filepath.Join(t.TempDir(), "config.yaml")
		text = "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n" + text
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config="+file)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags.Load(facts(), nil)
}

// paths returns the paths of the fields of a struct type, as in a file.
func paths(typ reflect.Type, prefix string) []string {
	var out []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue // apiVersion and kind
		}
		out = append(out, prefix+name)
		if f.Type.Kind() == reflect.Struct {
			out = append(out, paths(f.Type, prefix+name+".")...)
		}
	}
	return out
}

// TestFields checks that the table has every field of the type, and that each has a flag that sets it.
func TestFields(t *testing.T) {
	var listed, flags []string
	for _, f := range Fields() {
		listed = append(listed, f.Path)
		if f.Help == "" || strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: help %q", f.Path, f.Help)
		}
		if (f.Flag == "") != (f.value == nil) || slices.Contains(flags, f.Flag) && f.Flag != "" {
			t.Errorf("%s: flag %q", f.Path, f.Flag)
		}
		flags = append(flags, f.Flag)
	}
	want := paths(reflect.TypeFor[KeelsonConfiguration](), "")
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("the table has\n%v, the type has\n%v", listed, want)
	}
}

// TestFlagsSetFields checks that each flag sets the field of its line in the table, and no other.
func TestFlagsSetFields(t *testing.T) {
	values := map[string]string{"int": "7", "bool": "true", "stringSlice": "a,b", "stringToString": "a=b",
		"mapStringString": "a<b", "string": "a"}
	for _, f := range Fields() {
		if f.value == nil {
			continue
		}
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		flags := AddFlags(fs)
		if err := fs.Set(f.Flag, values[fs.Lookup(f.Flag).Value.Type()]); err != nil {
			t.Errorf("--%s: %v", f.Flag, err)
		}
		for _, other := range Fields() {
			if other.value == nil {
				continue
			}
			changed := !reflect.DeepEqual(other.of(flags.values).Interface(), other.of(constants()).Interface())
			if changed != (other.Flag == f.Flag) {
				t.Errorf("--%s: changed %s: %t", f.Flag, other.Path, changed)
			}
		}
	}
}

func TestFlagsWin(t *testing.T) {
	c, err := load(t, "clusterName: of-file\nnode: {name: of-file, labels: {a: file, b: file}}\nkubelet: {maxPods: 50}\n",
		"--node-name=of-flag", "--node-labels=a=flag", "--eviction-hard=memory.available<1Gi")
	if err != nil {
		t.Fatal(err)
	}
	if c.ClusterName != "of-file" || c.Node.Name != "of-flag" || c.Kubelet.MaxPods != 50 {
		t.Errorf("cluster %q, node %q, pods %d", c.ClusterName, c.Node.Name, c.Kubelet.MaxPods)
	}
	if want := map[string]string{"a": "flag"}; !reflect.DeepEqual(c.Node.Labels, want) {
		t.Errorf("labels %v, want %v", c.Node.Labels, want)
	}
	if want := map[string]string{"memory.available": "1Gi"}; !reflect.DeepEqual(c.Kubelet.EvictionHard, want) {
		t.Errorf("thresholds %v, want %v", c.Kubelet.EvictionHard, want)
	}
}

func TestDefaults(t *testing.T) {
	v4, v6 := facts().Addresses[0], facts().Addresses[1]
	for name, c := range map[string]struct {
		network   Network
		addresses []string
		facts     []netip.Addr
		pods      string
		services  string
		nodes     string
	}{
		"both families": {facts: []netip.Addr{v4, v6}, pods: "10.244.0.0/16", services: "10.96.0.0/16",
			nodes: "192.168.7.11"},
		"only IPv6":  {facts: []netip.Addr{v6}, pods: "fd44::/48", services: "fd96::/112", nodes: "fd07::11"},
		"no address": {pods: "10.244.0.0/16", services: "10.96.0.0/16"},
		"ranges of Services": {network: Network{ServiceCIDRs: []string{"fd01::/112", "10.1.0.0/16"}},
			facts: []netip.Addr{v4, v6}, pods: "fd44::/48 10.244.0.0/16", services: "fd01::/112 10.1.0.0/16",
			nodes: "fd07::11 192.168.7.11"},
		"ranges of pods": {network: Network{PodCIDRs: []string{"10.2.0.0/16", "fd02::/48"}},
			facts: []netip.Addr{v4, v6}, pods: "10.2.0.0/16 fd02::/48", services: "10.96.0.0/16 fd96::/112",
			nodes: "192.168.7.11 fd07::11"},
		"addresses of the node": {addresses: []string{"fd07::12"}, facts: []netip.Addr{v4, v6}, pods: "fd44::/48",
			services: "fd96::/112", nodes: "fd07::12"},
	} {
		t.Run(name, func(t *testing.T) {
			got := &KeelsonConfiguration{Network: c.network, Node: Node{Addresses: c.addresses}}
			Default(got, Facts{HostName: "M1.Example", Addresses: c.facts})
			for what, each := range map[string][2]string{
				"pods":      {strings.Join(got.Network.PodCIDRs, " "), c.pods},
				"services":  {strings.Join(got.Network.ServiceCIDRs, " "), c.services},
				"nodes":     {strings.Join(got.Node.Addresses, " "), c.nodes},
				"name":      {got.Node.Name, "m1.example"},
				"cluster":   {got.ClusterName, "keelson"},
				"advertise": {got.APIServer.AdvertiseAddress, strings.Split(c.nodes, " ")[0]},
			} {
				if each[0] != each[1] {
					t.Errorf("%s: %q, want %q", what, each[0], each[1])
				}
			}
		})
	}
}

// TestDefaultsAreValid checks that a machine needs no configuration.
func TestDefaultsAreValid(t *testing.T) {
	if _, err := load(t, ""); err != nil {
		t.Error(err)
	}
}

func TestDecode(t *testing.T) {
	const header = "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n"
	for name, c := range map[string]struct {
		text string
		want []string // parts of the error; none if the text is valid
	}{
		"valid":               {text: header + "ingress: true\n"},
		"markers":             {text: "# a comment\n---\n" + header + "---\n"},
		"JSON":                {text: `{"apiVersion": "` + APIVersion + `", "kind": "` + Kind + `", "ingress": true}`},
		"unknown field":       {header + "network: {podCIDR: [10.0.0.0/16]}\n", []string{`unknown field "network.podCIDR"`}},
		"capital letters":     {header + "clustername: a\n", []string{`unknown field "clustername"`}},
		"two unknown fields":  {header + "a: 1\nb: 2\n", []string{`unknown field "a"`, `unknown field "b"`}},
		"duplicate key":       {header + "runtime: crun\nruntime: runc\n", []string{`key "runtime" already set`, "line 4"}},
		"wrong type":          {header + "network: {podCIDRs: 10.0.0.0/16}\n", []string{"network.podCIDRs"}},
		"number for a string": {header + "runtime: 5\n", []string{"runtime"}},
		"wrong version":       {"apiVersion: v1\nkind: " + Kind, []string{`apiVersion is "v1"`}},
		"wrong kind":          {"apiVersion: " + APIVersion + "\nkind: Pod", []string{`kind is "Pod"`}},
		"empty":               {"", []string{`apiVersion is ""`, `kind is ""`}},
		"two documents":       {header + "---\n" + header, []string{"several documents"}},
		"no YAML":             {header + "network: [", []string{"line 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(c.text))
			if len(c.want) == 0 && err != nil {
				t.Error(err)
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q", err, want)
				}
			}
		})
	}
}

// TestErrorsNameTheFile checks that an error about a file has the name of the file.
func TestErrorsNameTheFile(t *testing.T) {
	if _, err := load(t, "a: b\n"); err == nil || !strings.Contains(err.Error(), "config.yaml: unknown field") {
		t.Errorf("error %v", err)
	}
}

// TestPrint checks that the printed defaults are a file with the same configuration, and have each field
// and each flag.
func TestPrint(t *testing.T) {
	c, err := load(t, "", "--node-labels=rack=7", "--register-with-taints=dedicated=db:NoSchedule", "--ingress")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Print(&out, c); err != nil {
		t.Fatal(err)
	}
	got, err := Decode(out.Bytes())
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	Default(got, Facts{}) // lists that were printed as empty
	got.Network.NodeCIDRs, got.Network.LoadBalancerAddresses, got.APIServer.CertSANs = nil, nil, nil
	if !reflect.DeepEqual(got, c) {
		t.Errorf("got %+v, want %+v\n%s", got, c, out.String())
	}
	for _, f := range Fields() {
		key := f.Path[strings.LastIndex(f.Path, ".")+1:]
		if !strings.Contains(out.String(), key+":") || !strings.Contains(strings.Join(strings.Fields(out.String()), " "),
			"--"+f.Flag) {
			t.Errorf("%s is not in\n%s", f.Path, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > printWidth+1 {
			t.Errorf("line of %d characters: %s", len(line), line)
		}
	}
}

// TestShared checks that a machine that joins adopts what all machines of the cluster have in common,
// and that it may repeat these values but not set others.
func TestShared(t *testing.T) {
	cluster, err := load(t, "clusterName: prod\nnetwork: {podCIDRs: [10.20.0.0/16], dnsDomain: example.internal}\n"+
		"node: {name: first}\nkubelet: {maxPods: 50}\n")
	if err != nil {
		t.Fatal(err)
	}
	shared := cluster.Shared()
	if shared.Node.Name != "" || shared.Kubelet.MaxPods != 0 {
		t.Errorf("the configuration of one machine is shared: %+v", shared)
	}
	joins := func(args ...string) (*KeelsonConfiguration, error) {
		fs := pflag.NewFlagSet("join", pflag.ContinueOnError)
		flags := AddFlags(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		return flags.Load(facts(), shared)
	}
	c, err := joins("--max-pods=60", "--pod-network-cidr=10.20.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	if c.ClusterName != "prod" || c.Network.DNSDomain != "example.internal" || c.Kubelet.MaxPods != 60 ||
		c.Node.Name == "first" {
		t.Errorf("configuration %+v", c)
	}
	_, err = joins("--pod-network-cidr=10.21.0.0/16", "--cluster-name=other")
	for _, want := range []string{"network.podCIDRs", "--pod-network-cidr", "10.21.0.0/16", "clusterName"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
