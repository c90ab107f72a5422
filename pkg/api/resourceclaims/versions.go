// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"fmt"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/runtime"
	v1beta1conversion "k8s.io/dynamic-resource-allocation/api/v1beta1"
	v1beta2conversion "k8s.io/dynamic-resource-allocation/api/v1beta2"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/older"
	"keelson.dev/keelson/pkg/api/unset"
)

// conversions returns a scheme that can convert between v1 and the older versions.
var conversions = sync.OnceValues(func() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{resourcev1.AddToScheme, v1beta1conversion.AddToScheme,
		v1beta2conversion.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
})

func convert(in, out resource.Object) error {
	scheme, err := conversions()
	if err != nil {
		return err
	}
	return scheme.Convert(in, out, nil)
}

// form has an empty object and an empty list of one version of a kind.
type form struct {
	object resource.Object
	list   runtime.Object
}

// versions returns the older versions of a kind: v1beta2, whose empty objects are in second, and
// v1beta1, whose empty objects are in first. stored is an empty object of v1. fill sets the
// defaults of objects of v1; it may be nil.
func versions(kind string, stored resource.Object, second, first form, fill func(resource.Object)) []resource.Version {
	v1beta2 := older.Version{
		Name: "v1beta2", Deprecated: "resource.k8s.io/v1beta2 " + kind + " is deprecated in v1.36+, unavailable in v1.39+",
		Removed: 39, Stored: stored, Object: second.object, List: second.list, Convert: convert,
	}
	if fill != nil {
		v1beta2.Default = v1beta2.As(fill)
	}
	v1beta1 := older.Version{
		Name: "v1beta1", Deprecated: "resource.k8s.io/v1beta1 " + kind + " is deprecated in v1.35+, unavailable in v1.38+",
		Removed: 38, Stored: stored, Object: first.object, List: first.list, Convert: convert, Default: defaultFirst,
	}
	return []resource.Version{v1beta2.Row(), v1beta1.Row()}
}

func classVersions() []resource.Version {
	return versions("DeviceClass", &resourcev1.DeviceClass{},
		form{&resourcev1beta2.DeviceClass{}, &resourcev1beta2.DeviceClassList{}},
		form{&resourcev1beta1.DeviceClass{}, &resourcev1beta1.DeviceClassList{}}, nil)
}

func claimVersions() []resource.Version {
	return versions("ResourceClaim", &resourcev1.ResourceClaim{},
		form{&resourcev1beta2.ResourceClaim{}, &resourcev1beta2.ResourceClaimList{}},
		form{&resourcev1beta1.ResourceClaim{}, &resourcev1beta1.ResourceClaimList{}},
		func(o resource.Object) {
			if c, ok := o.(*resourcev1.ResourceClaim); ok {
				defaultResourceClaim(c)
			}
		})
}

func templateVersions() []resource.Version {
	return versions("ResourceClaimTemplate", &resourcev1.ResourceClaimTemplate{},
		form{&resourcev1beta2.ResourceClaimTemplate{}, &resourcev1beta2.ResourceClaimTemplateList{}},
		form{&resourcev1beta1.ResourceClaimTemplate{}, &resourcev1beta1.ResourceClaimTemplateList{}},
		func(o resource.Object) {
			if t, ok := o.(*resourcev1.ResourceClaimTemplate); ok {
				defaultResourceClaimTemplate(t)
			}
		})
}

func sliceVersions() []resource.Version {
	return versions("ResourceSlice", &resourcev1.ResourceSlice{},
		form{&resourcev1beta2.ResourceSlice{}, &resourcev1beta2.ResourceSliceList{}},
		form{&resourcev1beta1.ResourceSlice{}, &resourcev1beta1.ResourceSliceList{}}, nil)
}

// ruleVersions returns the older versions of DeviceTaintRules, v1beta2 and v1alpha3. There is no v1beta1.
// In both, unlike in v1, a client can update a rule without its resourceVersion, and gets a deleted rule.
func ruleVersions() []resource.Version {
	v1beta2 := older.Version{
		Name: "v1beta2", Removed: 42, Stored: &resourcev1.DeviceTaintRule{}, Object: &resourcev1beta2.DeviceTaintRule{},
		List: &resourcev1beta2.DeviceTaintRuleList{}, Convert: convert,
	}
	v1alpha3 := older.Version{
		Name:       "v1alpha3",
		Deprecated: "resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+",
		Removed:    39, Stored: &resourcev1.DeviceTaintRule{}, Object: &resourcev1alpha3.DeviceTaintRule{},
		List: &resourcev1alpha3.DeviceTaintRuleList{}, Convert: convertAlphaRule,
	}
	versions := []resource.Version{v1beta2.Row(), v1alpha3.Row()}
	for i := range versions {
		versions[i].AllowUnconditionalUpdate, versions[i].ReturnDeleted = true, true
	}
	return versions
}

// convertAlphaRule converts a DeviceTaintRule between v1 and v1alpha3, which have the same fields.
func convertAlphaRule(in, out resource.Object) error {
	if in, ok := in.(*resourcev1.DeviceTaintRule); ok {
		if out, ok := out.(*resourcev1alpha3.DeviceTaintRule); ok {
			taint := in.Spec.Taint
			out.ObjectMeta, out.Status = in.ObjectMeta, resourcev1alpha3.DeviceTaintRuleStatus(in.Status)
			out.Spec.DeviceSelector = (*resourcev1alpha3.DeviceTaintSelector)(in.Spec.DeviceSelector)
			out.Spec.Taint = resourcev1alpha3.DeviceTaint{Key: taint.Key, Value: taint.Value,
				Effect: resourcev1alpha3.DeviceTaintEffect(taint.Effect), TimeAdded: taint.TimeAdded}
			return nil
		}
	}
	if in, ok := in.(*resourcev1alpha3.DeviceTaintRule); ok {
		if out, ok := out.(*resourcev1.DeviceTaintRule); ok {
			taint := in.Spec.Taint
			out.ObjectMeta, out.Status = in.ObjectMeta, resourcev1.DeviceTaintRuleStatus(in.Status)
			out.Spec.DeviceSelector = (*resourcev1.DeviceTaintSelector)(in.Spec.DeviceSelector)
			out.Spec.Taint = resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value,
				Effect: resourcev1.DeviceTaintEffect(taint.Effect), TimeAdded: taint.TimeAdded}
			return nil
		}
	}
	return fmt.Errorf("%T does not become %T", in, out)
}

// defaultFirst sets the defaults of objects of v1beta1. A request in v1beta1 has the fields itself
// that v1 has in request.exactly. These fields apply if the request names a class; otherwise its
// list firstAvailable applies.
func defaultFirst(o resource.Object) {
	var requests []resourcev1beta1.DeviceRequest
	switch o := o.(type) {
	case *resourcev1beta1.ResourceClaim:
		requests = o.Spec.Devices.Requests
		if a := o.Status.Allocation; a != nil {
			for i := range a.Devices.Results {
				tolerateEqual(a.Devices.Results[i].Tolerations)
			}
		}
	case *resourcev1beta1.ResourceClaimTemplate:
		requests = o.Spec.Spec.Devices.Requests
	}
	for i := range requests {
		request := &requests[i]
		if request.DeviceClassName != "" {
			countOne(&request.AllocationMode, &request.Count)
		}
		tolerateEqual(request.Tolerations)
		for j := range request.FirstAvailable {
			sub := &request.FirstAvailable[j]
			countOne(&sub.AllocationMode, &sub.Count)
			tolerateEqual(sub.Tolerations)
		}
	}
}

func countOne(mode *resourcev1beta1.DeviceAllocationMode, count *int64) {
	unset.Fill(mode, resourcev1beta1.DeviceAllocationModeExactCount)
	if *mode == resourcev1beta1.DeviceAllocationModeExactCount {
		unset.Fill(count, 1)
	}
}

func tolerateEqual(tolerations []resourcev1beta1.DeviceToleration) {
	for i := range tolerations {
		unset.Fill(&tolerations[i].Operator, resourcev1beta1.DeviceTolerationOpEqual)
	}
}
