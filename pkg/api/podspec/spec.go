// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// check validates one pod specification. It embeds the report with the errors.
type check struct {
	report.Report
	ctx  context.Context
	spec *corev1.PodSpec
	// meta is the metadata of the pod, or nil if the specification is in a template.
	meta *metav1.ObjectMeta
	// old is the specification before an update, or nil on create. The new specification may keep
	// some fields of old that would be rejected in a new pod.
	old *corev1.PodSpec
	// volumes are the valid volumes by name, and claims are the names of the pod's resource claims.
	// The fields of containers must refer to these volumes and claims.
	volumes map[string]*corev1.VolumeSource
	claims  sets.Set[string]
}

// ValidateSpec validates the specification of a new pod or template. path is the path of the
// specification. meta is the metadata of the pod, or nil for a template.
func ValidateSpec(ctx context.Context, spec *corev1.PodSpec, meta *metav1.ObjectMeta,
	path *field.Path) field.ErrorList {
	return ValidateSpecUpdate(ctx, spec, nil, meta, path)
}

// ValidateSpecUpdate validates a specification that replaces old. It is like ValidateSpec, except
// that it accepts fields of features that are off if old has them.
func ValidateSpecUpdate(ctx context.Context, spec, old *corev1.PodSpec, meta *metav1.ObjectMeta,
	path *field.Path) field.ErrorList {
	c := &check{ctx: ctx, spec: spec, old: old, meta: meta, volumes: map[string]*corev1.VolumeSource{},
		claims: sets.New[string]()}
	if spec.TerminationGracePeriodSeconds == nil {
		c.Required(path.Child("terminationGracePeriodSeconds"), "")
	}
	c.checkVolumes(path.Child("volumes"))
	c.checkClaims(path.Child("resourceClaims"))
	c.checkMain(path.Child("containers"))
	c.checkInit(path.Child("initContainers"))
	c.checkEphemeral(path.Child("ephemeralContainers"))
	c.checkPodResources(path.Child("resources"))
	c.checkHostPorts(path.Child("containers"))
	report.OneOfRequired(&c.Report, path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	report.OneOfRequired(&c.Report, path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	c.Labels(path.Child("nodeSelector"), spec.NodeSelector)
	c.checkPodSecurity(path.Child("securityContext"))
	c.checkAffinity(path.Child("affinity"))
	c.checkDNSConfig(path.Child("dnsConfig"))
	c.checkGates(path)
	c.checkSpread(path.Child("topologySpreadConstraints"))
	c.checkHostProcess(path)
	c.checkHostUsers(path)
	c.checkNames(path)
	c.checkOS(path)
	c.checkSchedulingGroup(path.Child("schedulingGroup"))
	c.checkFileKeys(path)
	return c.Errors
}

// isPod reports whether the specification is that of a pod, not of a template. In a pod, the server
// has set some fields that a template may lack.
func (c *check) isPod() bool { return c.meta != nil }

// checkSchedulingGroup requires the name of a PodGroup, which does not have to exist.
func (c *check) checkSchedulingGroup(path *field.Path) {
	group := c.spec.SchedulingGroup
	if group == nil {
		return
	}
	if at := path.Child("podGroupName"); group.PodGroupName == nil {
		c.Invalid(at, group.PodGroupName, "must specify one of: `podGroupName`")
	} else {
		c.Each(at, *group.PodGroupName, naming.NameIsDNSSubdomain(*group.PodGroupName, false))
	}
	if len(c.spec.EvictionResponders) > 0 {
		c.Forbidden(path, "may not be set when evictionResponders is set")
	}
}

func (c *check) checkGates(path *field.Path) {
	for i, gate := range c.spec.ReadinessGates {
		c.QualifiedName(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType))
	}
	seen := sets.New[string]()
	for i, gate := range c.spec.SchedulingGates {
		at := path.Child("schedulingGates").Index(i)
		c.QualifiedName(at, gate.Name)
		if seen.Has(gate.Name) {
			c.Duplicate(at, gate.Name)
		}
		seen.Insert(gate.Name)
	}
}

// checkNames validates the names and numbers that do not depend on other fields.
func (c *check) checkNames(path *field.Path) {
	spec := c.spec
	c.checkHostname(path)
	if spec.ServiceAccountName != "" {
		c.Each(path.Child("serviceAccountName"), spec.ServiceAccountName,
			naming.NameIsDNSSubdomain(spec.ServiceAccountName, false))
	}
	if spec.NodeName != "" {
		c.Each(path.Child("nodeName"), spec.NodeName, naming.NameIsDNSSubdomain(spec.NodeName, false))
	}
	if d := spec.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		c.Invalid(path.Child("activeDeadlineSeconds"), *d, validation.InclusiveRangeError(1, math.MaxInt32))
	}
	if spec.Hostname != "" {
		c.Label(path.Child("hostname"), spec.Hostname)
	}
	if spec.Subdomain != "" {
		c.Label(path.Child("subdomain"), spec.Subdomain)
	}
	c.Add(ValidateTolerations(spec.Tolerations, path.Child("tolerations"))...)
	c.checkHostAliases(path.Child("hostAliases"))
	if spec.PriorityClassName != "" {
		c.Each(path.Child("priorityClassName"), spec.PriorityClassName,
			naming.NameIsDNSSubdomain(spec.PriorityClassName, false))
	}
	if name := spec.RuntimeClassName; name != nil && *name != "" { // "" means the default runtime
		c.Each(path.Child("runtimeClassName"), *name, naming.NameIsDNSSubdomain(*name, false))
	}
	if p := spec.PreemptionPolicy; p != nil {
		report.OneOfRequired(&c.Report, path.Child("preemptionPolicy"), *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if spec.Overhead != nil {
		c.Add(ValidateResources(&corev1.ResourceRequirements{Limits: spec.Overhead}, nil, path.Child("overhead"))...)
	}
}

const maxHostname = 64

func (c *check) checkHostname(path *field.Path) {
	name := c.spec.HostnameOverride
	if name == nil {
		return
	}
	at := path.Child("hostnameOverride")
	if c.spec.SetHostnameAsFQDN != nil && *c.spec.SetHostnameAsFQDN {
		c.Forbidden(at, "may not be specified when setHostnameAsFQDN is true")
	}
	if c.spec.HostNetwork {
		c.Forbidden(at, "may not be specified when hostNetwork is true")
	}
	if len(*name) > maxHostname {
		c.TooLong(at, maxHostname)
	}
	c.Subdomain(at, *name)
}

func (c *check) checkHostAliases(path *field.Path) {
	for i, alias := range c.spec.HostAliases {
		c.Add(validation.IsValidIPForLegacyField(path.Index(i).Child("ip"), alias.IP, true, nil)...)
		for j, name := range alias.Hostnames {
			c.Subdomain(path.Index(i).Child("hostnames").Index(j), name)
		}
	}
}

const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

func (c *check) checkDNSConfig(path *field.Path) {
	config := c.spec.DNSConfig
	if c.spec.DNSPolicy == corev1.DNSNone {
		if config == nil {
			c.Required(path, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone))
			return
		}
		if len(config.Nameservers) == 0 {
			c.Required(path.Child("nameservers"),
				fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))
			return
		}
	}
	if config == nil {
		return
	}
	if len(config.Nameservers) > maxNameservers {
		c.Invalid(path.Child("nameservers"), config.Nameservers,
			fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	for i, server := range config.Nameservers {
		c.Add(validation.IsValidIPForLegacyField(path.Child("nameservers").Index(i), server, true, nil)...)
	}
	searches := path.Child("searches")
	if len(config.Searches) > maxSearches {
		c.Invalid(searches, config.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearches))
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchChars {
		c.Invalid(searches, config.Searches,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchChars))
	}
	for i, search := range config.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			c.Each(searches.Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search))
		}
	}
	for i, option := range config.Options {
		if option.Name == "" {
			c.Required(path.Child("options").Index(i), "must not be empty")
		}
	}
}

func (c *check) checkHostUsers(path *field.Path) {
	if c.spec.HostUsers == nil || *c.spec.HostUsers {
		return
	}
	const detail = "when `hostUsers` is false"
	if c.spec.HostNetwork {
		c.Forbidden(path.Child("hostNetwork"), detail)
	}
	if c.spec.HostPID {
		c.Forbidden(path.Child("HostPID"), detail)
	}
	if c.spec.HostIPC {
		c.Forbidden(path.Child("HostIPC"), detail)
	}
	for place, container := range Containers(c.spec, path) {
		if len(container.VolumeDevices) > 0 {
			c.Forbidden(place.Path.Child("volumeDevices"), detail)
		}
	}
}

// checkFileKeys requires that an environment variable whose value comes from a file refers to a
// volume of type emptyDir.
func (c *check) checkFileKeys(path *field.Path) {
	for place, container := range Containers(c.spec, path) {
		for i := range container.Env {
			from := container.Env[i].ValueFrom
			if from == nil || from.FileKeyRef == nil {
				continue
			}
			name := from.FileKeyRef.VolumeName
			at := place.Path.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			volume := c.volumeNamed(name)
			switch {
			case volume == nil:
				c.NotFound(at, name)
			case volume.EmptyDir == nil:
				c.Invalid(at, name, "referenced volume must be of type emptyDir")
			}
		}
	}
}

func (c *check) volumeNamed(name string) *corev1.Volume {
	for i := range c.spec.Volumes {
		if c.spec.Volumes[i].Name == name {
			return &c.spec.Volumes[i]
		}
	}
	return nil
}

func (c *check) checkClaims(path *field.Path) {
	for i := range c.spec.ResourceClaims {
		if name := c.spec.ResourceClaims[i].Name; name != "" {
			c.claims.Insert(name)
		}
	}
	seen := sets.New[string]()
	for i := range c.spec.ResourceClaims {
		c.checkClaim(&c.spec.ResourceClaims[i], seen, path.Index(i))
	}
}

func (c *check) checkClaim(claim *corev1.PodResourceClaim, seen sets.Set[string], path *field.Path) {
	if c.meta != nil {
		if _, mirror := c.meta.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			c.Forbidden(field.NewPath(""), "static pods do not support resource claims")
			return
		}
	}
	switch name := claim.Name; {
	case name == "":
		c.Required(path.Child("name"), "")
	case seen.Has(name):
		c.Duplicate(path.Child("name"), name)
	default:
		c.Label(path.Child("name"), name)
		seen.Insert(name)
	}
	byName, byTemplate := claim.ResourceClaimName, claim.ResourceClaimTemplateName
	if byName != nil && byTemplate != nil {
		c.Invalid(path, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
	}
	if byName == nil && byTemplate == nil {
		c.Invalid(path, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
	}
	if byName != nil {
		c.Each(path.Child("resourceClaimName"), *byName, naming.NameIsDNSSubdomain(*byName, false))
	}
	if byTemplate != nil {
		c.Each(path.Child("resourceClaimTemplateName"), *byTemplate, naming.NameIsDNSSubdomain(*byTemplate, false))
	}
}

type replacedKey struct{}

// Replacing returns a context in which ValidateTemplate accepts those fields of a template that
// would be rejected in a new one, and that old, the template which it replaces, has.
func Replacing(ctx context.Context, old *corev1.PodTemplateSpec) context.Context {
	if old == nil {
		return ctx
	}
	return context.WithValue(ctx, replacedKey{}, &old.Spec)
}

// ValidateTemplate validates a pod template.
func ValidateTemplate(ctx context.Context, t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	var r report.Report
	r.Labels(path.Child("labels"), t.Labels)
	r.Annotations(path.Child("annotations"), t.Annotations)
	r.Add(ValidateAnnotations(t.Annotations, &t.Spec, path.Child("annotations"))...)
	old, _ := ctx.Value(replacedKey{}).(*corev1.PodSpec)
	r.Add(ValidateSpecUpdate(ctx, &t.Spec, old, nil, path.Child("spec"))...)
	r.Add(ValidateProfiles(t.Annotations, &t.Spec, path.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		r.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template")
	}
	return r.Errors
}

// Policy says which pod specifications a server accepts. The zero value accepts all valid ones.
type Policy struct {
	// NoPrivileged means that privileged containers and Windows host processes are rejected. An API
	// server sets it unless it has the flag --allow-privileged.
	NoPrivileged bool
}

// Validate returns a function that validates an object with rule. If p has NoPrivileged, privileged
// containers are then errors.
func Validate[T any](p Policy, rule func(ctx context.Context, obj *T) field.ErrorList) func(ctx context.Context,
	obj *T) field.ErrorList {
	if !p.NoPrivileged {
		return rule
	}
	return func(ctx context.Context, obj *T) field.ErrorList { return rule(withoutPrivileged(ctx), obj) }
}

// ValidateUpdate does the same as Validate, for a rule that validates updates.
func ValidateUpdate[T any](p Policy, rule func(ctx context.Context, obj, old *T) field.ErrorList) func(
	ctx context.Context, obj, old *T) field.ErrorList {
	if !p.NoPrivileged {
		return rule
	}
	return func(ctx context.Context, obj, old *T) field.ErrorList { return rule(withoutPrivileged(ctx), obj, old) }
}

type unprivilegedKey struct{}

func withoutPrivileged(ctx context.Context) context.Context {
	return context.WithValue(ctx, unprivilegedKey{}, true)
}

func mayBePrivileged(ctx context.Context) bool { return ctx.Value(unprivilegedKey{}) == nil }
