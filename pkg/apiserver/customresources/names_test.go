// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

type names = apiextensionsv1.CustomResourceDefinitionNames

func foo() names {
	return names{Plural: "foos", Singular: "foo", Kind: "Foo", ListKind: "FooList", ShortNames: []string{"f"},
		Categories: []string{"all"}}
}

func TestGrant(t *testing.T) {
	with := func(n names, change func(*names)) names {
		change(&n)
		return n
	}
	for name, test := range map[string]struct {
		want, have names
		others     []names
		got        names
		reason     string
		message    string
	}{
		"all are free": {want: foo(), got: foo(), reason: "NoConflicts", message: "no conflicts found"},
		"its own": {
			want: foo(), have: foo(), others: []names{foo()}, got: foo(), reason: "NoConflicts", message: "no conflicts found",
		},
		"a kind is taken": {
			want: foo(), others: []names{{Kind: "Foo"}},
			got: with(foo(), func(n *names) { n.Kind = "" }), reason: "KindConflict", message: `"Foo" is already in use`,
		},
		"a list kind is taken as a kind": {
			want: foo(), others: []names{{Kind: "FooList"}},
			got: with(foo(), func(n *names) { n.ListKind = "" }), reason: "ListKindConflict",
			message: `"FooList" is already in use`,
		},
		"a singular is another's short name": {
			want: foo(), others: []names{{ShortNames: []string{"foo"}}},
			got: with(foo(), func(n *names) { n.Singular = "" }), reason: "SingularConflict", message: `"foo" is already in use`,
		},
		"of short names, all or none": {
			want:   with(foo(), func(n *names) { n.ShortNames = []string{"f", "ff", "fff"} }),
			others: []names{{Plural: "ff"}, {Singular: "fff"}},
			got:    with(foo(), func(n *names) { n.ShortNames = nil }), reason: "ShortNamesConflict",
			message: `["ff" is already in use, "fff" is already in use]`,
		},
		"what it had stays": {
			want: with(foo(), func(n *names) { n.Kind, n.ShortNames = "Bar", nil }), have: foo(),
			others: []names{foo(), {Kind: "Bar"}},
			got:    with(foo(), func(n *names) { n.ShortNames = nil }), reason: "KindConflict",
			message: `"Bar" is already in use`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			by := newTaken()
			for i := range test.others {
				by.count(&test.others[i], 1)
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Spec.Names, crd.Status.AcceptedNames = test.want, test.have
			got, cond := grant(crd, by)
			if diff := cmp.Diff(test.got, got); diff != "" {
				t.Error(diff)
			}
			if cond.Reason != test.reason || cond.Message != test.message {
				t.Errorf("%s: %s", cond.Reason, cond.Message)
			}
		})
	}
}

func TestNamesAreFreeOnceNobodyHasThem(t *testing.T) {
	by, n := newTaken(), foo()
	by.count(&n, 1)
	by.count(&n, 1)
	by.count(&n, -1)
	if by.resources["foos"] != 1 || by.kinds["Foo"] != 1 {
		t.Errorf("taken %+v", by)
	}
	by.count(&n, -1)
	if len(by.resources)+len(by.kinds) != 0 {
		t.Errorf("taken %+v", by)
	}
}

func TestDecide(t *testing.T) {
	at := metav1.NewTime(time.Unix(1000, 0))
	other := foo()
	conflict := newTaken()
	conflict.count(&other, 1)
	for name, test := range map[string]struct {
		crd  string
		by   *taken
		want map[apiextensionsv1.CustomResourceDefinitionConditionType]string // status and reason of each condition
	}{
		"new": {
			crd: `{spec: {group: example.com, names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}}}`,
			want: map[apiextensionsv1.CustomResourceDefinitionConditionType]string{
				"NamesAccepted": "True NoConflicts", "Established": "True InitialNamesAccepted"},
		},
		"names are taken": {
			crd: `{spec: {group: example.com, names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}}}`,
			by:  conflict,
			want: map[apiextensionsv1.CustomResourceDefinitionConditionType]string{
				"NamesAccepted": "False ListKindConflict", "Established": "False NotAccepted"},
		},
		"established stays, whatever it wants": {
			crd: `{spec: {group: example.com, names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}},
			       status: {acceptedNames: {plural: foos, singular: foo, kind: Bar, listKind: FooList},
			                conditions: [{type: Established, status: "True", reason: InitialNamesAccepted}, {type: NamesAccepted, status: "True"}]}}`, by: conflict,
			want: map[apiextensionsv1.CustomResourceDefinitionConditionType]string{
				"NamesAccepted": "False KindConflict", "Established": "True InitialNamesAccepted"},
		},
		"a webhook that cannot be trusted": {
			crd: `{spec: {group: example.com, names: {plural: foos, singular: foo, kind: Foo, listKind: FooList},
			       conversion: {strategy: Webhook, webhook: {clientConfig: {caBundle: Zm9v}}}}}`,
			want: map[apiextensionsv1.CustomResourceDefinitionConditionType]string{
				"NamesAccepted": "True NoConflicts", "Established": "False InvalidCABundle"},
		},
		"a group of Kubernetes' own": {
			crd: `{metadata: {annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes/x/pull/1"}},
			       spec: {group: x.k8s.io, names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}}}`,
			want: map[apiextensionsv1.CustomResourceDefinitionConditionType]string{
				"NamesAccepted": "True NoConflicts", "Established": "True InitialNamesAccepted",
				"KubernetesAPIApprovalPolicyConformant": "True ApprovedAnnotation",
			},
		},
		"from before schemas were structural": {
			crd: `{spec: {group: example.com, preserveUnknownFields: true, names: {plural: foos, singular: ` +
				`foo, kind: Foo, listKind: FooList}}}`,
			want: map[apiextensionsv1.CustomResourceDefinitionConditionType]string{
				"NamesAccepted": "True NoConflicts", "Established": "True InitialNamesAccepted",
				"NonStructuralSchema": "True Violations",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict([]byte(test.crd), crd); err != nil {
				t.Fatal(err)
			}
			by := test.by
			if by == nil {
				by = newTaken()
			}
			next, changed := decide(crd, by, at)
			if !changed {
				t.Error("nothing changed")
			}
			got := make(map[apiextensionsv1.CustomResourceDefinitionConditionType]string)
			for _, c := range next.Status.Conditions {
				got[c.Type] = string(c.Status) + " " + c.Reason
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if again, changed := decide(next, by, metav1.Now()); changed {
				t.Errorf("decided again, otherwise: %s", cmp.Diff(next.Status, again.Status))
			}
			if established := apihelpers.FindCRDCondition(next, apiextensionsv1.Established); name == "new" &&
				!established.LastTransitionTime.Equal(&at) {
				t.Errorf("transition at %v", established.LastTransitionTime)
			}
		})
	}
}
