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

// validator validates the kinds of the group. The function compiler returns the compiler of CEL
// expressions, which is expensive to create, so it is created when the first expression is compiled
// and then kept.
type validator struct {
	compiler func() plugincel.Compiler
}

func newValidator() *validator {
	return &validator{compiler: sync.OnceValue(func() plugincel.Compiler { return plugincel.NewCompiler(environments()) })}
}

func environments() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

// expressions compiles the CEL expressions of one object.
type expressions struct {
	validator *validator
	// stored are the expressions that the object had before an update. They may use features that
	// are too new for new expressions, because a newer server may have accepted them.
	stored sets.Set[string]
	// composed compiles expressions that may refer to the variables of a policy. If it is nil, the
	// validator's compiler is used, and expressions cannot refer to variables.
	composed *plugincel.CompositedCompiler
	params   bool // whether expressions may refer to params
}

// stateless returns a compiler for expressions that refer neither to variables nor to params.
func (v *validator) stateless() *expressions {
	return &expressions{validator: v, stored: sets.New[string]()}
}

// composing returns a compiler for expressions that may refer to variables.
func (v *validator) composing() (*expressions, error) {
	x := v.stateless()
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
	return x.validator.compiler()
}

// compile compiles e and reports its errors. The expression may use the authorizer. If patches is
// true, it may also use the types for patches.
func (x *expressions) compile(r *report.Report, path *field.Path, e plugincel.ExpressionAccessor, patches bool) {
	result := x.compiler().CompileCELExpression(e, plugincel.OptionalVariableDeclarations{
		HasParams: x.params, HasAuthorizer: true, HasPatchTypes: patches,
	}, x.environment(e.GetExpression()))
	if result.Error != nil {
		r.Expression(path, e.GetExpression(), result.Error)
	}
}

// conditions checks match conditions. Their expressions cannot refer to variables. params is true
// if they can refer to params.
func (x *expressions) conditions(r *report.Report, path *field.Path,
	conditions []admissionregistrationv1.MatchCondition, params bool) {
	if n := len(conditions); n > maxMatchConditions {
		r.TooMany(path, n, maxMatchConditions)
	}
	plain := expressions{validator: x.validator, stored: x.stored, params: params}
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

// variables checks the variables of a policy in order, because the expression of a variable may
// refer to earlier variables.
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

// isIdentifier reports whether name is an identifier of CEL (IDENT in its grammar).
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
