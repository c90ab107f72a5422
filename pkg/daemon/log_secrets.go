// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// redacted is the text that replaces credentials in the log.
const redacted = "[redacted]"

// maxText is the maximum number of bytes of a message or attribute that are searched and logged.
// The limit is needed because clients determine some of these texts.
const maxText = 64 << 10

// secretPattern finds credentials in a text. The expression is applied only if the text in lower
// case contains one of hints. The second group of the expression is redacted.
type secretPattern struct {
	hints []string
	find  *regexp.Regexp
}

// secretNames returns names of parameters and fields that hold credentials, or suffixes of such
// names, in lower case.
func secretNames() []string {
	return []string{
		"token", "password", "passwd", "passphrase", "clientsecret", "client_secret", "client-secret",
		"secretkey", "secret_key", "secret-key", "secretaccesskey", "secret_access_key",
		"privatekey", "private_key", "private-key", "apikey", "api_key", "api-key", "client-key-data",
	}
}

// secretValues returns expressions that match the value that follows a name from secretNames: in
// double quotes, in escaped double quotes (JSON inside JSON), in single quotes, or without quotes.
// The second group of each expression is redacted.
func secretValues() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`^("?\s*[=:]\s*\[?\s*")((?:[^"\\]|\\.)+)`),
		regexp.MustCompile(`^((?:\\+")?\s*[=:]\s*\[?\s*\\+")((?:[^"\\]|\\{2,3}.)+)`),
		regexp.MustCompile(`^("?\s*[=:]\s*')([^']+)`),
		regexp.MustCompile(`^(\\?"?\s*[=:]\s*\[?)([^\s"'\\&,;}\[\]]{4,})`),
	}
}

// secretPatterns returns patterns for credentials that are recognizable without a name.
func secretPatterns() []secretPattern {
	return []secretPattern{
		// Tokens of service accounts and of OIDC, also in base64:
		{[]string{"eyj"}, regexp.MustCompile(`()(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)`)},
		{[]string{"zxlk"}, regexp.MustCompile(`()(\bZXlK[A-Za-z0-9+/_=-]{40,})`)},
		{[]string{"base64url.bearer"},
			regexp.MustCompile(`(?i)(base64url\.bearer\.authorization\.k8s\.io\.)([A-Za-z0-9_-]+)`)},
		{[]string{"bearer", "basic", "negotiate"},
			regexp.MustCompile(`(?i)(\b(?:bearer|basic|negotiate)(?:[ +]|%20)+)([A-Za-z0-9._~+/=-]{6,})`)},
		{[]string{"authorization"},
			regexp.MustCompile(`(?i)(authorization\\*"?\s*[=:]\s*\[?\s*\\*"?(?:bearer|basic|negotiate|digest|token)\s+)([^\s"'\\\[\]][^"'\\\[\]\r\n]*)`)},
		{[]string{"cookie"},
			regexp.MustCompile(`(?i)(\b(?:set-)?cookie\\*"?\s*[=:]\s*\[?\s*\\*"?)([^\s"\\\[\]][^"\\\]\r\n]*)`)},
		// Passwords in URLs, and tokens at the place of the user name:
		{[]string{"://"}, regexp.MustCompile(`(://[^\s/@:"'\\]*:)([^\s/@"'\\]+)(@)`)},
		{[]string{"://"}, regexp.MustCompile(`(://)([^\s/@:"'\\]{16,})(@)`)},
		// Bootstrap tokens:
		{[]string{"."}, regexp.MustCompile(`(\b[a-z0-9]{6}\.)([a-z0-9]{16}\b)`)},
		// Private keys, and the beginnings of their base64 forms (RSA, EC, encrypted, PKCS #8,
		// OpenSSH):
		{[]string{"private key"},
			regexp.MustCompile(`(?s)()(-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$))`)},
		{[]string{"ls0tls1crudjtib"},
			regexp.MustCompile(`()(LS0tLS1CRUdJTiB(?:SU0Eg|FQyBQ|FTkNS|QUklW|PUEVO)[A-Za-z0-9+/=_-]*)`)},
	}
}

// redactor removes credentials from log records. Keelson's own code logs no credentials, but
// messages of libraries and errors may contain some.
type redactor struct {
	patterns []secretPattern
	names    []string
	values   []*regexp.Regexp
}

func newRedactor() *redactor {
	return &redactor{secretPatterns(), secretNames(), secretValues()}
}

// text returns s without credentials, truncated to maxText bytes.
func (r *redactor) text(s string) string {
	if len(s) < 8 {
		return s
	}
	if len(s) > maxText {
		s = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:maxText], ""), len(s))
	}
	lower := lowerCase(s)
	s = r.named(s, lower)
	for _, p := range r.patterns {
		if slices.ContainsFunc(p.hints, func(hint string) bool { return strings.Contains(lower, hint) }) {
			s = p.find.ReplaceAllString(s, "${1}"+redacted+"${3}")
		}
	}
	return s
}

// named returns s without credentials that follow a name from secretNames: in queries, flags,
// headers, JSON, JSON inside JSON, YAML and Go's formatting of structs.
func (r *redactor) named(s, lower string) string {
	var ends [][2]int // the start and the end of each name that was found in s
	for _, name := range r.names {
		for at := strings.Index(lower, name); at >= 0; {
			end := at + len(name)
			ends = append(ends, [2]int{at, end})
			next := strings.Index(lower[end:], name)
			if next < 0 {
				break
			}
			at = end + next
		}
	}
	slices.SortFunc(ends, func(a, b [2]int) int { return a[1] - b[1] })
	var out strings.Builder
	done := 0
	for _, name := range ends {
		if name[0] < done {
			continue
		}
		if from, to := r.value(s, name[0], name[1]); to > 0 {
			out.WriteString(s[done:from] + redacted)
			done = to
		}
	}
	return out.String() + s[done:]
}

// value returns the start and end of the value that follows the name at s[begin:end]. It returns 0,
// 0 if the name is only a part of a longer name, or if it has no value.
func (r *redactor) value(s string, begin, end int) (from, to int) {
	values := r.values
	if begin > 0 && alphanumeric(s[begin-1]) {
		if s[begin] < 'A' || s[begin] > 'Z' {
			return 0, 0
		}
		// The name is the end of a longer name such as accessToken. If a quote follows the name, as
		// in JSON, an unquoted value is often a boolean and is not redacted. If a colon or an
		// equals sign follows, as in Go's format, an unquoted value may be a credential.
		if end == len(s) || s[end] != ':' && s[end] != '=' {
			values = values[:len(values)-1]
		}
	}
	for _, value := range values {
		if m := value.FindStringSubmatchIndex(s[end:]); m != nil {
			return end + m[4], end + m[5]
		}
	}
	return 0, 0
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// lowerCase returns s with ASCII letters in lower case. The result has the same length.
func lowerCase(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// attr is the ReplaceAttr function of slog. slog also calls it for the message.
func (r *redactor) attr(_ []string, a slog.Attr) slog.Attr {
	kind := a.Value.Kind()
	if credential(a.Key) && (kind == slog.KindString && a.Value.String() != "" || kind == slog.KindAny &&
		a.Value.Any() != nil) {
		return slog.String(a.Key, redacted)
	}
	switch kind {
	case slog.KindString:
		a.Value = slog.StringValue(r.text(a.Value.String()))
	case slog.KindAny:
		a.Value = r.object(a.Value)
	}
	return a
}

// object returns the redacted form of a value that the log would otherwise encode as JSON.
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
	case []byte: // JSON would encode it as base64, in which credentials are not recognized
		return slog.StringValue(r.text(string(o)))
	case json.RawMessage:
		return slog.StringValue(r.text(string(o)))
	default:
		b, err := json.Marshal(o)
		if err != nil {
			return r.printed(v)
		}
		if s := r.text(string(b)); s != string(b) {
			return slog.StringValue(s)
		}
		return v
	}
}

// printed uses package fmt to format a value that cannot be encoded as JSON, and redacts the
// result.
func (r *redactor) printed(v slog.Value) slog.Value {
	return slog.StringValue(r.text(fmt.Sprintf("%+v", v.Any())))
}

// credential reports whether the name of an attribute means that its value is a credential.
func credential(key string) bool {
	switch strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(key)) {
	case "token", "password", "passwd", "passphrase", "authorization", "secret", "privatekey", "clientsecret",
		"bearertoken", "accesstoken", "refreshtoken", "idtoken", "bootstraptoken", "jointoken", "apikey",
		"secretkey", "cookie", "setcookie":
		return true
	}
	return false
}
