// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metricsOf lists the sections of the page about metrics, each with the directories that define its
// metrics.
var metricsOf = []struct {
	title string
	dirs  []string
}{
	{"Every process", []string{"pkg/daemon", "pkg/features", "pkg/health"}},
	{"API server", []string{"pkg/apiserver", "staging/src/keelson.dev/apiserver"}},
	{"Controller manager", []string{"pkg/controllers"}},
	{"Scheduler", []string{"pkg/scheduler"}},
	{"Kubelet", []string{"pkg/kubelet"}},
	{"Proxy", []string{"pkg/proxy", "pkg/netpolicy"}},
	{"Ingress proxy", []string{"pkg/ingress"}},
}

var (
	metricName = regexp.MustCompile(`^(…|[a-z][a-z0-9]*)(_[a-z0-9]+|_?…)+$`)
	stability  = regexp.MustCompile(`^\[(ALPHA|BETA|STABLE)\] ?`)
)

// metric has the help text, type and labels from the definition of a metric.
type metric struct {
	help   string
	labels []string
}

func metricsPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Metrics

Every metric that Keelson's code defines, by process. A metric that Kubernetes has too has the same name and labels
as in Kubernetes. The names of all other metrics begin with ` + "`keelson_`" + `. Some columns need an explanation:

- "level" is the stability level of the metric in Kubernetes.
- "labels" has only the labels that this page's generator finds at the definition of the metric, so some are missing.
- ` + "`…`" + ` in a name or meaning stands for a part that the program fills in when it runs.

The processes also export metrics of libraries, which this page does not list: of Go's runtime and the process
(` + "`go_*`, `process_*`" + `), of client-go, and in the API server of Kubernetes' libraries for admission,
authentication, flow control and CEL.

[Monitor the processes](../howto/monitor.md) describes how to read metrics.
`)
	for _, group := range metricsOf {
		found := map[string]metric{}
		for _, s := range sources(t, group.dirs...) {
			s.metrics(found)
		}
		if len(found) == 0 {
			t.Errorf("no metrics of %s", group.title)
		}
		fmt.Fprintf(&b, "\n## %s\n\n| metric | labels | level | meaning |\n|---|---|---|---|\n", group.title)
		for _, name := range slices.Sorted(maps.Keys(found)) {
			m, level := found[name], ""
			if l := stability.FindStringSubmatch(m.help); l != nil {
				m.help, level = m.help[len(l[0]):], strings.ToLower(l[1])
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, strings.Join(m.labels, ", "), level, cell(oneLine(m.help)))
		}
	}
	return b.String()
}

// metrics adds the metrics that a file defines to the map found. A metric is defined by a composite
// literal with the fields Name and Help, by a call with a name and a help text as its first two
// arguments (or as its second and third), or by a table row that begins with them. Some functions
// add a prefix to the name in their parameter (Name: "keelson_audit_" + name). For calls of such a
// function in the file, metrics adds the prefix.
func (s *source) metrics(found map[string]metric) {
	prefixes := s.prefixes()
	note := func(name, help string, labels []string) {
		known := stability.MatchString(help) || strings.Contains(help, " ")
		if !metricName.MatchString(name) || !known || strings.HasSuffix(help, "] "+unknown) {
			return
		}
		if old := found[name]; len(labels) == 0 {
			labels = old.labels
		}
		found[name] = metric{help, labels}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit: // name of a metric about containers, whose help text is not next to it
			name, _ := s.value(n)
			if _, known := found[name]; !known && strings.HasPrefix(name, "container_") && strings.HasSuffix(name, "_total") {
				found[name] = metric{}
			}
		case *ast.CompositeLit:
			if name, help, ok := s.options(n); ok && !strings.HasSuffix(name, unknown) {
				note(name, help, nil)
			}
			if len(n.Elts) > 2 {
				if name, ok := s.value(n.Elts[0]); ok {
					note(name, s.partial(n.Elts[1]), nil)
				}
			}
		case *ast.CallExpr:
			if len(n.Args) < 2 {
				return true
			}
			if opts, ok := n.Args[0].(*ast.CompositeLit); ok {
				if name, help, ok := s.options(opts); ok && !strings.HasSuffix(name, unknown) {
					note(name, help, s.labels(n.Args[1:]))
				}
				return true
			}
			name := s.partial(n.Args[0])
			if name == unknown && len(n.Args) > 2 { // the first argument is where the metric is sent to
				note(s.partial(n.Args[1]), s.partial(n.Args[2]), nil)
			}
			if called, ok := n.Fun.(*ast.Ident); ok {
				name = prefixes[called.Name] + name
			}
			if name != unknown && !strings.HasSuffix(name, "_"+unknown) {
				note(name, s.partial(n.Args[1]), s.labels(n.Args[2:]))
			}
		}
		return true
	})
}

func callee(c *ast.CallExpr) string {
	if name, ok := c.Fun.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// options returns the name and the help text in a literal of Prometheus' options.
func (s *source) options(c *ast.CompositeLit) (name, help string, ok bool) {
	fields := map[string]string{}
	for _, e := range c.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok {
				fields[key.Name] = s.partial(kv.Value)
			}
		}
	}
	parts := []string{fields["Namespace"], fields["Subsystem"], fields["Name"]}
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	return strings.Join(parts, "_"), fields["Help"], fields["Name"] != "" && fields["Help"] != ""
}

// labels returns the string arguments of a call, including the elements of string lists.
func (s *source) labels(args []ast.Expr) (out []string) {
	for _, a := range args {
		if list, ok := a.(*ast.CompositeLit); ok {
			if _, ok := list.Type.(*ast.ArrayType); ok {
				out = append(out, s.labels(list.Elts)...)
			}
			continue
		}
		if text, ok := s.value(a); ok && text != "" {
			out = append(out, text)
		}
	}
	return out
}

// prefixes returns the prefixes that functions of the file add to the name in their parameter, by
// function.
func (s *source) prefixes() map[string]string {
	out := map[string]string{}
	note := func(name string, body ast.Node) {
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if full, _, ok := s.options(n); ok {
					if prefix, ok := strings.CutSuffix(full, unknown); ok && !strings.Contains(prefix, unknown) && prefix != "" {
						out[name] = prefix
					}
				}
			case *ast.CallExpr:
				if len(n.Args) > 0 && strings.HasSuffix(s.partial(n.Args[0]), "_"+unknown) {
					out[name] = strings.TrimSuffix(s.partial(n.Args[0]), unknown)
				} else if len(n.Args) > 1 && s.partial(n.Args[0]) == unknown && out[callee(n)] != "" {
					out[name] = out[callee(n)]
				}
			}
			return true
		})
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil && n.Type.Params.NumFields() > 0 {
				note(n.Name.Name, n.Body)
			}
		case *ast.AssignStmt:
			for i, e := range n.Rhs {
				if f, ok := e.(*ast.FuncLit); ok && i < len(n.Lhs) {
					if name, ok := n.Lhs[i].(*ast.Ident); ok {
						note(name.Name, f.Body)
					}
				}
			}
		}
		return true
	})
	return out
}
