// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"bytes"
	"reflect"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"

	"keelson.dev/apiserver/resource"
)

// columns are the columns in the Table of a version, in addition to the column for the name.
type columns struct {
	paths []string
	types []string

	once    sync.Once
	parsers []*parser // one for each path; nil for an invalid path
}

const (
	// maxPath is the maximum length of a path, in bytes.
	maxPath = 4 << 10
	// maxBranches is how many values the unions of a path (['a','b']) may select together from one
	// value. The numbers of all unions multiply, so with a few dozen unions of two values, evaluating
	// a path would never end.
	maxBranches = 64
	// maxDescent is the maximum depth of an object for a path that contains "..". The evaluation of
	// ".." visits a level once for each level above it, so it would take too long in a deep object.
	// For deeper objects, find returns no values.
	maxDescent = 64
)

// parser evaluates one path. The mutex is needed because the library's parser stores state while it
// evaluates.
type parser struct {
	mu       sync.Mutex
	path     *jsonpath.JSONPath
	descends bool // whether the path contains ".."
}

// parsePath returns nil if path is invalid or too costly: if it could take much time and memory
// even for a small object. This limit protects the server, because any author of a
// CustomResourceDefinition can choose a path. Kubernetes has no such limit.
func parsePath(path string) *parser {
	template := "{" + path + "}"
	p := jsonpath.New("column")
	p.AllowMissingKeys(true)
	if len(path) > maxPath || p.Parse(template) != nil {
		return nil
	}
	tree, err := jsonpath.Parse("column", template)
	if err != nil || len(tree.Root.Nodes) != 1 { // several templates could form nested loops, so only one is allowed
		return nil
	}
	c := pathCost{branches: 1}
	c.add(tree.Root)
	if c.branches > maxBranches || c.descents > 1 {
		return nil
	}
	return &parser{path: p, descends: c.descents > 0}
}

// pathCost counts the parts of a path that multiply the number of selected values.
type pathCost struct{ branches, descents int }

func (c *pathCost) add(list *jsonpath.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *jsonpath.ListNode:
			c.add(n)
		case *jsonpath.RecursiveNode:
			c.descents++
		case *jsonpath.UnionNode:
			c.branches = min(c.branches*len(n.Nodes), maxBranches+1)
			for _, branch := range n.Nodes {
				c.add(branch)
			}
		case *jsonpath.FilterNode:
			c.add(n.Left)
			c.add(n.Right)
		}
	}
}

// deeper reports whether a value has more than the given number of levels.
func deeper(value any, levels int) bool {
	if levels < 0 {
		return true
	}
	switch v := value.(type) {
	case map[string]any:
		for _, below := range v {
			if deeper(below, levels-1) {
				return true
			}
		}
	case []any:
		for _, below := range v {
			if deeper(below, levels-1) {
				return true
			}
		}
	}
	return false
}

// find returns the values at the path.
func (p *parser) find(u map[string]any) ([]reflect.Value, error) {
	if p.descends && deeper(u, maxDescent) {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	results, err := p.path.FindResults(u)
	if err != nil || len(results) == 0 {
		return nil, err
	}
	return results[0], nil
}

// print converts a value to text. It returns false if that fails.
func (p *parser) print(value any) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out bytes.Buffer
	err := p.path.PrintResults(&out, []reflect.Value{reflect.ValueOf(value)})
	return out.String(), err == nil
}

// newColumns returns the columns of a version, and their definitions for the Table.
func newColumns(v *apiextensionsv1.CustomResourceDefinitionVersion) (*columns, []metav1.TableColumnDefinition) {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	wanted := v.AdditionalPrinterColumns
	if len(wanted) == 0 {
		wanted = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Age", Type: "date", Description: docs["creationTimestamp"], JSONPath: ".metadata.creationTimestamp"},
		}
	}
	c := &columns{}
	defs := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: docs["name"]}}
	for _, col := range wanted {
		description := col.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + col.JSONPath
		}
		c.paths, c.types = append(c.paths, strings.Clone(col.JSONPath)), append(c.types, col.Type)
		defs = append(defs, metav1.TableColumnDefinition{
			Name: col.Name, Type: col.Type, Format: col.Format, Description: description, Priority: col.Priority,
		})
	}
	return c, defs
}

// cells returns the cells of the row of an object.
func (c *columns) cells(obj resource.Object, env resource.CellEnv) []any {
	c.once.Do(func() {
		for _, p := range c.paths {
			c.parsers = append(c.parsers, parsePath(p))
		}
	})
	u := object(obj).Object
	cells := []any{obj.GetName()}
	for i, p := range c.parsers {
		cells = append(cells, c.cell(p, c.types[i], u, env))
	}
	return cells
}

func (c *columns) cell(p *parser, kind string, u map[string]any, env resource.CellEnv) any {
	if p == nil {
		return nil
	}
	found, err := p.find(u)
	if err != nil || len(found) == 0 {
		return nil
	}
	value := found[0].Interface()
	if kind == "string" {
		if s, ok := p.print(value); ok {
			return s
		}
		return nil
	}
	return cellOf(kind, value, env)
}

// cellOf converts a JSON value to the type of its column. It returns nil if the value has another
// type.
func cellOf(kind string, value any, env resource.CellEnv) any {
	switch v := value.(type) {
	case int64:
		switch kind {
		case "integer":
			return v
		case "number":
			return float64(v)
		}
	case float64:
		switch kind {
		case "integer":
			return int64(v)
		case "number":
			return v
		}
	case bool:
		if kind == "boolean" {
			return v
		}
	case string:
		if kind == "date" {
			return dateCell(v, env)
		}
	}
	return nil
}

func dateCell(s string, env resource.CellEnv) string {
	var t metav1.Time
	if t.UnmarshalQueryParameter(s) != nil {
		return "<invalid>"
	}
	return env.Age(t)
}
