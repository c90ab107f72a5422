// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"keelson.dev/keelson/pkg/ctl"
)

// tree returns the command tree of ctl if it is called under a name.
func tree(name string) *cobra.Command {
	return ctl.Command([]string{name}, strings.NewReader(""), io.Discard, io.Discard)
}

// isOwn returns a function that reports whether kubectl does not have a command.
func isOwn() func(*cobra.Command) bool {
	kubectl := map[string]bool{}
	for _, c := range tree("kubectl").Commands() {
		kubectl[c.Name()] = true
	}
	return func(c *cobra.Command) bool { return !kubectl[c.Name()] }
}

func ctlPage() string {
	var b strings.Builder
	b.WriteString("# ctl\n\n`ctl` has the commands of kubectl and additional ones. If the program is called ")
	b.WriteString("under the name `kubectl`,\nit has only those of kubectl.\n\n## Commands that kubectl does not have\n")
	root, own := tree("ctl"), isOwn()
	for _, c := range root.Commands() {
		if own(c) && !c.Hidden {
			command(&b, c)
		}
	}
	b.WriteString("\n## Commands of kubectl\n\n`ctl COMMAND --help` describes each command and its flags.\n\n")
	b.WriteString("| command | what it does |\n|---|---|\n")
	for _, c := range root.Commands() {
		if !own(c) && !c.Hidden {
			fmt.Fprintf(&b, "| `ctl %s` | %s |\n", c.Name(), cell(c.Short))
		}
	}
	return b.String()
}

// command writes the documentation of a command and its subcommands.
func command(b *strings.Builder, c *cobra.Command) {
	path := "ctl " + strings.TrimPrefix(c.CommandPath(), "ctl ")
	fmt.Fprintf(b, "\n### %s\n\n%s.\n", path, wrapped(strings.TrimSuffix(cell(oneLine(first(c.Long, c.Short))), ".")))
	if c.Runnable() {
		usage := c.Use[len(c.Name()):]
		if strings.TrimSpace(usage) == "" {
			usage = ""
		}
		fmt.Fprintf(b, "\n```\n%s%s [flags]\n```\n", path, strings.TrimSuffix(usage, " [flags]"))
	}
	header := false
	row := func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if !header {
			b.WriteString("\n| flag | type | default | what it does |\n|---|---|---|---|\n")
			header = true
		}
		standard := ""
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
			standard = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(b, "| `--%s` | %s | %s | %s |\n", f.Name, f.Value.Type(), standard, cell(f.Usage))
	}
	c.NonInheritedFlags().VisitAll(row)
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			command(b, sub)
		}
	}
}

func first(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}
