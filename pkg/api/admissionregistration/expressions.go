// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"keelson.dev/keelson/pkg/api/report"
)

const maxMatchConditions = 64

// judge validates the group's kinds. It keeps the compiler of expressions,
// which takes long to make and is made for the first object with one.
type judge struct {
	compiler func() plugincel.Compiler
}

func newJudge() *judge {
	return &judge{compiler: sync.OnceValue(func() plugincel.Compiler { return plugincel.NewCompiler(environments()) })}
}

func environments() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

// expressions compiles the expressions of one object.
type expressions struct {
	judge *judge
	// stored are the expressions of the object before an update: they may use
	// what a newer server had let them use.
	stored sets.Set[string]
	// composed compiles the expressions that may refer to variables; nil: the judge's.
	composed *plugincel.CompositedCompiler
	params   bool // the object's expressions have parameters
}

// stateless returns expressions without variables and parameters.
func (j *judge) stateless() *expressions {
	return &expressions{judge: j, stored: sets.New[string]()}
}

// composing is stateless, with variables.
func (j *judge) composing() (*expressions, error) {
	x := j.stateless()
	var err error
	x.composed, err = plugincel.NewCompositedCompiler(environments())
	return x, err
}

func (x *expressions) keepConditions(conditions []admissionregistrationv1.MatchCondition) {
	for _, c := range conditions {
		x.stored.Insert(c.Expression)
	}
}

func (x *expressions) environment(expression string) environment.Type {
	if x.stored.Has(expression) {
		return environment.StoredExpressions
	}
	return environment.NewExpressions
}

func (x *expressions) compiler() plugincel.Compiler {
	if x.composed != nil {
		return x.composed
	}
	return x.judge.compiler()
}

// compile reports what is wrong with an expression that may ask for authorization.
func (x *expressions) compile(r *report.Report, path *field.Path, e plugincel.ExpressionAccessor, patches bool) {
	result := x.compiler().CompileCELExpression(e, plugincel.OptionalVariableDeclarations{
		HasParams: x.params, HasAuthorizer: true, HasPatchTypes: patches,
	}, x.environment(e.GetExpression()))
	if result.Error != nil {
		r.Expression(path, e.GetExpression(), result.Error)
	}
}

// conditions judges match conditions, which know no variables.
func (x *expressions) conditions(r *report.Report, path *field.Path, conditions []admissionregistrationv1.MatchCondition, params bool) {
	if n := len(conditions); n > maxMatchConditions {
		r.TooMany(path, n, maxMatchConditions)
	}
	plain := expressions{judge: x.judge, stored: x.stored, params: params}
	seen := sets.New[string]()
	for i, c := range conditions {
		at := path.Index(i)
		if expression := strings.TrimSpace(c.Expression); expression == "" {
			r.Required(at.Child("expression"), "")
		} else {
			plain.compile(r, at.Child("expression"), &matchconditions.MatchCondition{Expression: expression}, false)
		}
		if c.Name == "" {
			r.Required(at.Child("name"), "")
			continue
		}
		r.Each(at.Child("name"), c.Name, validation.IsQualifiedName(c.Name))
		if seen.Has(c.Name) {
			r.Duplicate(at.Child("name"), c.Name)
		}
		seen.Insert(c.Name)
	}
}

// variables judges variables, in order: each may refer to those before it.
func (x *expressions) variables(r *report.Report, path *field.Path, variables []admissionregistrationv1.Variable) {
	for i, v := range variables {
		at := path.Index(i)
		switch {
		case strings.TrimSpace(v.Name) == "":
			r.Required(at.Child("name"), "name is not specified")
		case !isIdentifier(v.Name):
			r.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier")
		}
		if strings.TrimSpace(v.Expression) == "" {
			r.Required(at.Child("expression"), "expression is not specified")
			continue
		}
		result := x.composed.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression},
			plugincel.OptionalVariableDeclarations{HasParams: x.params, HasAuthorizer: true}, x.environment(v.Expression))
		if result.Error != nil {
			r.Expression(at.Child("expression"), v.Expression, result.Error)
		}
	}
}

// isIdentifier reports whether name is an IDENT of CEL.
func isIdentifier(name string) bool {
	for i, c := range name {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	switch name {
	case "", "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
		"import", "let", "loop", "package", "namespace", "return", "var", "void", "while":
		return false
	}
	return true
}
