// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownWord matches a name in one of Keelson's own domains, such as an annotation, a label or a
// class.
var ownWord = regexp.MustCompile(`^([a-z]+\.)?keelson\.dev/[a-z][a-z-]*$`)

func apiPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Own API

The API groups, annotations and labels that Keelson has and Kubernetes does not. The Go types are in the module
[keelson.dev/api](../../staging/src/keelson.dev/api/README.md).
API servers other than Keelson's answer 404 to the paths of these groups.
`)
	for _, dir := range []string{"machines", "scheduling", "storage"} {
		all := sources(t, "staging/src/keelson.dev/api/"+dir)
		if len(all) == 0 {
			t.Errorf("no source of %s", dir)
		}
		for _, s := range all {
			s.group(&b)
		}
	}
	b.WriteString("\n## Annotations, labels and classes\n\n| name | meaning |\n|---|---|\n")
	var words [][2]string
	for _, s := range sources(t, "pkg", "staging/src/keelson.dev") {
		words = append(words, s.words()...)
	}
	slices.SortFunc(words, func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
	})
	for _, w := range slices.Compact(words) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", w[0], cell(w[1]))
	}
	return b.String()
}

// marker matches a comment line that is meant for code generators, such as +optional.
var marker = regexp.MustCompile(`(?m)^\+\S+$`)

// group writes the documentation of the kinds and paths of an API group that this file defines. If
// the file has the package's doc comment, the method group first writes a heading with it.
func (s *source) group(b *strings.Builder) {
	if s.ast.Doc != nil {
		_, doc, _ := strings.Cut(s.ast.Doc.Text(), "\n\n")
		fmt.Fprintf(b, "\n## %s\n\n%s\n", s.text["Group"]+"/"+s.text["Version"], indented(doc))
	}
	if paths := s.paths(); len(paths) > 0 {
		fmt.Fprintf(b, "\n| path or limit | meaning |\n|---|---|\n%s", strings.Join(paths, ""))
	}
	for _, d := range s.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, spec := range g.Specs {
			typ := spec.(*ast.TypeSpec)
			body, ok := typ.Type.(*ast.StructType)
			if !ok || !typ.Name.IsExported() {
				continue
			}
			fmt.Fprintf(b, "\n### %s\n\n%s\n\n", typ.Name, wrapped(g.Doc.Text()))
			b.WriteString("| field | type | meaning |\n|---|---|---|\n")
			for _, f := range body.Fields.List {
				tag := ""
				if f.Tag != nil {
					text, _ := strconv.Unquote(f.Tag.Value)
					_, tag, _ = strings.Cut(text, `json:"`)
					tag, _, _ = strings.Cut(strings.TrimSuffix(tag, `"`), ",")
				}
				doc := oneLine(marker.ReplaceAllString(f.Doc.Text()+f.Comment.Text(), ""))
				fmt.Fprintf(b, "| %s | %s | %s |\n", code(tag), cell(types.ExprString(f.Type)), cell(doc))
			}
		}
	}
}

// paths returns a table row for each constant that a client of the group needs.
func (s *source) paths() (rows []string) {
	for _, d := range s.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			name := v.Names[0].Name
			value, text := s.text[name]
			if n, ok := v.Values[0].(*ast.BasicLit); ok && n.Kind == token.INT {
				value, text = n.Value, true
			}
			doc := oneLine(v.Doc.Text())
			client := strings.HasPrefix(value, "/") || !strings.Contains(value, ".")
			if text && client && strings.HasPrefix(doc, name+" ") {
				rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", value, cell(doc)))
			}
		}
	}
	return rows
}

// words returns the constants of the file whose values are names in one of Keelson's own domains,
// each with its doc comment.
func (s *source) words() (out [][2]string) {
	for _, d := range s.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			value := s.text[v.Names[0].Name]
			doc := first(v.Doc.Text(), g.Doc.Text())
			if ownWord.MatchString(value) && doc != "" {
				out = append(out, [2]string{value, oneLine(doc)})
			}
		}
	}
	return out
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// indented converts a doc comment to Markdown. Indented lines become code blocks.
func indented(doc string) string {
	var out []string
	for line := range strings.Lines(doc) {
		line = strings.TrimRight(line, "\n")
		if rest, ok := strings.CutPrefix(line, "\t"); ok {
			line = "    " + rest
		}
		out = append(out, line)
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}
