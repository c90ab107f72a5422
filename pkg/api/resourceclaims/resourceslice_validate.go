// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func validateSlice(_ context.Context, s *resourcev1.ResourceSlice) field.ErrorList {
	return newSliceRules().check(&s.Spec, nil)
}

func validateSliceUpdate(_ context.Context, s, old *resourcev1.ResourceSlice) field.ErrorList {
	return newSliceRules().check(&s.Spec, &old.Spec)
}

// sliceRules validates one slice and collects the errors.
type sliceRules struct {
	report.Report
	semver *regexp.Regexp
}

func newSliceRules() *sliceRules {
	const number, pre, build = `(0|[1-9]\d*)`, `(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)`, `[0-9a-zA-Z-]+`
	return &sliceRules{semver: regexp.MustCompile(`^` + number + `\.` + number + `\.` + number +
		`(-` + pre + `(\.` + pre + `)*)?(\+` + build + `(\.` + build + `)*)?$`)}
}

// check validates the spec of a slice. old is nil if the slice is new.
func (r *sliceRules) check(s, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	path := field.NewPath("spec")
	checkDriver(&r.Report, path.Child("driver"), s.Driver)
	r.pool(path.Child("pool"), &s.Pool)
	if old != nil {
		r.Immutable(path.Child("pool", "name"), s.Pool.Name, old.Pool.Name)
		r.Immutable(path.Child("driver"), s.Driver, old.Driver)
		r.Immutable(path.Child("nodeName"), s.NodeName, old.NodeName)
	}
	r.nodes(path, s)
	if s.SharedCounters != nil && s.Devices != nil {
		r.Invalid(path, "", "only one of `sharedCounters` or `devices` is allowed")
	}
	limit := resourcev1.ResourceSliceMaxDevices
	if costly(s.Devices) {
		limit = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	perDevice := s.PerDeviceNodeSelection != nil && *s.PerDeviceNodeSelection
	checkSet(&r.Report, path.Child("devices"), s.Devices, limit, func(d *resourcev1.Device) string { return d.Name },
		func(at *field.Path, d *resourcev1.Device) { r.device(at, d, deviceOf(old, d.Name), perDevice) })
	checkSet(&r.Report, path.Child("sharedCounters"), s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets,
		func(c *resourcev1.CounterSet) string { return c.Name },
		func(at *field.Path, c *resourcev1.CounterSet) {
			r.counters(at, "name", c.Name, c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet)
		})
	return r.Errors
}

// costly reports whether a device has taints or consumes counters. The maximum number of devices is
// lower for a slice with such a device.
func costly(devices []resourcev1.Device) bool {
	for i := range devices {
		if len(devices[i].Taints) > 0 || len(devices[i].ConsumesCounters) > 0 {
			return true
		}
	}
	return false
}

func deviceOf(s *resourcev1.ResourceSliceSpec, name string) *resourcev1.Device {
	if s == nil {
		return nil
	}
	for i := range s.Devices {
		if s.Devices[i].Name == name {
			return &s.Devices[i]
		}
	}
	return nil
}

func (r *sliceRules) pool(path *field.Path, p *resourcev1.ResourcePool) {
	checkPoolName(&r.Report, path.Child("name"), p.Name)
	if p.ResourceSliceCount <= 0 {
		r.Invalid(path.Child("resourceSliceCount"), p.ResourceSliceCount, "must be greater than zero")
	}
	if p.Generation < 0 {
		r.Invalid(path.Child("generation"), p.Generation, "must be greater than or equal to zero")
	}
}

// nodes validates the fields that select the nodes that can use the devices. Exactly one of these
// fields must be set.
func (r *sliceRules) nodes(path *field.Path, s *resourcev1.ResourceSliceSpec) {
	var ways []string
	if s.NodeName != nil {
		if *s.NodeName == "" {
			r.Invalid(path.Child("nodeName"), "", "must be either unset or set to a non-empty string")
		} else {
			ways = append(ways, "`nodeName`")
			r.Each(path.Child("nodeName"), *s.NodeName, apivalidation.NameIsDNSSubdomain(*s.NodeName, false))
		}
	}
	if s.NodeSelector != nil {
		ways = append(ways, "`nodeSelector`")
		at := path.Child("nodeSelector")
		r.Add(podspec.ValidateNodeSelector(s.NodeSelector, at)...)
		r.oneTerm(at.Child("nodeSelectorTerms"), s.NodeSelector.NodeSelectorTerms)
	}
	ways = r.flag(path, ways, "allNodes", s.AllNodes)
	ways = r.flag(path, ways, "perDeviceNodeSelection", s.PerDeviceNodeSelection)
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	r.oneWay(path, ways, one, one+", but multiple fields are set")
}

// oneTerm reports a node selector that does not have exactly one term. The allocator of devices
// cannot combine selectors with several terms.
func (r *sliceRules) oneTerm(path *field.Path, terms []corev1.NodeSelectorTerm) {
	if len(terms) != 1 {
		r.Invalid(path, terms, "must have exactly one node selector term")
	}
}

// flag appends a field's name to ways if the field (the argument set) is true. If the field is
// false, flag reports an error, because the field must be true or unset.
func (r *sliceRules) flag(path *field.Path, ways []string, name string, set *bool) []string {
	switch {
	case set == nil:
		return ways
	case *set:
		return append(ways, "`"+name+"`")
	}
	r.Invalid(path.Child(name), false, "must be either unset or set to true")
	return ways
}

func (r *sliceRules) oneWay(path *field.Path, ways []string, none, several string) {
	switch len(ways) {
	case 0:
		r.Required(path, none)
	case 1:
	default:
		r.Invalid(path, "{"+strings.Join(ways, ", ")+"}", several)
	}
}

func (r *sliceRules) device(path *field.Path, d, old *resourcev1.Device, perDevice bool) {
	r.Label(path.Child("name"), d.Name)
	if n, limit := len(d.Attributes)+len(d.Capacity),
		resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice; n > limit {
		r.Invalid(path, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", limit))
	}
	const shown = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength
	name := func(at *field.Path, name string) { checkName(&r.Report, at, name) }
	checkMap(&r.Report, path.Child("attributes"), d.Attributes, -1, shown, name, r.attribute)
	multiple := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	checkMap(&r.Report, path.Child("capacity"), d.Capacity, -1, shown, name,
		func(at *field.Path, c resourcev1.DeviceCapacity) {
			switch at := at.Child("requestPolicy"); {
			case c.RequestPolicy == nil:
			// The stored capacity may have been accepted by weaker rules, so it is not checked
			// again.
			case old != nil && equality.Semantic.DeepEqual(old.Capacity, d.Capacity):
			case multiple:
				r.policy(at, c.Value, c.RequestPolicy)
			default:
				r.Forbidden(at, "allowMultipleAllocations must be true")
			}
		})
	if old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		checkSlice(&r.Report, path.Child("taints"), d.Taints, resourcev1.DeviceTaintsMaxLength,
			func(at *field.Path, t *resourcev1.DeviceTaint) { checkTaint(&r.Report, at, t) })
	}
	checkSet(&r.Report, path.Child("consumesCounters"), d.ConsumesCounters,
		resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice,
		func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		func(at *field.Path, c *resourcev1.DeviceCounterConsumption) {
			r.counters(at, "counterSet", c.CounterSet, c.Counters,
				resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption)
		})
	r.deviceNodes(path, d, old, perDevice)
	checkBinding(&r.Report, path, d.BindingConditions, d.BindingFailureConditions)
}

func (r *sliceRules) deviceNodes(path *field.Path, d, old *resourcev1.Device, perDevice bool) {
	if !perDevice {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			r.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if "+
				"`perDeviceNodeSelection` is set to true in the ResourceSlice spec")
		}
		return
	}
	var ways []string
	if d.NodeName != nil {
		if *d.NodeName == "" {
			r.Invalid(path.Child("nodeName"), "", "must not be empty")
		} else {
			ways = append(ways, "`nodeName`")
			r.Each(path.Child("nodeName"), *d.NodeName, apivalidation.NameIsDNSSubdomain(*d.NodeName, false))
		}
	}
	if d.NodeSelector != nil {
		ways = append(ways, "`nodeSelector`")
		r.Add(podspec.ValidateNodeSelector(d.NodeSelector, path.Child("nodeSelector"))...)
		// The stored selector may have several terms, because older versions accepted them. It is
		// not checked again.
		if old == nil || !equality.Semantic.DeepEqual(old.NodeSelector, d.NodeSelector) {
			r.oneTerm(path.Child("nodeSelector", "nodeSelectorTerms"), d.NodeSelector.NodeSelectorTerms)
		}
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when " +
		"`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	r.oneWay(path, r.flag(path, ways, "allNodes", d.AllNodes), one, one)
}

// counters validates the names of counters and the name of their set, which is in the field
// nameField. The values may be any quantities.
func (r *sliceRules) counters(path *field.Path, nameField, name string, counters map[string]resourcev1.Counter,
	limit int) {
	r.RequiredLabel(path.Child(nameField), name)
	at := path.Child("counters")
	if len(counters) == 0 {
		r.Required(at, "")
		return
	}
	checkMap(&r.Report, at, counters, limit, validation.DNS1123LabelMaxLength, r.Label,
		func(*field.Path, resourcev1.Counter) {})
}

func (r *sliceRules) attribute(path *field.Path, a resourcev1.DeviceAttribute) {
	values := 0
	if a.BoolValue != nil {
		values++
	}
	if a.IntValue != nil {
		values++
	}
	const limit = resourcev1.DeviceAttributeMaxValueLength
	if s := a.StringValue; s != nil {
		values++
		if len(*s) > limit {
			r.TooLong(path.Child("string"), limit)
		}
	}
	if v := a.VersionValue; v != nil {
		values++
		at := path.Child("version")
		if !r.semver.MatchString(*v) {
			r.Invalid(at, *v, "must be a string compatible with semver.org spec 2.0.0")
		}
		if len(*v) > limit {
			r.TooLong(at, limit)
		}
	}
	const one = "exactly one value must be specified"
	switch values {
	case 0:
		r.Invalid(path, "", one)
	case 1:
	default:
		r.Invalid(path, a, one)
	}
}

// policy validates the amounts that requests may ask for. capacity is the whole amount.
func (r *sliceRules) policy(path *field.Path, capacity resource.Quantity, p *resourcev1.CapacityRequestPolicy) {
	values, ranged := len(p.ValidValues) > 0, p.ValidRange != nil
	switch {
	case values && ranged:
		r.Forbidden(path, `exactly one policy can be specified, cannot specify "validValues" and `+
			`"validRange" at the same time`)
	case values && p.Default == nil:
		r.Required(path.Child("default"), "required when validValues is defined")
	case values:
		r.values(path.Child("validValues"), *p.Default, capacity, p.ValidValues)
	case ranged && p.Default == nil:
		r.Required(path.Child("default"), "required when validRange is defined")
	case ranged:
		r.span(path.Child("validRange"), *p.Default, capacity, p.ValidRange)
	}
}

// maxPolicyValues is the maximum number of validValues in the requestPolicy of a device's capacity.
const maxPolicyValues = 10

func (r *sliceRules) values(path *field.Path, standard, capacity resource.Quantity, values []resource.Quantity) {
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			r.Invalid(path.Index(i), values[i].String(), "values must be sorted in ascending order")
		}
	}
	found := false
	checkSet(&r.Report, path, values, maxPolicyValues, func(q *resource.Quantity) string {
		return strconv.FormatInt(q.Value(), 10) // rounded up to an integer
	},
		func(at *field.Path, q *resource.Quantity) {
			if q.Cmp(capacity) > 0 {
				r.Invalid(at, q.String(), "option is larger than capacity value: "+capacity.String())
			}
			found = found || q.Cmp(standard) == 0
		})
	if !found {
		r.Invalid(path, standard.String(), "default value is not valid according to the requestPolicy")
	}
}

// bound is a part of a range.
type bound struct {
	name  string
	value *resource.Quantity // may be nil
}

func (r *sliceRules) span(path *field.Path, standard, capacity resource.Quantity,
	s *resourcev1.CapacityRequestPolicyRange) {
	low, high, usual, step := path.Child("min"), path.Child("max"), path.Child("default"), path.Child("step")
	if s.Min == nil {
		r.Required(low, "required when validRange is defined")
		return
	}
	more := func(at *field.Path, value, limit resource.Quantity, detail string) {
		if value.Cmp(limit) > 0 {
			r.Invalid(at, value.String(), detail+limit.String())
		}
	}
	more(low, *s.Min, capacity, "min is larger than capacity value: ")
	if standard.Cmp(*s.Min) < 0 {
		r.Invalid(usual, standard.String(), "default is less than min: "+s.Min.String())
	}
	if s.Max != nil {
		more(high, *s.Min, *s.Max, "min is larger than max: ")
		more(high, *s.Max, capacity, "max is larger than capacity value: ")
		more(usual, standard, *s.Max, "default is more than max: ")
	}
	switch {
	case s.Step == nil:
		return
	case s.Step.Sign() <= 0:
		r.Invalid(step, s.Step.String(), "must be greater than zero")
		return
	}
	first := s.Min.DeepCopy()
	first.Add(*s.Step)
	if first.Cmp(capacity) > 0 {
		r.Invalid(step, s.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s",
			first.String(), capacity.String()))
	}
	sound := true
	for _, b := range []bound{{"default", &standard}, {"min", s.Min}, {"max", s.Max}, {"step", s.Step}} {
		if b.value != nil && !r.fits(path.Child(b.name), b.value) {
			sound = false
		}
	}
	if !sound {
		return
	}
	for _, value := range []*resource.Quantity{&standard, s.Max} { // fractions are rounded up
		if value != nil && (value.Value()-s.Min.Value())%s.Step.Value() != 0 {
			r.Invalid(step, value.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)",
				s.Step.String(), s.Min.String()))
		}
	}
}

// fits reports whether a quantity can be used in computations with 64-bit integers. If not, it
// records an error.
func (r *sliceRules) fits(path *field.Path, q *resource.Quantity) bool {
	switch {
	case q.Sign() < 0:
		r.Invalid(path, q.String(), apivalidation.IsNegativeErrorMsg)
	case q.CmpInt64(math.MaxInt64) > 0:
		r.Invalid(path, q.String(), "must not be larger than 9223372036854775807")
	default:
		return true
	}
	return false
}
