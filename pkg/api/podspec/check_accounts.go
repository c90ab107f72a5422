// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
)

// Limits of Windows: of an account's name and its domain's in characters, of the
// specification of a group's account in KiB.
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

// checkWindowsUser judges an account, which a domain and a backslash may precede.
// Kubernetes shows what a pointer is to as JSON, and so all of what is here.
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
