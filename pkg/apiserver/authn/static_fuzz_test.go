// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"encoding/base64"
	"encoding/csv"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"keelson.dev/api/clock"
)

// FuzzTokenFile compares static tokens with a simple model. A token can be sent as a bearer token
// or in a WebSocket protocol. It authenticates the user and groups in the last line of the file
// that has this token. Requests with any other token are anonymous.
func FuzzTokenFile(f *testing.F) {
	klog.LogToStderr(false) // discard the library's log messages about duplicate tokens
	klog.SetOutput(io.Discard)
	path := filepath.Join(f.TempDir(), "tokens.csv")
	f.Add("secret", "alice", "1", "devs,ops", "other", "bob", "2", "", "secret", false)
	f.Add("secret", "alice", "1", "devs", "secret", "bob", "", "system:masters", "secret", true)
	f.Add("secret", "alice", "1", "devs", "", "bob", "", "system:masters", "", true)
	f.Add("a b", "alice", "1", "", "a", "", "", "", "a b", false)
	f.Add("secret", "alice", "1", "\"", "secret\n", "bob", "#", ",", " secret", false)
	f.Add("#secret", "alice", "1", "g", "x,y", "bob", "", "system:masters", "x", true)
	f.Fuzz(func(t *testing.T, token1, user1, uid1, groups1, token2, user2, uid2, groups2, sent string, browser bool) {
		lines := [][]string{{token1, user1, uid1, groups1}, {token2, user2, uid2, groups2}}
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := csv.NewWriter(out).WriteAll(lines); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		auth, err := New(Config{TokenFile: path, Clock: clock.Real()})
		if err != nil {
			return // a server with such a file does not start
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if browser {
			r.Header.Set("Connection", "upgrade")
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io."+
				base64.RawURLEncoding.EncodeToString([]byte(sent))+",p")
		} else {
			r.Header.Set("Authorization", "Bearer "+sent)
		}
		resp, ok, _ := auth.AuthenticateRequest(r)

		// The server uses only the first word of the header. Line endings are not part of a line of the
		// file.
		whole := sent
		if !browser {
			sent, _, _ = strings.Cut(strings.TrimRightFunc(sent, unicode.IsSpace), " ")
		}
		var want []string
		for _, line := range lines {
			if read := strings.ReplaceAll(line[0], "\r\n", "\n"); read != "" && read == sent {
				want = line
			}
		}
		switch {
		case ok && want == nil:
			t.Fatalf("%q lets in %v", sent, resp.User)
		case !ok && want != nil && plain(whole):
			t.Fatalf("%q does not let in %q", sent, want)
		case !ok:
			return
		}
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], "\r\n", "\n")
		}
		if resp.User.GetName() != want[1] || resp.User.GetUID() != want[2] {
			t.Errorf("is %q, %q, want %q", resp.User.GetName(), resp.User.GetUID(), want)
		}
		for _, g := range resp.User.GetGroups() {
			if g != user.AllAuthenticated && !slices.Contains(strings.Split(want[3], ","), g) {
				t.Errorf("is in %q, want %q", g, want[3])
			}
		}
		for g := range strings.SplitSeq(want[3], ",") {
			if g != "" && !slices.Contains(resp.User.GetGroups(), g) {
				t.Errorf("is in %q, not in %q", resp.User.GetGroups(), g)
			}
		}
	})
}

// plain reports whether a token consists of printable ASCII characters other than spaces, so that
// no way of sending it changes it.
func plain(token string) bool {
	return !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

// FuzzAnonymous compares anonymous authentication with a simple model. A request without
// credentials is system:anonymous if anonymous requests are enabled. If paths are configured, this
// is so only for exactly these paths. A request with an unknown bearer token is rejected.
func FuzzAnonymous(f *testing.F) {
	file := filepath.Join(f.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte("secret,alice,1\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	for _, path := range []string{"/livez", "/livez/", "/livez/ping", "//livez", "/LIVEZ", "/livez\x00",
		"/api/v1/../../livez", ""} {
		f.Add(true, "/livez", "/readyz", path, "")
		f.Add(true, "", "", path, "Bearer wrong")
		f.Add(false, "/livez", "", path, "Basic YWRtaW46YWRtaW4=")
	}
	f.Add(true, "", "", "/", "bearer secret")
	f.Add(true, "", "", "/", "Bearer  secret")
	f.Fuzz(func(t *testing.T, on bool, path1, path2, asked, credentials string) {
		cfg := apiserver.AnonymousAuthConfig{Enabled: on}
		for _, p := range []string{path1, path2} {
			if p != "" {
				cfg.Conditions = append(cfg.Conditions, apiserver.AnonymousAuthCondition{Path: p})
			}
		}
		auth, err := New(Config{TokenFile: file, Anonymous: cfg, Clock: clock.Real()})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = asked
		if credentials != "" {
			r.Header.Set("Authorization", credentials)
		}
		resp, ok, err := auth.AuthenticateRequest(r)

		token, bearer := strings.CutPrefix(strings.ToLower(credentials), "bearer ")
		wrong := bearer && plain(token) && token != ""
		reached := on && (len(cfg.Conditions) == 0 || asked == path1 && path1 != "" || asked == path2 && path2 != "")
		switch {
		case ok && resp.User.GetName() == "alice":
			if words := strings.Fields(credentials); len(words) < 2 || words[1] != "secret" {
				t.Errorf("%q is alice", credentials)
			}
		case ok:
			if !reached || wrong {
				t.Errorf("%q with %q is let in as %v", asked, credentials, resp.User)
			}
			if resp.User.GetName() != user.Anonymous || !slices.Equal(resp.User.GetGroups(), []string{user.AllUnauthenticated}) {
				t.Errorf("nobody is %v", resp.User)
			}
		case reached && credentials == "":
			t.Errorf("%q refuses nobody: %v", asked, err)
		}
	})
}
