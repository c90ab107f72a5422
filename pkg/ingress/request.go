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
	maxHost    = 254 // bytes of a name with 253 characters and a trailing dot
)

// validHost reports whether a Host header is valid: it is empty, or a name or address with or
// without a port that all endpoints interpret in the same way.
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

// invalidPath reports whether an endpoint may resolve a path to a path other than the one that was
// used for routing. This is so if "." or ".." is an element of the path, even together with a
// backslash or parameters.
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

// plain returns a path as a lenient endpoint interprets it: several slashes count as one, a
// backslash is a slash, and parameters (";x=y") are dropped.
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

// upgrade returns the protocol to which a request asks to upgrade, or "" if the upgrade must not be
// forwarded. After an upgrade to HTTP/2 or TLS, the connection would carry requests that no rule
// has checked. Servers may ignore a request to upgrade.
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

// claims reports whether only the proxy may set a header, because it says where a request comes
// from or what its original URL was. It treats "_" as "-", because some endpoints do so.
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
