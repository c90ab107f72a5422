// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package naming validates names in objects, with the results of apimachinery's validation. It
// recognizes valid names without regular expressions and passes all others to apimachinery, so the
// error messages are those of apimachinery.
//
// Each function returns the errors in a name, or nil if it is valid. The package has no state.
package naming

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

// IsDNS1123Label validates a label of a DNS name in lower case.
func IsDNS1123Label(value string) []string {
	if len(value) <= validation.DNS1123LabelMaxLength && dnsLabels(value, false) {
		return nil
	}
	return validation.IsDNS1123Label(value)
}

// IsDNS1123Subdomain validates a DNS name in lower case.
func IsDNS1123Subdomain(value string) []string {
	if subdomain(value) {
		return nil
	}
	return validation.IsDNS1123Subdomain(value)
}

// IsQualifiedName validates the key of a label.
func IsQualifiedName(value string) []string {
	prefix, name, found := strings.Cut(value, "/")
	if !found {
		name = value
	}
	if (!found || subdomain(prefix)) && name != "" && word(name) {
		return nil
	}
	return validation.IsQualifiedName(value)
}

// IsValidLabelValue validates the value of a label.
func IsValidLabelValue(value string) []string {
	if value == "" || word(value) {
		return nil
	}
	return validation.IsValidLabelValue(value)
}

// IsConfigMapKey validates the key of a ConfigMap, which may become the name of a file.
func IsConfigMapKey(value string) []string {
	if value != "" && value != "." && len(value) <= validation.DNS1123SubdomainMaxLength &&
		!strings.HasPrefix(value, "..") &&
		all(value, keyByte) {
		return nil
	}
	return validation.IsConfigMapKey(value)
}

// IsValidPortName validates the name of a port.
func IsValidPortName(value string) []string {
	if len(value) <= 15 && dnsLabels(value, false) &&
		strings.ContainsAny(value, "abcdefghijklmnopqrstuvwxyz") && !strings.Contains(value, "--") {
		return nil
	}
	return validation.IsValidPortName(value)
}

// NameIsDNSSubdomain is IsDNS1123Subdomain for metadata.name, or for metadata.generateName if
// prefix is true.
func NameIsDNSSubdomain(name string, prefix bool) []string {
	if subdomain(whole(name, prefix)) {
		return nil
	}
	return apivalidation.NameIsDNSSubdomain(name, prefix)
}

// NameIsDNSLabel is IsDNS1123Label for metadata.name, or for metadata.generateName if prefix is
// true.
func NameIsDNSLabel(name string, prefix bool) []string {
	if name := whole(name, prefix); len(name) <= validation.DNS1123LabelMaxLength && dnsLabels(name, false) {
		return nil
	}
	return apivalidation.NameIsDNSLabel(name, prefix)
}

// whole returns the part of name to validate: without the dash at its end if name is a prefix,
// because a dash is allowed there. It does not shorten a prefix that ends in two dashes, so that
// apimachinery validates it.
func whole(name string, prefix bool) string {
	if prefix && len(name) > 1 && !strings.HasSuffix(name, "--") {
		return strings.TrimSuffix(name, "-")
	}
	return name
}

// subdomain reports whether s is a DNS name in lower case.
func subdomain(s string) bool {
	return len(s) <= validation.DNS1123SubdomainMaxLength && dnsLabels(s, true)
}

// dnsLabels reports whether s is a DNS label in lower case, or several of them joined by dots if
// dots is true.
func dnsLabels(s string, dots bool) bool {
	before := byte('.')
	for i := range len(s) {
		switch c := s[i]; {
		case lower(c):
		case c == '-' && before != '.':
		case c == '.' && dots && lower(before):
		default:
			return false
		}
		before = s[i]
	}
	return lower(before)
}

// word reports whether s has at most 63 characters, begins and ends with a letter or digit, and has
// only characters that keyByte allows.
func word(s string) bool {
	return len(s) <= validation.LabelValueMaxLength && alphanumeric(s[0]) && alphanumeric(s[len(s)-1]) && all(s, keyByte)
}

func all(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func alphanumeric(c byte) bool { return lower(c) || 'A' <= c && c <= 'Z' }

func keyByte(c byte) bool { return alphanumeric(c) || c == '-' || c == '_' || c == '.' }
