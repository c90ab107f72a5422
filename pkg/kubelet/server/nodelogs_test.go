// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/beneath"
)

// journal is a replacement for journalctl. It knows two services and prints its arguments.
const journal = `#!/bin/sh
if [ "$*" = --field=_SYSTEMD_UNIT ]; then
	echo kubelet.service; echo getty@tty1.service
else
	printf '<%s>' "$@"
fi
`

func logDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"foo.log": "of foo", "bar/bar.log": "of bar", "baz": "of baz",
		"pods/p/0.log": "of p"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"out.log": "/etc/passwd", "in.log": "foo.log"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestNodeLogs checks that queries are answered from the journal or from files under the same
// conditions as in Kubernetes, and that invalid queries are rejected.
func TestNodeLogs(t *testing.T) {
	bin := t.TempDir()
	// The file must be executable.
	if err := os.WriteFile(filepath.Join(bin, "journalctl"), []byte(journal), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	h := http.StripPrefix("/logs/", newNodeLogs(logDir(t)))
	const head = "<--utc><--no-pager><--output=short-precise>"
	for path, c := range map[string]struct {
		code int
		want string
	}{
		"foo.log":                            {200, "of foo"},
		"nope.log":                           {404, "404 page not found\n"},
		"?query=kubelet":                     {200, head + "<--unit=kubelet>"},
		"?query=kubelet&query=getty@tty1":    {200, head + "<--unit=kubelet><--unit=getty@tty1>"},
		"?query=kubelet&tailLines=3&boot=-1": {200, head + "<--lines=3><--unit=kubelet><--boot=-1>"},
		"?query=kubelet&tailLines=0":         {200, head + "<--lines=0><--unit=kubelet>"},
		"?query=kubelet&pattern=a%20b":       {200, head + "<--unit=kubelet><--grep=a b>"},
		"?query=let":                         {200, "\nlog not found for let\n"},
		"?query=foo":                         {200, "of foo"},
		"?query=bar":                         {200, "of bar"},
		"?query=baz":                         {200, "of baz"},
		"?query=foo&query=kubelet":           {200, head + "<--unit=kubelet>of foo"},
		"?query=foo&tailLines=3": {200,
			"\noptions present and query resolved to log files for [foo]\ntry without specifying options\n"},
		"?query=out.log": {200,
			"\nerror getting log for out.log: openat out.log: path escapes from parent\n"},
		"?query=in": {200, "of foo"},
		"?query=..": {200,
			"\nerror getting log for ..: openat ..: path escapes from parent\n"},
		"?query=/foo.log":            {200, "of foo"},
		"?query=pods/p/0.log":        {200, "of p"},
		"?query=%5Cpods%5Cp%5C0.log": {200, "of p"},
		"?query=/pods":               {200, "<pre>\n<a href=\"p/\">p/</a>\n</pre>\n"},
		"?query=/../../etc/passwd": {406,
			`query: Invalid value: ["/etc/passwd"]: statat etc/passwd: no such file or directory` + "\n"},
		"?query=/out.log": {406,
			`query: Invalid value: ["/out.log"]: statat out.log: path escapes from parent` + "\n"},
		"?query=":      {400, `query: Invalid value: [""]: may not be empty` + "\n"},
		"?query":       {400, `query: Invalid value: [""]: may not be empty` + "\n"},
		"?tailLines=3": {406, "query: Required value: cannot be empty with options\n"},
		"?query=kubelet&tailLines=x": {400,
			`tailLines: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax` + "\n"},
		"?query=kubelet&tailLines=100001": {406,
			"tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive\n"},
		"?query=kubelet&boot=1": {406, "boot: Invalid value: 1: must be less than 1\n"},
		"?query=kubelet&sinceTime=yesterday": {400,
			`sinceTime: Invalid value: "yesterday": invalid time format` + "\n"},
		"?query=kubelet&pattern=(": {406,
			"pattern: Invalid value: \"(\": error parsing regexp: missing closing ): `(`\n"},
		"?query=kube%20let": {406,
			`query: Invalid value: "kube let": input contains unsupported characters` + "\n"},
		"?query=a&query=b&query=c&query=d&query=e": {406, "query: Too many: 5: must have at most 4 items\n"},
		"?query=/foo.log&query=kubelet": {406,
			`query: Invalid value: "[/foo.log], [kubelet]": cannot specify a file and service` + "\n"},
		"?query=/foo.log&query=/baz": {406,
			`query: Invalid value: ["/foo.log","/baz"]: cannot specify more than one file` + "\n"},
		"?query=/foo.log&tailLines=1": {406,
			`query: Invalid value: ["/foo.log"]: cannot specify file with options` + "\n"},
		"foo.log?query=kubelet": {406, "path not allowed in query mode\n"},
		"?query=kubelet&sinceTime=2026-05-04T10:00:00%2B02:00&untilTime=2026-05-04T09:00:00Z": {
			200, head + "<--since=2026-05-04 08:00:00 UTC><--until=2026-05-04 09:00:00 UTC><--unit=kubelet>",
		},
		"?query=kubelet&sinceTime=2026-05-04T10:00:00Z&untilTime=2026-05-04T09:00:00Z": {
			406, "untilTime: Invalid value: \"2026-05-04T09:00:00Z\": must be after `sinceTime`\n",
		},
	} {
		t.Run(path, func(t *testing.T) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/logs/"+path, nil))
			got := w.Body.String()
			if i := strings.Index(got, "<pre>"); i > 0 { // for the list of a directory, compare only the list
				got = got[i:]
			}
			if w.Code != c.code || got != c.want {
				t.Errorf("%d %q\nwant %d %q", w.Code, got, c.code, c.want)
			}
		})
	}
}

// TestNodeLogsWithoutJournal checks that queries are answered from files if there is no journal.
func TestNodeLogsWithoutJournal(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	w := httptest.NewRecorder()
	http.StripPrefix("/logs/", newNodeLogs(logDir(t))).ServeHTTP(w,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/logs/?query=foo", nil))
	if w.Code != http.StatusOK || w.Body.String() != "of foo" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// TestLogFilesAreInTheDirectory checks that the server does not serve links and pipes that pods
// have put into /var/log, neither by path nor by query.
func TestLogFilesAreInTheDirectory(t *testing.T) {
	dir, outside := logDir(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "x.log"), []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"absolute": filepath.Join(dir, "foo.log"), "elsewhere": outside,
		"x": filepath.Join(outside, "x.log"), "up": "../" + filepath.Base(outside)} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pipe", "pipe.log"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plain, query := http.FileServerFS(beneath.Files(dir)), newNodeLogs(dir)
	for path, c := range map[string]struct {
		code int
		want string
	}{
		"/":                     {200, `<a href="foo.log">foo.log</a>`},
		"/in.log":               {200, "of foo"},
		"/absolute":             {200, "of foo"},
		"/pods/p/0.log":         {200, "of p"},
		"/x":                    {403, ""},
		"/out.log":              {403, ""},
		"/elsewhere/":           {403, ""},
		"/elsewhere/x.log":      {403, ""},
		"/up/x.log":             {403, ""},
		"/pipe":                 {403, ""},
		"/../" + outside[1:]:    {404, ""},
		"/?query=/pipe":         {406, ""},
		"/?query=/elsewhere":    {406, ""},
		"/?query=pipe":          {200, "error getting log for pipe"},
		"/?query=elsewhere":     {200, "error getting log for elsewhere: openat elsewhere: path escapes"},
		"/?query=x":             {200, "error getting log for x: openat x: path escapes"},
		"/?query=/pods/p/0.log": {200, "of p"},
	} {
		for what, h := range map[string]http.Handler{"plain": plain, "query": query} {
			if what == "plain" && strings.Contains(path, "?") {
				continue
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+path, nil))
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) || strings.Contains(w.Body.String(), "outside") {
				t.Errorf("%s %s: %d %q", what, path, w.Code, w.Body)
			}
		}
	}
}
