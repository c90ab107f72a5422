// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// redacted stands in the log for what must not be there.
const redacted = "[redacted]"

// secretPatterns find credentials in text: the second group is what goes.
func secretPatterns() []*regexp.Regexp {
	return []*regexp.Regexp{
		// Tokens of service accounts and of OIDC, wherever they stand.
		regexp.MustCompile(`()(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)`),
		regexp.MustCompile(`(?i)(\b(?:bearer|basic)[ +]+)([A-Za-z0-9._~+/=-]{6,})`),
		// Parameters and fields by their names, in queries, flags, JSON and YAML.
		regexp.MustCompile(`(?i)((?:\b|[_-])(?:access_token|auth_token|id_token|token|password|passwd|client_secret|secret_key|private_key)\\?"?\s*[=:]\s*\\?"?)([^\s"'\\&,;}\[]{4,})`),
		// Bootstrap tokens.
		regexp.MustCompile(`(\b[a-z0-9]{6}\.)([a-z0-9]{16}\b)`),
		regexp.MustCompile(`(?s)()(-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$))`),
	}
}

// redactor takes credentials out of what is logged. Our own code logs none;
// what libraries and errors quote is not ours to choose.
type redactor struct{ patterns []*regexp.Regexp }

func newRedactor() *redactor { return &redactor{secretPatterns()} }

// text is s without credentials.
func (r *redactor) text(s string) string {
	if len(s) < 8 {
		return s
	}
	for _, p := range r.patterns {
		s = p.ReplaceAllString(s, "${1}"+redacted)
	}
	return s
}

// attr is what slog asks for each attribute of a record, the message included.
func (r *redactor) attr(_ []string, a slog.Attr) slog.Attr {
	if credential(a.Key) && a.Value.Kind() == slog.KindString && a.Value.String() != "" {
		return slog.String(a.Key, redacted)
	}
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(r.text(a.Value.String()))
	case slog.KindAny:
		a.Value = r.object(a.Value)
	}
	return a
}

// object is what remains of a value that the log would encode.
func (r *redactor) object(v slog.Value) slog.Value {
	switch o := v.Any().(type) {
	case nil:
		return v
	case error:
		return slog.StringValue(r.text(o.Error()))
	case *corev1.Secret, corev1.Secret, *corev1.SecretList, corev1.SecretList:
		return slog.StringValue(redacted)
	case *slog.Source:
		return v
	default:
		b, err := json.Marshal(o)
		if err != nil {
			return v
		}
		if s := r.text(string(b)); s != string(b) {
			return slog.StringValue(s)
		}
		return v
	}
}

// credential tells whether an attribute's name says that it is one.
func credential(key string) bool {
	switch strings.ToLower(key) {
	case "token", "password", "authorization", "secret", "privatekey", "clientsecret":
		return true
	}
	return false
}
