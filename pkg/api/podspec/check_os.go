// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

// checkOS refuses what a pod's operating system does not have.
func (c *check) checkOS(path *field.Path) {
	os := c.spec.OS
	if os == nil {
		return
	}
	switch os.Name {
	case corev1.Linux:
		c.checkLinux(path)
	case corev1.Windows:
		c.checkWindows(path)
	case "":
		c.Required(path.Child("os", "name"), "")
	default:
		report.OneOf(&c.Report, path.Child("os"), os.Name, corev1.Linux, corev1.Windows)
	}
}

func (c *check) checkLinux(path *field.Path) {
	const detail = "windows options cannot be set for a linux pod"
	if sc := c.spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		c.Forbidden(path.Child("securityContext", "windowsOptions"), detail)
	}
	for place, container := range Containers(c.spec, path) {
		if sc := container.SecurityContext; sc != nil && sc.WindowsOptions != nil {
			c.Forbidden(place.Path.Child("securityContext", "windowsOptions"), detail)
		}
	}
}

// flag is a field and whether it is set.
type flag struct {
	path *field.Path
	set  bool
}

func (c *check) checkWindows(path *field.Path) {
	forbid := func(flags ...flag) {
		for _, f := range flags {
			if f.set {
				c.Forbidden(f.path, "cannot be set for a windows pod")
			}
		}
	}
	sc := c.spec.SecurityContext
	if sc == nil {
		sc = &corev1.PodSecurityContext{}
	}
	at := path.Child("securityContext")
	forbid(
		flag{at.Child("appArmorProfile"), sc.AppArmorProfile != nil},
		flag{at.Child("seLinuxOptions"), sc.SELinuxOptions != nil},
		flag{path.Child("hostUsers"), c.spec.HostUsers != nil},
		flag{path.Child("hostPID"), c.spec.HostPID},
		flag{path.Child("hostIPC"), c.spec.HostIPC},
		flag{at.Child("seccompProfile"), sc.SeccompProfile != nil},
		flag{at.Child("fsGroup"), sc.FSGroup != nil},
		flag{at.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy != nil},
		flag{at.Child("sysctls"), len(sc.Sysctls) > 0},
		flag{path.Child("shareProcessNamespace"), c.spec.ShareProcessNamespace != nil},
		flag{at.Child("runAsUser"), sc.RunAsUser != nil},
		flag{at.Child("runAsGroup"), sc.RunAsGroup != nil},
		flag{at.Child("supplementalGroups"), sc.SupplementalGroups != nil},
		flag{at.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy != nil},
		flag{at.Child("seLinuxChangePolicy"), sc.SELinuxChangePolicy != nil},
	)
	for place, container := range Containers(c.spec, path) {
		sc, at := container.SecurityContext, place.Path.Child("securityContext")
		if sc == nil {
			continue
		}
		forbid(
			flag{at.Child("appArmorProfile"), sc.AppArmorProfile != nil},
			flag{at.Child("seLinuxOptions"), sc.SELinuxOptions != nil},
			flag{at.Child("seccompProfile"), sc.SeccompProfile != nil},
			flag{at.Child("capabilities"), sc.Capabilities != nil},
			flag{at.Child("readOnlyRootFilesystem"), sc.ReadOnlyRootFilesystem != nil},
			flag{at.Child("privileged"), sc.Privileged != nil},
			flag{at.Child("allowPrivilegeEscalation"), sc.AllowPrivilegeEscalation != nil},
			flag{at.Child("procMount"), sc.ProcMount != nil},
			flag{at.Child("runAsUser"), sc.RunAsUser != nil},
			flag{at.Child("runAsGroup"), sc.RunAsGroup != nil},
		)
	}
}

// checkHostProcess wants of Windows containers that are processes of the host that
// all are, in the host's network, and that pod and containers agree.
func (c *check) checkHostProcess(path *field.Path) {
	of := func(o *corev1.WindowsSecurityContextOptions) *bool {
		if o == nil {
			return nil
		}
		return o.HostProcess
	}
	var pod *bool
	if sc := c.spec.SecurityContext; sc != nil {
		pod = of(sc.WindowsOptions)
	}
	some, all := false, true
	for place, container := range Containers(c.spec, path) {
		is := pod
		if sc := container.SecurityContext; sc != nil && of(sc.WindowsOptions) != nil {
			is = of(sc.WindowsOptions)
			if pod != nil && *pod != *is {
				c.Invalid(place.Path.Child("securityContext", "windowsOptions", "hostProcess"), *is,
					fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod))
			}
		}
		on := is != nil && *is
		some, all = some || on, all && on
	}
	if !some {
		return
	}
	if !all {
		c.Invalid(path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !c.spec.HostNetwork {
		c.Invalid(path.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
	if !mayBePrivileged(c.ctx) {
		c.Forbidden(path, "hostProcess containers are disallowed by cluster policy")
	}
}
