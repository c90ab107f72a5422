// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	egressv1beta1 "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	proxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	kubeletv1 "k8s.io/kubelet/config/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	machine "keelson.dev/keelson/pkg/machine/config"
)

// configurationKind is a kind of configuration files.
type configurationKind struct {
	group string
	value any
	read  string // the process that reads the file, and the flag for the file's path
}

func configurationKinds() []configurationKind {
	const (
		server    = "apiserver.config.k8s.io/v1"
		scheduler = "kubescheduler.config.k8s.io/v1"
		args      = "`args` of the plugin in a KubeSchedulerConfiguration"
	)
	return []configurationKind{
		{"kubelet.config.k8s.io/v1beta1", kubeletv1beta1.KubeletConfiguration{}, "`kubelet --config`"},
		{"kubelet.config.k8s.io/v1", kubeletv1.CredentialProviderConfig{}, "`kubelet --image-credential-provider-config`"},
		{"kubeproxy.config.k8s.io/v1alpha1", proxyv1alpha1.KubeProxyConfiguration{}, "`proxy --config`"},
		{scheduler, schedulerv1.KubeSchedulerConfiguration{}, "`scheduler --config`"},
		{scheduler, schedulerv1.DefaultPreemptionArgs{}, args},
		{scheduler, schedulerv1.DynamicResourcesArgs{}, args},
		{scheduler, schedulerv1.InterPodAffinityArgs{}, args},
		{scheduler, schedulerv1.NodeAffinityArgs{}, args},
		{scheduler, schedulerv1.NodeResourcesBalancedAllocationArgs{}, args},
		{scheduler, schedulerv1.NodeResourcesFitArgs{}, args},
		{scheduler, schedulerv1.PodTopologySpreadArgs{}, args},
		{scheduler, schedulerv1.VolumeBindingArgs{}, args},
		{server, admissionv1.AdmissionConfiguration{}, "`apiserver --admission-control-config-file`"},
		{server, admissionv1.AuthenticationConfiguration{}, "`apiserver --authentication-config`"},
		{server, admissionv1.AuthorizationConfiguration{}, "`apiserver --authorization-config`"},
		{server, admissionv1.EncryptionConfiguration{}, "`apiserver --encryption-provider-config`"},
		{server, admissionv1.TracingConfiguration{}, "`apiserver --tracing-config-file`"},
		{"apiserver.k8s.io/v1beta1", egressv1beta1.EgressSelectorConfiguration{},
			"`apiserver --egress-selector-config-file`"},
		{"audit.k8s.io/v1", auditv1.Policy{}, "`apiserver --audit-policy-file`"},
		{machine.APIVersion, machine.KeelsonConfiguration{}, "`ctl preflight --config`"},
	}
}

func configurationPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Configuration

The kinds of configuration files, with every field. They are Kubernetes' own kinds, except the last one. The
column "meaning" has the first sentence about the field in
[Kubernetes' reference](https://kubernetes.io/docs/reference/config-api/), which says more. "Not read" means that
Keelson's program ignores the field, for the reason that follows.
In the column "field", ` + "`[]`" + ` marks a list and ` + "`{}`" + ` a map.
`)
	meanings := map[string]typeDocs{}
	for _, k := range configurationKinds() {
		typ := reflect.TypeOf(k.value)
		fmt.Fprintf(&b, "\n## %s\n\n`%s`, read by %s.\n\n", typ.Name(), k.group, k.read)
		var remark map[string]string
		if typ == reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]() {
			remark = unread(t)
		}
		b.WriteString("| field | type | meaning |\n|---|---|---|\n")
		fields(typ, "", nil, func(path, kind string, owner reflect.Type, name string) {
			if typ == reflect.TypeFor[machine.KeelsonConfiguration]() {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", path, kind, machineMeaning(t, path))
				return
			}
			meaning := meaningOf(t, meanings, owner, name)
			if why := remark[name]; why != "" && owner == typ {
				meaning += " Not read: " + why + "."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", path, kind, cell(meaning))
		})
	}
	return b.String()
}

// machineMeaning returns the meaning of a field of a KeelsonConfiguration, with its flag and default.
func machineMeaning(t *testing.T, path string) string {
	t.Helper()
	path = strings.NewReplacer("[]", "", "{}", "").Replace(path)
	for _, f := range machine.Fields() {
		if f.Path != path {
			continue
		}
		text := cell(f.Help) + "."
		if f.Flag != "" {
			text += " Flag: `--" + f.Flag + "`."
		}
		if standard := f.Default(); standard != "" {
			text += " Default: `" + standard + "`."
		}
		return text
	}
	t.Errorf("KeelsonConfiguration: no meaning of %s", path)
	return ""
}

// fields calls f for each field of a struct type and of the types nested in it. name is the name of
// the field in the struct type owner.
func fields(typ reflect.Type, prefix string, above []reflect.Type,
	f func(path, kind string, owner reflect.Type, name string)) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && tag == "" {
			if field.Type.Name() != "TypeMeta" {
				fields(field.Type, prefix, above, f)
			}
			continue
		}
		if tag == "" || tag == "-" {
			continue
		}
		inner, marks := field.Type, ""
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			switch {
			case inner.Kind() == reflect.Map:
				marks += "{}"
			case inner.Kind() == reflect.Slice && inner.Elem().Kind() != reflect.Uint8:
				marks += "[]"
			}
			inner = inner.Elem()
		}
		path := prefix + tag + marks
		f(path, kindOf(inner), typ, field.Name)
		own := strings.Contains(inner.PkgPath(), "/config") || strings.Contains(inner.PkgPath(), "/apis/a")
		if inner.Kind() == reflect.Struct && own && len(above) < 4 {
			fields(inner, path+".", append(above, typ), f)
		}
	}
}

// typeDocs has the doc comments of the struct fields of a package, by "Type.Field".
type typeDocs map[string]string

// meaningOf returns the first sentence of a field's doc comment, from the source of the type's
// package. The argument known caches the comments that were read, by import path.
func meaningOf(t *testing.T, known map[string]typeDocs, owner reflect.Type, name string) string {
	t.Helper()
	docs, ok := known[owner.PkgPath()]
	if !ok {
		docs = readTypeDocs(t, owner.PkgPath())
		known[owner.PkgPath()] = docs
	}
	var lines []string
	for line := range strings.Lines(docs[owner.Name()+"."+name]) {
		line = strings.TrimSpace(line)
		if line == "" && len(lines) > 0 {
			break
		}
		if !strings.HasPrefix(line, "+") && line != "" {
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines, " ")
	for at := 0; ; {
		end := strings.Index(text[at:], ". ")
		if end < 0 {
			break
		}
		at += end + 1
		if before := text[:at]; !strings.HasSuffix(before, "e.g.") && !strings.HasSuffix(before, "i.e.") {
			return before
		}
	}
	if text != "" && !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

func readTypeDocs(t *testing.T, path string) typeDocs {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		t.Fatalf("source of %s: %v", path, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := typeDocs{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if body, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range body.Fields.List {
					for _, name := range f.Names {
						out[spec.Name.Name+"."+name.Name] = f.Doc.Text()
					}
				}
			}
			return false
		})
	}
	return out
}

func kindOf(typ reflect.Type) string {
	if typ.Name() != "" && typ.PkgPath() != "" {
		switch typ.Kind() {
		case reflect.Struct, reflect.Interface:
			return typ.Name()
		}
	}
	if typ.Kind() == reflect.Uint8 {
		return "bytes"
	}
	return typ.Kind().String()
}

// unread returns the fields of a KubeletConfiguration that the kubelet ignores, with the reason. It
// reads them from the table with the same name in the kubelet's source.
func unread(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range sources(t, "pkg/kubelet/command") {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 || v.Names[0].Name != "unread" {
				return true
			}
			table, ok := v.Values[0].(*ast.CompositeLit)
			if !ok {
				return true
			}
			for _, e := range table.Elts {
				kv := e.(*ast.KeyValueExpr)
				name, _ := s.value(kv.Key)
				out[name], _ = s.value(kv.Value)
			}
			return false
		})
	}
	if len(out) == 0 {
		t.Error("the kubelet's table of fields that are not read was not found")
	}
	return out
}
