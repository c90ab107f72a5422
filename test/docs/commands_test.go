// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// page is a Markdown page of the documentation.
type page struct {
	path string // relative to the root of the repository
	text string
}

// pages returns the Markdown pages that match the patterns.
func pages(t *testing.T, patterns ...string) (all []page) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no page %s (%v)", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page{filepath.ToSlash(rel), string(text)})
		}
	}
	return all
}

// block is a fenced code block, which begins with "```kind argument".
type block struct {
	kind, argument, body string
}

// blocks returns the fenced code blocks of a page, and the page's text without them.
func (p page) blocks(t *testing.T) (all []block, rest string) {
	t.Helper()
	var out []string
	lines := strings.Split(p.text, "\n")
	for i := 0; i < len(lines); i++ {
		info, fence := strings.CutPrefix(lines[i], "```")
		if !fence {
			out = append(out, lines[i])
			continue
		}
		n := slices.Index(lines[i+1:], "```")
		if n < 0 {
			t.Fatalf("%s:%d: the block has no end", p.path, i+1)
		}
		kind, argument, _ := strings.Cut(info, " ")
		all = append(all, block{kind, argument, strings.Join(lines[i+1:i+1+n], "\n")})
		i += n + 1
	}
	return all, strings.Join(out, "\n")
}

// TestBlocks checks that each block of commands in docs/start and docs/howto is either run by
// test/e2e or has a reason why it is not run.
func TestBlocks(t *testing.T) {
	for _, p := range pages(t, "docs/start/*.md", "docs/howto/*.md") {
		all, rest := p.blocks(t)
		if strings.Contains(rest, "\n  ```") || strings.Contains(rest, "\n   ```") {
			t.Errorf("%s: an indented block is not run", p.path)
		}
		for _, b := range all {
			switch b.kind {
			case "console", "yaml":
			case "sh":
				reason, off := strings.CutPrefix(b.argument, "norun")
				if off && len(strings.Fields(reason)) < 3 || !off && b.argument != "" {
					t.Errorf("%s: block \"sh %s\" is neither run nor says why not", p.path, b.argument)
				}
			case "", "go", "mermaid":
				if strings.Contains(b.body, "ctl ") {
					t.Errorf("%s: commands in a block that is not run:\n%s", p.path, b.body)
				}
			default:
				t.Errorf("%s: unknown kind of block %q", p.path, b.kind)
			}
		}
	}
}

// foreignFlags returns flags that the documentation may name although no program's help shows them:
// flags of etcd and deprecated flags.
func foreignFlags() []string {
	return []string{"max-txn-ops", "max-request-bytes", "apiserver-count"}
}

var (
	span       = regexp.MustCompile("`([^`\n]+)`")
	separators = regexp.MustCompile(`\|\||&&|[|;<>()]|\n|\$\(`)
	flagToken  = regexp.MustCompile(`^--([a-z0-9][a-z0-9-]*)(=.*)?$`)
)

// diagramType matches the first line of a Mermaid diagram.
var diagramType = regexp.MustCompile(`^(sequenceDiagram|flowchart (TB|LR))\n`)

// TestDiagrams checks that the first line of each diagram has only the diagram's type. A tool that
// wraps lines would join it with the next lines, and browsers could not show the diagram.
func TestDiagrams(t *testing.T) {
	n := 0
	for _, p := range pages(t, "*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md") {
		all, _ := p.blocks(t)
		for _, b := range all {
			if b.kind != "mermaid" {
				continue
			}
			n++
			if !diagramType.MatchString(b.body) {
				t.Errorf("%s: the diagram begins with %.80q", p.path, b.body)
			}
		}
	}
	if n == 0 {
		t.Error("no page has a diagram")
	}
}

// TestFlagsExist checks that each flag in a page exists. A flag after a command must be a flag of
// that command. A flag without a command must be a flag of any program.
func TestFlagsExist(t *testing.T) {
	c := newCatalogue(t)
	for _, p := range pages(t, "README.md", "CONTRIBUTING.md", "docs/start/*.md", "docs/howto/*.md", "docs/project/*.md",
		"docs/explanation/architecture.md", "docs/explanation/differences.md", "docs/explanation/security.md") {
		all, rest := p.blocks(t)
		for _, b := range all {
			if b.kind != "sh" && b.kind != "console" {
				continue
			}
			body := strings.ReplaceAll(b.body, "\\\n", " ")
			for line := range strings.Lines(body) {
				line = strings.TrimSuffix(line, "\n")
				command, shown := strings.CutPrefix(line, "$ ")
				if b.kind == "sh" || shown {
					c.check(t, p.path, command, false)
				}
			}
		}
		for _, m := range span.FindAllStringSubmatch(rest, -1) {
			c.check(t, p.path, m[1], true)
		}
	}
}

// catalogue has the flags of all programs.
type catalogue struct {
	ctl       *cobra.Command
	processes map[string]map[string]bool
	any       map[string]bool
}

func newCatalogue(t *testing.T) *catalogue {
	t.Helper()
	c := &catalogue{ctl: tree("ctl"), processes: map[string]map[string]bool{}, any: map[string]bool{}}
	for _, p := range processes() {
		c.processes[p.name] = map[string]bool{}
		for _, o := range options(t, p) {
			c.processes[p.name][o.name], c.any[o.name] = true, true
		}
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		for _, o := range strings.Fields(cmd.LocalFlags().FlagUsages()) {
			if m := flagToken.FindStringSubmatch(o); m != nil {
				c.any[m[1]] = true
			}
		}
	}
	walk(c.ctl)
	for _, name := range foreignFlags() {
		c.any[name] = true
	}
	return c
}

// check checks the flags of a command line. Flags without a command are allowed only if text is
// true.
func (c *catalogue) check(t *testing.T, where, line string, text bool) {
	t.Helper()
	for _, part := range separators.Split(line, -1) {
		words := strings.Fields(strings.NewReplacer(`"`, "", "'", "").Replace(part))
		program := slices.IndexFunc(words, func(w string) bool {
			name := path.Base(w)
			return name == "ctl" || name == "kubectl" || c.processes[name] != nil
		})
		if program < 0 {
			if text && len(words) > 0 && strings.HasPrefix(words[0], "--") {
				c.loose(t, where, words)
			}
			continue
		}
		name, args := path.Base(words[program]), words[program+1:]
		if end := slices.Index(args, "--"); end >= 0 {
			args = args[:end]
		}
		command := c.ctl
		if c.processes[name] == nil && len(args) > 0 {
			found, _, err := c.ctl.Find(args)
			if err != nil {
				t.Errorf("%s: %s: %v", where, part, err)
				continue
			}
			command = found
		}
		for _, a := range args {
			m := flagToken.FindStringSubmatch(a)
			if m == nil || m[1] == "help" {
				continue
			}
			if own := c.processes[name]; own != nil && !own[m[1]] || own == nil && command.Flag(m[1]) == nil {
				t.Errorf("%s: %q has no flag --%s", where, strings.TrimSpace(part), m[1])
			}
		}
	}
}

// loose checks flags that a page names without their program.
func (c *catalogue) loose(t *testing.T, where string, words []string) {
	t.Helper()
	for _, w := range words {
		if m := flagToken.FindStringSubmatch(w); m != nil && !c.any[m[1]] {
			t.Errorf("%s: no program has the flag --%s", where, m[1])
		}
	}
}
