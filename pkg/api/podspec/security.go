// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/report"
)

func (c *check) checkUser(id *int64, path *field.Path) {
	if id != nil {
		c.Each(path, *id, validation.IsValidUserID(*id))
	}
}

func (c *check) checkGroup(id *int64, path *field.Path) {
	if id != nil {
		c.Each(path, *id, validation.IsValidGroupID(*id))
	}
}

func (c *check) checkPodSecurity(path *field.Path) {
	sc := c.spec.SecurityContext
	if sc == nil {
		return
	}
	c.checkGroup(sc.FSGroup, path.Child("fsGroup"))
	c.checkUser(sc.RunAsUser, path.Child("runAsUser"))
	c.checkGroup(sc.RunAsGroup, path.Child("runAsGroup"))
	for i := range sc.SupplementalGroups {
		c.checkGroup(&sc.SupplementalGroups[i], path.Child("supplementalGroups").Index(i))
	}
	if share := c.spec.ShareProcessNamespace; share != nil && *share && c.spec.HostPID {
		c.Invalid(path.Child("shareProcessNamespace"), *share, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	c.checkSysctls(sc.Sysctls, path.Child("sysctls"))
	if p := sc.FSGroupChangePolicy; p != nil {
		report.OneOf(&c.Report, path.Child("fsGroupChangePolicy"), *p, corev1.FSGroupChangeAlways,
			corev1.FSGroupChangeOnRootMismatch)
	}
	c.checkSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))
	c.checkWindowsOptions(sc.WindowsOptions, path.Child("windowsOptions"))
	c.checkAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))
	if p := sc.SupplementalGroupsPolicy; p != nil {
		report.OneOf(&c.Report, path.Child("supplementalGroupsPolicy"), *p,
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	}
	if p := sc.SELinuxChangePolicy; p != nil {
		report.OneOf(&c.Report, path.Child("seLinuxChangePolicy"), *p, corev1.SELinuxChangePolicyMountOption,
			corev1.SELinuxChangePolicyRecursive)
	}
}

const (
	maxSysctlName = 253
	sysctlSegment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	sysctlPattern = "^(" + sysctlSegment + `[\./])*` + sysctlSegment + "$"
)

func (c *check) checkSysctls(sysctls []corev1.Sysctl, path *field.Path) {
	if len(sysctls) == 0 {
		return // most pods have no sysctls; compiling the pattern costs more than all other checks
	}
	seen, pattern := sets.New[string](), regexp.MustCompile(sysctlPattern)
	for i, s := range sysctls {
		at := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			c.Required(at, "")
		case !pattern.MatchString(s.Name) || len(s.Name) > maxSysctlName:
			c.Invalid(at, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s",
				maxSysctlName, sysctlPattern))
		case seen.Has(s.Name):
			c.Duplicate(at, s.Name)
		}
		seen.Insert(s.Name)
		name := strings.ReplaceAll(s.Name, "/", ".")
		if c.spec.HostNetwork && strings.HasPrefix(name, "net.") {
			c.Invalid(at, s.Name, "may not be specified when 'hostNetwork' is true")
		} else if c.spec.HostIPC && ipcSysctl(name) {
			c.Invalid(at, s.Name, "may not be specified when 'hostIPC' is true")
		}
	}
}

// ipcSysctl reports whether each IPC namespace has its own value of a sysctl.
func ipcSysctl(name string) bool {
	return name == "kernel.sem" || strings.HasPrefix(name, "kernel.shm") ||
		strings.HasPrefix(name, "kernel.msg") || strings.HasPrefix(name, "fs.mqueue.")
}

func (c *check) checkSeccomp(p *corev1.SeccompProfile, path *field.Path) {
	if p == nil {
		return
	}
	if p.Type == "" {
		c.Required(path.Child("type"), "type is required when seccompProfile is set")
	} else {
		report.OneOf(&c.Report, path.Child("type"), p.Type,
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	at := path.Child("localhostProfile")
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		c.Required(at, "must be set when seccomp type is Localhost")
	case local:
		c.checkDescends(*p.LocalhostProfile, at)
	case p.LocalhostProfile != nil:
		c.Invalid(at, p, "can only be set when seccomp type is Localhost")
	}
}

const maxProfileName = 4095

func (c *check) checkAppArmor(p *corev1.AppArmorProfile, path *field.Path) {
	if p == nil {
		return
	}
	at := path.Child("localhostProfile")
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		switch name := p.LocalhostProfile; {
		case name == nil || *name == "":
			c.Required(at, "must be set when AppArmor type is Localhost")
		case strings.TrimSpace(*name) != *name:
			c.Invalid(at, *name, "must not be padded with whitespace")
		case len(*name) > maxProfileName:
			c.TooLong(at, maxProfileName)
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			c.Invalid(at, p.LocalhostProfile, "can only be set when AppArmor type is Localhost")
		}
	case "":
		c.Required(path.Child("type"), "type is required when appArmorProfile is set")
	default:
		report.OneOf(&c.Report, path.Child("type"), p.Type,
			corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
}

func (c *check) checkSecurity(sc *corev1.SecurityContext, path *field.Path) {
	if sc == nil {
		return
	}
	if sc.Privileged != nil && *sc.Privileged && !mayBePrivileged(c.ctx) {
		c.Forbidden(path.Child("privileged"), "disallowed by cluster policy")
	}
	c.checkUser(sc.RunAsUser, path.Child("runAsUser"))
	c.checkGroup(sc.RunAsGroup, path.Child("runAsGroup"))
	if mount := sc.ProcMount; mount != nil {
		report.OneOf(&c.Report, path.Child("procMount"), *mount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		hostUsers := c.spec.HostUsers == nil || *c.spec.HostUsers
		if hostUsers && *mount == corev1.UnmaskedProcMount {
			c.Invalid(path.Child("procMount"), mount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	c.checkSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if sc.Privileged != nil && *sc.Privileged {
			c.Invalid(path, sc, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		if addsSysAdmin(sc) && !c.oldAddsSysAdmin() {
			c.Invalid(path, sc, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
		}
	}
	c.checkWindowsOptions(sc.WindowsOptions, path.Child("windowsOptions"))
	c.checkAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))
}

func addsSysAdmin(sc *corev1.SecurityContext) bool {
	return sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN")
}

// oldAddsSysAdmin reports whether a container of the specification before the update has
// CAP_SYS_ADMIN and may not be allowed to gain privileges. Stored objects can have such containers,
// and updates must not fail because of them. As in Kubernetes, a container without
// allowPrivilegeEscalation counts.
func (c *check) oldAddsSysAdmin() bool {
	if c.old == nil {
		return false
	}
	for _, container := range Containers(c.old, nil) {
		sc := container.SecurityContext
		if sc != nil && (sc.AllowPrivilegeEscalation == nil || !*sc.AllowPrivilegeEscalation) && addsSysAdmin(sc) {
			return true
		}
	}
	return false
}

// ProfilesFromAnnotations sets the AppArmor profiles of containers whose field is unset from
// annotations, which older clients use instead of the field. It returns warnings about these
// annotations. An annotation that names the pod's own profile needs neither.
func ProfilesFromAnnotations(pod *corev1.Pod) []string {
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return nil
	}
	var warnings cautions
	var own *corev1.AppArmorProfile
	if pod.Spec.SecurityContext != nil {
		own = pod.Spec.SecurityContext.AppArmorProfile
	}
	for _, c := range Containers(&pod.Spec, nil) {
		key := appArmorPrefix + c.Name
		text, ok := pod.Annotations[key]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := parseProfile(text)
		if profile != nil && equality.Semantic.DeepEqual(profile, own) {
			continue
		}
		warnings.addf(field.NewPath("metadata", "annotations").Key(key), "%s", appArmorMoved)
		if profile == nil {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	}
	return warnings
}

// parseProfile returns the AppArmor profile that an annotation names, or nil if the annotation is
// invalid.
func parseProfile(text string) *corev1.AppArmorProfile {
	switch text {
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	}
	name, ok := strings.CutPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	if !ok || name == "" || strings.TrimSpace(name) != name {
		return nil
	}
	return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: ptr.To(name)}
}

// ValidateProfiles requires that the seccomp and AppArmor profiles in annotations, which older
// clients set, agree with those in fields. It is for new objects and templates.
func ValidateProfiles(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if len(annotations) == 0 {
		return nil
	}
	var r report.Report
	checkSeccompProfiles(&r, annotations, spec, path)
	if spec.OS == nil || spec.OS.Name != corev1.Windows {
		checkAppArmorProfiles(&r, annotations, spec, path)
	}
	return r.Errors
}

func checkSeccompProfiles(r *report.Report, annotations map[string]string, spec *corev1.PodSpec, path *field.Path) {
	validate := func(key string, p *corev1.SeccompProfile, at *field.Path) {
		text, ok := annotations[key]
		if p == nil || !ok {
			return
		}
		const local = corev1.SeccompLocalhostProfileNamePrefix
		want := map[corev1.SeccompProfileType]string{
			corev1.SeccompProfileTypeUnconfined:     corev1.SeccompProfileNameUnconfined,
			corev1.SeccompProfileTypeRuntimeDefault: corev1.SeccompProfileRuntimeDefault,
			corev1.SeccompProfileTypeLocalhost:      local + ptr.Deref(p.LocalhostProfile, ""),
		}[p.Type]
		if text == corev1.DeprecatedSeccompProfileDockerDefault {
			text = corev1.SeccompProfileRuntimeDefault
		}
		checkSame(r, "seccomp", local, want, text, at.Child("securityContext", "seccompProfile"))
	}
	if sc := spec.SecurityContext; sc != nil {
		validate(corev1.SeccompPodAnnotationKey, sc.SeccompProfile, path)
	}
	for place, c := range Containers(spec, path) {
		if c.SecurityContext != nil {
			validate(corev1.SeccompContainerAnnotationKeyPrefix+c.Name, c.SecurityContext.SeccompProfile, place.Path)
		}
	}
}

func checkAppArmorProfiles(r *report.Report, annotations map[string]string, spec *corev1.PodSpec, path *field.Path) {
	var pod *corev1.AppArmorProfile
	if spec.SecurityContext != nil {
		pod = spec.SecurityContext.AppArmorProfile
	}
	for place, c := range Containers(spec, path) {
		p := pod
		if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			p = c.SecurityContext.AppArmorProfile
		}
		text, ok := annotations[appArmorPrefix+c.Name]
		if p == nil || !ok {
			continue
		}
		const local = corev1.DeprecatedAppArmorBetaProfileNamePrefix
		want := map[corev1.AppArmorProfileType]string{
			corev1.AppArmorProfileTypeUnconfined:     corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
			corev1.AppArmorProfileTypeRuntimeDefault: corev1.DeprecatedAppArmorBetaProfileRuntimeDefault,
			corev1.AppArmorProfileTypeLocalhost:      local + ptr.Deref(p.LocalhostProfile, ""),
		}[p.Type]
		checkSame(r, "apparmor", local, want, text, place.Path.Child("securityContext", "appArmorProfile"))
	}
}

// checkSame requires that an annotation, whose value is text, names the same profile as the field.
// want is the annotation's value for the profile in the field, or "" if there is none. local is the
// prefix of such values if the profile is a file on the node.
func checkSame(r *report.Report, mechanism, local, want, text string, at *field.Path) {
	switch {
	case want == "" || want == text:
	case strings.HasPrefix(want, local) && strings.HasPrefix(text, local):
		r.Forbidden(at.Child("localhostProfile"), mechanism+" profile in annotation and field must match")
	default:
		r.Forbidden(at.Child("type"), mechanism+" type in annotation and field must match")
	}
}
