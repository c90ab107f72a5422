// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// checkOS validates the name of the pod's operating system, and reports fields that this system
// does not support.
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

// flag is the path of a field, and whether the field is set.
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

// checkHostProcess checks Windows host process containers. If one container is a host process, all
// must be, the pod must use the host's network, and the server must allow privileged containers.
// Where pod and container both set the option, they must agree.
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

// Windows limits the length of user names and domains (in characters) and the size of credential
// specifications (in KiB).
const (
	longestUser   = 104
	longestDomain = 256
	largestGMSA   = 64
)

func (c *check) checkWindowsOptions(o *corev1.WindowsSecurityContextOptions, path *field.Path) {
	if o == nil {
		return
	}
	if name := o.GMSACredentialSpecName; name != nil {
		c.Each(path.Child("gmsaCredentialSpecName"), name, naming.IsDNS1123Subdomain(*name))
	}
	if spec, at := o.GMSACredentialSpec, path.Child("gmsaCredentialSpec"); spec != nil {
		switch {
		case *spec == "":
			c.Invalid(at, spec, "gmsaCredentialSpec cannot be an empty string")
		case len(*spec) > largestGMSA*1024:
			c.Invalid(at, spec, "gmsaCredentialSpec size must be under 64 KiB")
		}
	}
	if o.RunAsUserName != nil {
		c.checkWindowsUser(o.RunAsUserName, path.Child("runAsUserName"))
	}
}

// checkWindowsUser validates the name of a Windows user: USER or DOMAIN\USER. Errors get the
// pointer name, not the string, because Kubernetes shows pointers as JSON.
func (c *check) checkWindowsUser(name *string, at *field.Path) {
	account := *name
	domain, user, inDomain := strings.Cut(account, `\`)
	if !inDomain {
		domain, user = "", account
	}
	switch {
	case account == "":
		c.Invalid(at, name, "runAsUserName cannot be an empty string")
		return
	case regexp.MustCompile(`[[:cntrl:]]+`).MatchString(account):
		c.Invalid(at, name, "runAsUserName cannot contain control characters")
		return
	case strings.Contains(user, `\`):
		c.Invalid(at, name, "runAsUserName cannot contain more than one backslash")
		return
	}
	if len(domain) >= longestDomain {
		c.Invalid(at, name, "runAsUserName's Domain length must be under 256 characters")
	}
	if inDomain && !windowsDomain(domain) {
		c.Invalid(at, name, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	}
	if user == "" {
		c.Invalid(at, name, "runAsUserName's User cannot be empty")
	} else if len(user) > longestUser {
		c.Invalid(at, name, "runAsUserName's User length must not be longer than 104 characters")
	}
	if strings.Trim(user, ". ") == "" && user != "" {
		c.Invalid(at, name, "runAsUserName's User cannot contain only periods or spaces")
	}
	if strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`) {
		c.Invalid(at, name, `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
}

func windowsDomain(name string) bool {
	netBIOS := regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	const label = `[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?`
	dns := regexp.MustCompile(`^` + label + `(?:\.` + label + `)*$`)
	return netBIOS.MatchString(name) || dns.MatchString(name)
}
