// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
)

// TestFormats checks that log lines have the same form as those of Kubernetes' processes, and that
// they contain no credentials.
func TestFormats(t *testing.T) {
	say := func(l *slog.Logger) {
		l.Info("Serving", "address", "127.0.0.1:6443", "n", 1)
		l.Error("Not served", "err", errors.New("no"), "token", "s3cr3tvalue")
		l.With("password", "s3cr3tvalue").WithGroup("g").Warn("Bearer s3cr3tvalue", "secret", "s3cr3tvalue")
		l.Debug("Not said")
	}
	for format, want := range map[string][]string{
		FormatText: {
			`^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ log_formats_test\.go:\d+\] "Serving" address="127\.0\.0\.1:6443" n=1$`,
			`^E\d{4} .*log_formats_test\.go:\d+\] "Not served" err="no" token="\[redacted\]"$`,
			`^W\d{4} .*"Bearer \[redacted\]"`,
		},
		FormatJSON: {
			`^{"ts":\d{13}\.?\d*,"caller":"daemon/log_formats_test\.go:\d+","msg":"Serving","v":0,"address":"127\.0\.0\.1:6443","n":1}$`,
			`^{"ts":\d{13}\.?\d*,"caller":"daemon/log_formats_test\.go:\d+","msg":"Not served","err":"no",` +
				`"token":"\[redacted\]"}$`,
			`^{"ts":.*"msg":"Bearer \[redacted\]"`,
		},
	} {
		var out bytes.Buffer
		say((&LogFlags{Format: format}).Log(NewVerbosity(0), &out))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != len(want) || strings.Contains(out.String(), "s3cr3tvalue") {
			t.Errorf("%s: %s", format, out.String())
			continue
		}
		for i, line := range lines {
			if !regexp.MustCompile(want[i]).MatchString(line) {
				t.Errorf("%s: %s, want %s", format, line, want[i])
			}
			if format == FormatJSON && !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %s", line)
			}
		}
	}
}

// TestModules checks that the source files named by --vmodule log with the higher verbosity, and
// that other files do not.
func TestModules(t *testing.T) {
	for modules, want := range map[string]bool{
		"": false, "log_formats*=4": true, "log_formats*=3": false, "other=9": false,
		"*/daemon/log_formats_test=9": false, "other=9,log_formats_tes?=9": true,
	} {
		f := LogFlags{Format: FormatText}
		if err := f.Modules.Set(modules); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		f.Log(NewVerbosity(0), &out).Debug("Said")
		if got := out.Len() > 0; got != want {
			t.Errorf("%q: said %t, want %t", modules, got, want)
		}
	}
}
