// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// recorded is a request and the response of Kubernetes 1.37. Placeholders replace the parts that
// differ between runs.
type recorded struct {
	Method, Path, Body, ContentType, Answer string
	Header                                  map[string]string
	Code                                    int
	Warnings                                []string
}

var replacements = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`(resourceVersion\\*": ?\\*")\d+`), "${1}RV"},
	{regexp.MustCompile(`(resourceVersion: ")\d+`), "${1}RV"},
	{regexp.MustCompile(`"\d+(\.\d+)?(ms|s|m)"`), `"AGE"`},
	{regexp.MustCompile(`"continue":"[^"]+"`), `"continue":"C"`},
}

func normalize(s string) string {
	for _, r := range replacements {
		s = r.pattern.ReplaceAllString(s, r.by)
	}
	return s
}

// distinctCauses returns the body of an error with each cause once. Kubernetes repeats some causes.
func distinctCauses(body string) string {
	before, rest, found := strings.Cut(body, `"causes":`)
	if !found {
		return body
	}
	list := json.NewDecoder(strings.NewReader(rest))
	var causes []json.RawMessage
	if list.Decode(&causes) != nil {
		return body
	}
	var distinct []string
	for _, c := range causes {
		if !slices.Contains(distinct, string(c)) {
			distinct = append(distinct, string(c))
		}
	}
	return before + `"causes":[` + strings.Join(distinct, ",") + "]" + rest[list.InputOffset():]
}

// TestRecorded replays recorded requests to Kubernetes' API server. Bodies, status codes, content
// types and warnings must be the same, except for repeated causes.
func TestRecorded(t *testing.T) {
	data, err := os.ReadFile("testdata/configmaps.json")
	if err != nil {
		t.Fatal(err)
	}
	var session []recorded
	if err := json.Unmarshal(data, &session); err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, nil)
	e.must(t, "POST", "/api/v1/namespaces", `{"metadata":{"name":"t"}}`)
	for i, want := range session {
		var header []string
		for k, v := range want.Header {
			header = append(header, k, v)
		}
		got := e.do(t, want.Method, want.Path, want.Body, header...)
		if want.Method == http.MethodHead {
			got.body = ""
		}
		if got.code != want.Code || normalize(got.body) != distinctCauses(want.Answer) ||
			got.header.Get("Content-Type") != want.ContentType ||
			!slices.Equal(got.header.Values("Warning"), want.Warnings) {
			t.Errorf("#%d %s %s %s %v:\ngot  %d %s %q\n%s\nwant %d %s %q\n%s", i, want.Method, want.Path, want.Body, want.Header,
				got.code, got.header.Get("Content-Type"), got.header.Values("Warning"), normalize(got.body),
				want.Code, want.ContentType, want.Warnings, want.Answer)
		}
	}
}
