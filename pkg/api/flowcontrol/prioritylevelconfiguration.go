// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"context"
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	"k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// priorityLevelConfigurationRow returns the row of the kind table for the resource
// prioritylevelconfigurations.
func priorityLevelConfigurationRow() *resource.Row {
	parts := strategy.Parts[flowcontrolv1.PriorityLevelConfiguration,
		flowcontrolv1.PriorityLevelConfigurationSpec, flowcontrolv1.PriorityLevelConfigurationStatus](
		func(o *flowcontrolv1.PriorityLevelConfiguration) (*flowcontrolv1.PriorityLevelConfigurationSpec,
			*flowcontrolv1.PriorityLevelConfigurationStatus) {
			return &o.Spec, &o.Status
		})
	return resource.Of[flowcontrolv1.PriorityLevelConfigurationList](
		resource.Kind[*flowcontrolv1.PriorityLevelConfiguration]{
			Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations",
			Kind: "PriorityLevelConfiguration",

			Default:                  defaultPriorityLevelConfiguration,
			MetaOnUpdate:             resource.CheckNameAndFinalizers,
			PrepareCreate:            parts.Create,
			PrepareUpdate:            parts.Update,
			Validate:                 validatePriorityLevel,
			ValidateUpdate:           validatePriorityLevelUpdate,
			AllowUnconditionalUpdate: true,
			ResetFields:              []string{"status"},

			StoredForms: olderPriorityLevels(),
			Columns: []metav1.TableColumnDefinition{
				column.Name(),
				{Name: "Type", Type: "string", Description: flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]},
				{Name: "NominalConcurrencyShares", Type: "string",
					Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]},
				{Name: "Queues", Type: "string", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queues"]},
				{Name: "HandSize", Type: "string", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["handSize"]},
				{Name: "QueueLengthLimit", Type: "string",
					Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queueLengthLimit"]},
				column.Age(),
			},
			Cells: priorityLevelConfigurationCells,

			Subresources: []resource.Sub[*flowcontrolv1.PriorityLevelConfiguration]{
				{Subresource: strategy.View("status", "spec", "metadata"), PrepareUpdate: parts.KeepSpecAndAllMeta,
					ValidateUpdate: validatePriorityLevelStatus},
			},
		})
}

func defaultPriorityLevelConfiguration(c *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := c.Spec.Exempt; exempt != nil {
		unset.Point(&exempt.NominalConcurrencyShares, 0)
		unset.Point(&exempt.LendablePercent, 0)
	}
	limited := c.Spec.Limited
	if limited == nil {
		return
	}
	unset.Point(&limited.NominalConcurrencyShares, concurrencyShares)
	unset.Point(&limited.LendablePercent, 0)
	if q := limited.LimitResponse.Queuing; q != nil {
		unset.Fill(&q.HandSize, handSize)
		unset.Fill(&q.Queues, queues)
		unset.Fill(&q.QueueLengthLimit, queueLength)
	}
}

const maxQueues = 10_000_000

func validatePriorityLevel(_ context.Context, c *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	var r report.Report
	const roundTrip = v1beta3.PriorityLevelPreserveZeroConcurrencySharesKey
	if _, ok := c.Annotations[roundTrip]; ok {
		r.Forbidden(field.NewPath("metadata", "annotations"), fmt.Sprintf("annotation '%s' is forbidden", roundTrip))
	}
	path := field.NewPath("spec")
	checkLevel(&r, path, c)
	checkMandatoryLevel(&r, path, c)
	checkLevelConditions(&r, c)
	return r.Errors
}

func validatePriorityLevelUpdate(ctx context.Context, c, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	return validatePriorityLevel(ctx, c)
}

func validatePriorityLevelStatus(_ context.Context, c, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	var r report.Report
	checkLevelConditions(&r, c)
	return r.Errors
}

func checkLevelConditions(r *report.Report, c *flowcontrolv1.PriorityLevelConfiguration) {
	conditions := make([]string, len(c.Status.Conditions))
	for i, condition := range c.Status.Conditions {
		conditions[i] = string(condition.Type)
	}
	checkConditions(r, conditions)
}

// checkMandatoryLevel requires that a level with the name of a mandatory level has the prescribed
// spec. In the level "exempt", the field spec.exempt can differ.
func checkMandatoryLevel(r *report.Report, path *field.Path, c *flowcontrolv1.PriorityLevelConfiguration) {
	all := bootstrap.MandatoryPriorityLevelConfigurations
	i := slices.IndexFunc(all, func(m *flowcontrolv1.PriorityLevelConfiguration) bool { return m.Name == c.Name })
	if i < 0 {
		return
	}
	have, except := c.Spec, ""
	if c.Name == exemptName {
		have.Exempt, except = all[i].Spec.Exempt, " except the 'spec.exempt' field"
	}
	if !equality.Semantic.DeepEqual(have, all[i].Spec) {
		r.Invalid(path, c.Spec, fmt.Sprintf("spec of '%s'%s must equal the fixed value", c.Name, except))
	}
}

func checkLevel(r *report.Report, path *field.Path, c *flowcontrolv1.PriorityLevelConfiguration) {
	s := &c.Spec
	if (c.Name == exemptName) != (s.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		r.Invalid(path.Child("type"), s.Type, "must be 'Exempt' if and only if `name` is 'exempt'")
	}
	switch s.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if s.Limited != nil {
			r.Forbidden(path.Child("limited"), "must be nil if the type is not Limited")
		}
		if s.Exempt != nil {
			checkShares(r, path.Child("exempt"), s.Exempt.NominalConcurrencyShares)
			checkLendable(r, path.Child("exempt"), s.Exempt.LendablePercent)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if s.Exempt != nil {
			r.Forbidden(path.Child("exempt"), "must be nil if the type is Limited")
		}
		if s.Limited == nil {
			r.Required(path.Child("limited"), "must not be empty when type is Limited")
		} else {
			checkLimited(r, path.Child("limited"), s.Limited)
		}
	default:
		report.OneOfRequired(r, path.Child("type"), s.Type,
			flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)
	}
}

func checkShares(r *report.Report, path *field.Path, shares *int32) {
	if shares != nil && *shares < 0 {
		r.Invalid(path.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer")
	}
}

func checkLendable(r *report.Report, path *field.Path, percent *int32) {
	if percent != nil && (*percent < 0 || *percent > 100) {
		r.Invalid(path.Child("lendablePercent"), *percent, "must be between 0 and 100, inclusive")
	}
}

func checkLimited(r *report.Report, path *field.Path, l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
	checkShares(r, path, l.NominalConcurrencyShares)
	checkLimitResponse(r, path.Child("limitResponse"), &l.LimitResponse)
	checkLendable(r, path, l.LendablePercent)
	if b := l.BorrowingLimitPercent; b != nil && *b < 0 {
		r.Invalid(path.Child("borrowingLimitPercent"), *b, "if specified, must be a non-negative integer")
	}
}

func checkLimitResponse(r *report.Report, path *field.Path, l *flowcontrolv1.LimitResponse) {
	at := path.Child("queuing")
	switch l.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if l.Queuing != nil {
			r.Forbidden(at, "must be nil if limited.limitResponse.type is not Limited")
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if l.Queuing == nil {
			r.Required(at, "must not be empty if limited.limitResponse.type is Limited")
		} else {
			checkQueuing(r, at, l.Queuing)
		}
	default:
		report.OneOfRequired(r, path.Child("type"), l.Type, flowcontrolv1.LimitResponseTypeQueue,
			flowcontrolv1.LimitResponseTypeReject)
	}
}

// checkQueuing validates the settings for queues. A flow can use handSize of the queues, which are
// chosen by the bits of a 64-bit hash. So queues and handSize must not need more bits than the hash
// has.
func checkQueuing(r *report.Report, path *field.Path, q *flowcontrolv1.QueuingConfiguration) {
	const positive = "must be positive"
	if q.QueueLengthLimit <= 0 {
		r.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, positive)
	}
	switch {
	case q.Queues <= 0:
		r.Invalid(path.Child("queues"), q.Queues, positive)
	case q.Queues > maxQueues:
		r.Invalid(path.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues))
	}
	at := path.Child("handSize")
	switch {
	case q.HandSize <= 0:
		r.Invalid(at, q.HandSize, positive)
	case q.HandSize > q.Queues:
		r.Invalid(at, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues))
	case shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) > shufflesharding.MaxHashBits:
		r.Invalid(at, q.HandSize,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d",
				q.Queues, q.HandSize, shufflesharding.MaxHashBits))
	}
}

func priorityLevelConfigurationCells(c *flowcontrolv1.PriorityLevelConfiguration, env resource.CellEnv) []any {
	var shares, queues, hand, length any = column.None, column.None, column.None, column.None
	if limited := c.Spec.Limited; limited != nil {
		if limited.NominalConcurrencyShares != nil {
			shares = *limited.NominalConcurrencyShares
		}
		if q := limited.LimitResponse.Queuing; q != nil {
			queues, hand, length = q.Queues, q.HandSize, q.QueueLengthLimit
		}
	}
	return []any{c.Name, string(c.Spec.Type), shares, queues, hand, length, env.Age(c.CreationTimestamp)}
}

// olderPriorityLevels returns the forms in which servers stored levels of older versions. In v1beta1
// and v1beta2, the field for a level's shares is called assuredConcurrencyShares. In v1beta3, zero
// shares mean the default, unless the level has an annotation, which v1 does not allow.
func olderPriorityLevels() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(flowcontrolv1beta1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
			func(in *flowcontrolv1beta1.PriorityLevelConfiguration, out *flowcontrolv1.PriorityLevelConfiguration) {
				if in.Spec.Limited != nil {
					takeShares(out, in.Spec.Limited.AssuredConcurrencyShares)
				}
			}),
		resource.NewStoredForm(flowcontrolv1beta2.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
			func(in *flowcontrolv1beta2.PriorityLevelConfiguration, out *flowcontrolv1.PriorityLevelConfiguration) {
				if in.Spec.Limited != nil {
					takeShares(out, in.Spec.Limited.AssuredConcurrencyShares)
				}
			}),
		resource.NewStoredForm(v1beta3.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
			func(in *v1beta3.PriorityLevelConfiguration, out *flowcontrolv1.PriorityLevelConfiguration) {
				_, zero := in.Annotations[v1beta3.PriorityLevelPreserveZeroConcurrencySharesKey]
				delete(out.Annotations, v1beta3.PriorityLevelPreserveZeroConcurrencySharesKey)
				if limited := out.Spec.Limited; limited != nil && !zero && in.Spec.Limited.NominalConcurrencyShares == 0 {
					limited.NominalConcurrencyShares = nil
				}
			}),
	}
}

// takeShares sets the nominal shares of level to shares of an older version. In older versions,
// zero shares mean the default, so takeShares leaves the field unset.
func takeShares(level *flowcontrolv1.PriorityLevelConfiguration, shares int32) {
	if shares != 0 {
		level.Spec.Limited.NominalConcurrencyShares = &shares
	}
}
