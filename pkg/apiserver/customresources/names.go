// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// taken has the names that are granted to definitions of one group, with the number of grants of
// each.
type taken struct {
	resources map[string]int // plural, singular and short names
	kinds     map[string]int // kinds and list kinds
}

func newTaken() *taken {
	return &taken{resources: make(map[string]int), kinds: make(map[string]int)}
}

// count adds a number, the argument by, to the number of grants of each name in names.
func (t *taken) count(names *apiextensionsv1.CustomResourceDefinitionNames, by int) {
	for _, n := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
		add(t.resources, n, by)
	}
	add(t.kinds, names.Kind, by)
	add(t.kinds, names.ListKind, by)
}

func add(m map[string]int, name string, by int) {
	if name == "" {
		return
	}
	if m[name] += by; m[name] <= 0 {
		delete(m, name)
	}
}

// grant returns the names that crd may have: its accepted names, changed to the requested ones
// where these are free. The condition reports whether crd gets all requested names.
func grant(crd *apiextensionsv1.CustomResourceDefinition,
	by *taken) (apiextensionsv1.CustomResourceDefinitionNames, apiextensionsv1.CustomResourceDefinitionCondition) {
	want, have := &crd.Spec.Names, &crd.Status.AcceptedNames
	got := *have.DeepCopy()
	cond := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts",
		Message: "no conflicts found",
	}
	refuse := func(reason string, err error) {
		cond.Status, cond.Reason, cond.Message = apiextensionsv1.ConditionFalse, reason, err.Error()
	}
	one := func(want, have string, used map[string]int, reason string, into *string) {
		if err := free(want, have, used); err != nil {
			refuse(reason, err)
			return
		}
		*into = want
	}
	one(want.Plural, have.Plural, by.resources, "PluralConflict", &got.Plural)
	one(want.Singular, have.Singular, by.resources, "SingularConflict", &got.Singular)
	if !slices.Equal(want.ShortNames, have.ShortNames) {
		if err := freeShortNames(want.ShortNames, have.ShortNames, by.resources); err != nil {
			refuse("ShortNamesConflict", err)
		} else {
			got.ShortNames = slices.Clone(want.ShortNames)
		}
	}
	one(want.Kind, have.Kind, by.kinds, "KindConflict", &got.Kind)
	one(want.ListKind, have.ListKind, by.kinds, "ListKindConflict", &got.ListKind)
	got.Categories = slices.Clone(want.Categories)
	return got, cond
}

func free(want, have string, used map[string]int) error {
	if want != have && used[want] > 0 {
		return fmt.Errorf("%q is already in use", want)
	}
	return nil
}

func freeShortNames(want, have []string, used map[string]int) error {
	var errs []error
	for _, n := range want {
		if slices.Contains(have, n) {
			continue
		}
		if err := free(n, "", used); err != nil {
			errs = append(errs, err)
		}
	}
	if agg := utilerrors.NewAggregate(errs); agg != nil {
		return errors.New(agg.Error())
	}
	return nil
}
