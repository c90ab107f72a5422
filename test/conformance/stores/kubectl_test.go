// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// commandTimeout is how long a command may run.
const commandTimeout = time.Minute

// different are the commands whose output is different by intention, with the reason.
var different = map[string]string{
	"kubectl diff --server-side -f objects.yaml":  "see the command apply",
	"kubectl apply --server-side -f objects.yaml": "k#131175: an object that is applied again does not conflict",
}

// TestKubectl runs the commands of testdata/kubectl.sh with upstream's kubectl against Keelson and
// against kube-apiserver, and compares the outputs.
func TestKubectl(t *testing.T) {
	needPrograms(t)
	lines, err := os.ReadFile("testdata/kubectl.sh")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(lines)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	for _, r := range []release{v136, v137} {
		t.Run(string(r), func(t *testing.T) {
			servers := []*server{newStore(t).kubernetes(t, v137), newStore(t).keelson(t)}
			outputs := make([][]string, len(servers))
			var wg sync.WaitGroup
			for i, v := range servers {
				c := newClient(t, v, r)
				wg.Go(func() {
					for _, command := range commands {
						outputs[i] = append(outputs[i], c.run(t, command))
					}
				})
			}
			wg.Wait()
			same := 0
			for i, command := range commands {
				want, got := outputs[0][i], outputs[1][i]
				reason, expected := different[command]
				if want == got {
					same++
				}
				if (want != got) == expected {
					continue
				}
				if expected {
					t.Errorf("%s: the output is the same although: %s", command, reason)
					continue
				}
				t.Errorf("%s: the output is different (-%s +%s):\n%s", command, servers[0].name, servers[1].name,
					cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
			}
			t.Logf("%d of %d commands have the same output", same, len(commands))
			for _, v := range servers {
				v.end(t)
			}
		})
	}
}

// client is a kubectl with its own configuration.
type client struct {
	dir string // has the configuration, and the kubectl
	env []string
}

// newClient returns a kubectl of a release that is a client of v.
func newClient(t *testing.T, v *server, r release) *client {
	t.Helper()
	c := &client{dir: t.TempDir()}
	kubectl, err := filepath.Abs(r.program("kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kubectl, filepath.Join(c.dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(c.dir, "config")
	c.env = []string{
		"KUBECONFIG=" + config, "HOME=" + c.dir, "TMPDIR=" + c.dir, "PATH=" + c.dir + ":" + os.Getenv("PATH"),
	}
	err = os.WriteFile(config, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, v.config.Host, token), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a command and returns its output and exit code, in a form that does not depend on the
// server's address and on the time.
func (c *client) run(t *testing.T, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "testdata", c.env, time.Second
	out, err := cmd.CombinedOutput()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		t.Errorf("%s: %v", command, err)
	}
	return fmt.Sprintf("%s\nexit code %d", normalize(strings.ReplaceAll(string(out), c.dir, "DIR")),
		cmd.ProcessState.ExitCode())
}

// varying are the parts of outputs that differ between any two servers, and what replaces them.
var varying = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "SERVER"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}`), "TIME"},
	{regexp.MustCompile(`("?resourceVersion"?: ?)"\d+"`), `$1"N"`},
	{regexp.MustCompile(`Resource Version: +\d+`), "Resource Version: N"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-X"},
	{regexp.MustCompile(`192\.0\.2\.1:\d+`), "ADVERTISED"},
	{regexp.MustCompile(`\d+( +192\.0\.2\.1)`), "PORT$1"},
	{regexp.MustCompile(`10\.96\.0\.\d+`), "ADDRESS"},
	{regexp.MustCompile(`\b3[0-2]\d{3}\b`), "PORT"},
	{regexp.MustCompile(`DIR/[^ :]*?(LIVE|MERGED)-\d+`), "DIR/$1"},
	{regexp.MustCompile(`DIR/\S*kubectl-edit-\S+\.yaml`), "EDITED"},
	{regexp.MustCompile(`[EIW]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+`), "LOG"},
	{regexp.MustCompile(` +(\d+[smh])+( ago)?\b`), " AGE"},
	{regexp.MustCompile(`.*scheduling\.keelson\.dev.*\n`), ""}, // Keelson's own API group
	{regexp.MustCompile(`\+keelson\.[0-9a-z.]+`), ""},
	{regexp.MustCompile(`("?git(Commit|TreeState)"?: )[^,\n]*`), "$1..."},
	// kube-apiserver may report that it has released the address of a Service that it rejected.
	{regexp.MustCompile(`.*IPAddressWrongReference.*\n`), ""},
}

// normalize replaces the varying parts of an output. Columns are separated by single blanks, because
// their width depends on what was replaced.
func normalize(output string) string {
	for _, v := range varying {
		output = v.pattern.ReplaceAllString(output, v.replacement)
	}
	lines := strings.Split(output, "\n")
	for i, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		lines[i] = line[:indent] + strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}
