// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestLogHasNoCredentials checks that the log contains no credentials in cases like CVE-2020-8563
// to CVE-2020-8566 and CVE-2019-11250, which disclosed credentials in logs.
func TestLogHasNoCredentials(t *testing.T) {
	const (
		jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLXZhbHVl"
		key = "-----BEGIN EC PRIVATE KEY-----\nTUhjQ0FRRUVJSA==\n-----END EC PRIVATE KEY-----"
	)
	for name, tc := range map[string]struct {
		log    func(*slog.Logger)
		secret string
	}{
		"token in the message": {func(l *slog.Logger) { l.Info("GET /api with " + jwt) }, "c2lnbmF0dXJl"},
		"header in a text": {
			func(l *slog.Logger) { l.Info("request", "headers", "Authorization: Bearer abcdefgh12345678") }, "abcdefgh12345678"},
		"basic": {func(l *slog.Logger) { l.Info("request", "headers", "Basic dXNlcjpwYXNz") }, "dXNlcjpwYXNz"},
		"query": {
			func(l *slog.Logger) { l.Info("request", "uri", "/exec?token=s3cr3tvalue&x=1") }, "s3cr3tvalue"},
		"JSON": {
			func(l *slog.Logger) { l.Info("body", "text", `{"password":"hunter22","a":1}`) }, "hunter22"},
		"error": {
			func(l *slog.Logger) { l.Info("x", "err", fmt.Errorf("call: %w", errors.New("token: "+jwt))) }, "c2lnbmF0dXJl"},
		"by name":    {func(l *slog.Logger) { l.Info("x", "token", "plain") }, "plain"},
		"in a group": {func(l *slog.Logger) { l.WithGroup("g").Info("x", "token", "plain") }, "plain"},
		"attribute of before": {func(l *slog.Logger) { l.With("header", "Bearer abcdefgh12345678").Info("x") },
			"abcdefgh12345678"},
		"bootstrap token": {func(l *slog.Logger) { l.Info("join with abcdef.0123456789abcdef") }, "0123456789abcdef"},
		"key":             {func(l *slog.Logger) { l.Info("loaded", "pem", key) }, "TUhjQ0FRRUVJSA"},
		"object": {
			func(l *slog.Logger) { l.Info("x", "body", map[string]string{"client_secret": "s3cr3tvalue"}) }, "s3cr3tvalue"},
		"JSON in JSON": {func(l *slog.Logger) { l.Info("x", "body", `{"a":"{\"password\":\"h,u\"}"}`) }, `h,u`},
		"JSON in an object": {
			func(l *slog.Logger) { l.Info("x", "body", map[string]string{"a": `{"password":"pa\"hunter22"}`}) }, "hunter22"},
		"odd password":   {func(l *slog.Logger) { l.Info("x", "body", `{"password":"a,b;c&hunter22 x"}`) }, "hunter22"},
		"short password": {func(l *slog.Logger) { l.Info("x", "body", `{"password":"q7z"}`) }, "q7z"},
		"camel-case name": {func(l *slog.Logger) { l.Info("x", "body", `{"accessToken":"s3cr3tvalue"}`) },
			"s3cr3tvalue"},
		"Go struct": {func(l *slog.Logger) { l.Info("config {Host:a BearerToken:s3cr3tvalue}") }, "s3cr3tvalue"},
		"headers": {func(l *slog.Logger) {
			l.Info("x", "headers", http.Header{"X-Auth-Token": {"s3cr3tvalue"}})
		}, "s3cr3tvalue"},
		"headers in a text": {func(l *slog.Logger) {
			l.Info(fmt.Sprint(http.Header{"X-Auth-Token": {"s3cr3tvalue"}}))
		}, "s3cr3tvalue"},
		"cookie": {
			func(l *slog.Logger) { l.Info("x", "headers", http.Header{"Cookie": {"session=s3cr3tvalue"}}) }, "s3cr3tvalue"},
		"cookie in a text": {func(l *slog.Logger) { l.Info("Set-Cookie: session=s3cr3tvalue; Path=/") }, "s3cr3tvalue"},
		"short basic":      {func(l *slog.Logger) { l.Info("Authorization: Basic YTpi") }, "YTpi"},
		"token in a query": {func(l *slog.Logger) { l.Info("GET /?auth=Bearer%20abcdefgh12345678") }, "abcdefgh12345678"},
		"subprotocol": {
			func(l *slog.Logger) { l.Info("base64url.bearer.authorization.k8s.io.czNjcjN0dmFsdWU, v5") }, "czNjcjN0dmFsdWU"},
		"password of a URL": {
			func(l *slog.Logger) { l.Info("x", "err", errors.New(`parse "https://bob:s3cr3t@h:x": port`)) }, "s3cr3t"},
		"token of a URL": {func(l *slog.Logger) { l.Info("clone https://ghp0123456789abcdef@h/x") },
			"ghp0123456789abcdef"},
		"key of a kubeconfig": {
			func(l *slog.Logger) { l.Info("client-key-data: LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCk1I") },
			"LS0tLS1CRUdJTiBFQyBQ"},
		"key in base64": {
			func(l *slog.Logger) { l.Info("data " + base64.StdEncoding.EncodeToString([]byte(key))) }, "VFVoalEwRlJSVUlKU0E"},
		"token in base64": {
			func(l *slog.Logger) { l.Info("data " + base64.StdEncoding.EncodeToString([]byte(jwt))) },
			"YzJsbmJtRjBkWEpsTFhaaGJIVmw"},
		"bytes":           {func(l *slog.Logger) { l.Info("x", "body", []byte("password=hunter22")) }, "aHVudGVyMj"},
		"bytes by name":   {func(l *slog.Logger) { l.Info("x", "token", []byte("plain")) }, "cGxhaW4"},
		"pointer by name": {func(l *slog.Logger) { l.Info("x", "password", new("plain")) }, "plain"},
		"another name":    {func(l *slog.Logger) { l.Info("x", "bearer-token", "plain") }, "plain"},
		"not JSON": {
			func(l *slog.Logger) { l.Info("x", "body", map[string]any{"f": func() {}, "password": "hunter22"}) }, "hunter22"},
		"Secret": {func(l *slog.Logger) {
			l.Info("x", "obj", &corev1.Secret{StringData: map[string]string{"a": "s3cr3tvalue"}})
		}, "s3cr3tvalue"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			tc.log(NewLog(&out, debugVerbosity))
			if strings.Contains(out.String(), tc.secret) || out.Len() == 0 {
				t.Errorf("logged: %s", out.String())
			}
		})
	}
	var long bytes.Buffer
	if NewLog(&long, 0).Info("x", "agent", strings.Repeat("a b ", maxText)); long.Len() > 2*maxText {
		t.Errorf("logged %d bytes", long.Len())
	}
	// Texts that only resemble credentials are logged unchanged.
	var out bytes.Buffer
	NewLog(&out, 0).Info("Token rotated", "pod", "default/web-1", "uri", "/api/v1/pods?watch=true", "err",
		errors.New("token has expired"), "count", 3,
		"url", "https://host:443/path?x=a@b", "spec",
		map[string]any{"automountServiceAccountToken": true, "secretName": "ca", "cookies": 2})
	for _, want := range []string{"https://host:443/path?x=a@b", `"automountServiceAccountToken":true`,
		`"secretName":"ca"`, "Token rotated", "default/web-1", "/api/v1/pods?watch=true", "token has expired", `"count":3`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
	}
}

// TestVerbosity checks that a change of the verbosity while the process runs affects the messages
// of the process and of its libraries.
func TestVerbosity(t *testing.T) {
	var out bytes.Buffer
	v := NewVerbosity(0)
	log := v.Log(&out)
	library := slog.New(filter{log.Handler(), &v.libraries, nil})
	say := func() {
		log.Debug("details")
		library.Info("chatter")
	}
	if say(); out.Len() > 0 {
		t.Errorf("logged: %s", out.String())
	}
	v.Set(debugVerbosity)
	if say(); !strings.Contains(out.String(), "details") || !strings.Contains(out.String(), "chatter") {
		t.Errorf("logged: %s", out.String())
	}
	out.Reset()
	v.Set(0)
	if say(); out.Len() > 0 {
		t.Errorf("logged: %s", out.String())
	}
}
