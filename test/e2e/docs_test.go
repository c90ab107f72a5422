// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docsUpdate is an environment variable. If it is set, the tests replace command output in the
// pages by the actual output, where the two differ.
const docsUpdate = "KEELSON_DOCS_UPDATE"

// TestStart and TestHowTo follow the pages of docs/start and docs/howto: they write the files and
// run the commands of each page's code blocks. Each page has its own namespace.
//
//   - "```yaml FILE" is written to FILE.
//   - "```sh" is run, and has to succeed. "```sh norun REASON" is left out.
//   - "```console" has commands after "$ ". Their output has to be what the page shows. A line
//     "..." of a page matches any number of lines. The function same removes other permitted
//     differences.
func TestStart(t *testing.T) { followAll(t, "../../docs/start/*.md") }

// TestHowTo follows the pages of docs/howto, as described at TestStart.
func TestHowTo(t *testing.T) { followAll(t, "../../docs/howto/*.md") }

func followAll(t *testing.T, pattern string) {
	pages, err := filepath.Glob(pattern)
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) { follow(t, page) })
	}
}

func follow(t *testing.T, page string) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !hasCommands(string(text)) {
		t.Skip("the page has no commands to run")
	}
	sh := newShell(t, filepath.Base(filepath.Dir(page))+"-"+strings.TrimSuffix(filepath.Base(page), ".md"))
	var out []string
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); {
		out = append(out, lines[i])
		info, fence := strings.CutPrefix(lines[i], "```")
		i++
		if !fence {
			continue
		}
		n := slices.Index(lines[i:], "```")
		if n < 0 {
			t.Fatalf("%s:%d: no end", page, i)
		}
		body := lines[i : i+n]
		switch kind, argument, _ := strings.Cut(info, " "); {
		case kind == "console":
			body = sh.console(body)
		case kind == "sh" && argument == "":
			sh.script(body)
		case kind == "yaml":
			sh.write(argument, body)
		}
		out = append(append(out, body...), "```")
		i += n + 1
	}
	if os.Getenv(docsUpdate) != "" {
		if err := os.WriteFile(page, []byte(strings.Join(out, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// hasCommands reports whether a page has a block of commands that the tests run.
func hasCommands(page string) bool {
	return strings.Contains(page, "\n```sh\n") || strings.Contains(page, "\n```console\n")
}

// shell runs the commands of a page: in a directory, and in a namespace of the cluster.
type shell struct {
	t   *testing.T
	dir string
	env []string
}

func newShell(t *testing.T, page string) *shell {
	t.Helper()
	ns := namespace(t, page)
	s := &shell{t: t, dir: t.TempDir()}
	config, err := os.ReadFile(shared.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s.write("kubeconfig", []string{string(config)})
	s.env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.dir, "kubeconfig"), "HOME="+s.dir, "NS="+ns,
		"CLUSTER="+clusterName, "PATH="+filepath.Dir(shared.ctl)+":"+os.Getenv("PATH"))
	s.env = append(s.env, developer(t)...)
	s.run("ctl config set-context --current --namespace=" + ns)
	return s
}

// developer returns the environment for pages that need the source code. HOME is a directory of the
// test, but Go's caches are those of this process.
func developer(t *testing.T) []string {
	t.Helper()
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"SOURCE=" + source}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(name, err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	return env
}

func (s *shell) write(file string, lines []string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, filepath.Base(file)), []byte(strings.Join(lines, "\n")+"\n"),
		0o600); err != nil {
		s.t.Fatal(err)
	}
}

// endedWatch matches a line that client-go logs if a command such as "ctl wait" has what it waited for
// and stops its watch while client-go is reading an event. kubectl prints it too.
var endedWatch = regexp.MustCompile(`(?m)^I\d{4} .* reflector\.go:\d+\] .*context canceled.*\n`)

// run runs a command and returns its output, without lines about ended watches.
func (s *shell) run(command string) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		s.t.Fatalf("$ %s\n%s\n%v", command, out, err)
	}
	return endedWatch.ReplaceAllString(string(out), "")
}

// script runs a block of commands. The test fails if one of them fails.
func (s *shell) script(block []string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-x", "-c", strings.Join(block, "\n"))
	cmd.Dir, cmd.Env = s.dir, s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
}

// console runs the commands of a block, and returns the block with the commands' actual output.
func (s *shell) console(block []string) []string {
	s.t.Helper()
	var out []string
	for i := 0; i < len(block); {
		command := strings.TrimPrefix(block[i], "$ ")
		out = append(out, block[i])
		i++
		for strings.HasSuffix(command, "\\") && i < len(block) {
			command += "\n" + block[i]
			out = append(out, block[i])
			i++
		}
		end := i
		for end < len(block) && !strings.HasPrefix(block[end], "$ ") {
			end++
		}
		want := block[i:end]
		i = end
		got := strings.Split(strings.TrimRight(s.run(command), "\n"), "\n")
		if len(got) == 1 && got[0] == "" {
			got = nil
		}
		if match(want, got) {
			out = append(out, want...)
			continue
		}
		out = append(out, got...)
		if os.Getenv(docsUpdate) == "" {
			s.t.Fatalf("$ %s\n%s\n--- the page shows\n%s", command, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	return out
}

// match reports whether the output got matches the lines of a page, in which "..." matches any
// lines.
func match(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if strings.TrimSpace(want[0]) == "..." {
		return match(want[1:], got) || len(got) > 0 && match(want, got[1:])
	}
	return len(got) > 0 && same(want[0]) == same(got[0]) && match(want[1:], got[1:])
}

// differing has the parts of output that may differ between clusters and runs, each with a fixed
// replacement: generated parts of names, addresses, times, and the number of blanks.
var differing = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5,10}\b`), "-#"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b`), "ADDRESS"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ?\b`), "DATE"},
	{regexp.MustCompile(`\b\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\b`), "DATE"},
	{regexp.MustCompile(`\b(\d+[dhms]|\d+\.\d+s)+\b`), "TIME"},
	{regexp.MustCompile(`\s+`), " "},
}

// same returns the line with the parts in differing replaced, so that two lines can be compared.
func same(line string) string {
	for _, d := range differing {
		line = d.pattern.ReplaceAllString(line, d.by)
	}
	return strings.TrimSpace(line)
}
