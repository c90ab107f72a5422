// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net/http"
	"net/netip"
	"strings"
)

const (
	digits     = "0123456789"
	labelChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_" + digits
	maxHost    = 254 // a name of 253 characters and its trailing dot
)

// validHost reports whether a Host header is empty or is a name or an address, with or without a
// port, that all endpoints read in the same way.
func validHost(host string) bool {
	if host == "" {
		return true
	}
	if v6, ok := strings.CutPrefix(host, "["); ok {
		address, port, ok := strings.Cut(v6, "]")
		a, err := netip.ParseAddr(address)
		return ok && err == nil && a.Is6() && a.Zone() == "" && (port == "" || port[0] == ':' && only(port[1:], digits))
	}
	name, port, _ := strings.Cut(host, ":")
	if len(name) > maxHost || !only(port, digits) {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || !only(label, labelChars) {
			return false
		}
	}
	return true
}

func only(text, chars string) bool { return strings.Trim(text, chars) == "" }

// invalidPath reports whether endpoints may resolve a path to another path than the one that was
// used for routing: the path has "." or ".." as an element, possibly with a backslash or
// parameters.
func invalidPath(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.IndexByte(path, 0) >= 0 {
		return true
	}
	if !strings.Contains(path, "/.") && !strings.Contains(path, `\.`) {
		return false
	}
	for element := range strings.FieldsFuncSeq(path, slash) {
		if element, _, _ = strings.Cut(element, ";"); element == "." || element == ".." {
			return true
		}
	}
	return false
}

func slash(r rune) bool { return r == '/' || r == '\\' }

// plain returns a path as lenient endpoints read it: doubled slashes count as one, backslashes
// become slashes, and parameters (";x=y") are dropped.
func plain(path string) string {
	if !strings.ContainsAny(path, `;\`) && !strings.Contains(path, "//") {
		return path
	}
	elements := strings.FieldsFunc(path, slash)
	kept, last := elements[:0], ""
	for _, e := range elements {
		if last, _, _ = strings.Cut(e, ";"); last != "" {
			kept = append(kept, last)
		}
	}
	out := "/" + strings.Join(kept, "/")
	if len(kept) > 0 && (last == "" || slash(rune(path[len(path)-1]))) {
		out += "/"
	}
	return out
}

// upgrade returns the protocol that a request asks to upgrade to; "" if the upgrade is not
// forwarded. Upgrades to HTTP/2 and TLS are not forwarded, because after them the connection would
// carry requests that no rule has checked. Servers are allowed to ignore such upgrades.
func upgrade(h http.Header) string {
	offers := h["Upgrade"]
	if len(offers) != 1 || strings.Contains(offers[0], ",") {
		return ""
	}
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(offers[0])), "/")
	switch name {
	case "h2c", "h2", "h3", "http", "https", "tls":
		return ""
	}
	return offers[0]
}

// claims reports whether a header contains information that only the ingress proxy may set: the
// origin of a request, or its original URL. It treats "_" as "-", because some endpoints do so.
func claims(header string) bool {
	switch header[0] | 0x20 {
	case 'f', 'p', 't', 'x':
	default:
		return false
	}
	name := strings.ReplaceAll(strings.ToLower(header), "_", "-")
	switch name {
	case "forwarded", "proxy", "true-client-ip", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-rewrite-url":
		return true
	}
	return strings.HasPrefix(name, "x-forwarded-") || strings.HasPrefix(name, "x-original-")
}
