// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	apiserver "keelson.dev/keelson/pkg/apiserver/config"
	controllers "keelson.dev/keelson/pkg/controllers/command"
	ingress "keelson.dev/keelson/pkg/ingress/command"
	kubelet "keelson.dev/keelson/pkg/kubelet/command"
	proxy "keelson.dev/keelson/pkg/proxy/command"
	scheduler "keelson.dev/keelson/pkg/scheduler/command"
)

// process is a program whose flags are documented.
type process struct {
	name, what string
	run        func(ctx context.Context, args []string, stderr io.Writer) error
}

func processes() []process {
	return []process{
		{"apiserver", "the API server", func(_ context.Context, args []string, stderr io.Writer) error {
			_, err := apiserver.Parse(args, stderr)
			return err
		}},
		{"controller-manager", "the controller manager", controllers.Run},
		{"scheduler", "the scheduler", scheduler.New(nil)},
		{"kubelet", "the kubelet", kubelet.Run},
		{"proxy", "the service proxy", proxy.Run},
		{"ingress", "the ingress proxy", ingress.Run},
	}
}

// option is one flag, with what the help of the program shows about it.
type option struct {
	name, kind, help, standard string
}

var (
	optionLine  = regexp.MustCompile(`^ {2,6}(?:-(\w), )?--([\w.-]+)(?:\[=[^\]]*\])?(?: (\S+))? {3,}(.*)$`)
	defaultPart = regexp.MustCompile(`(?s) ?\(default (.*)\)$`)
)

// options returns the flags of a program, sorted by name.
func options(t *testing.T, p process) []option {
	t.Helper()
	var help bytes.Buffer
	if err := p.run(t.Context(), []string{"--help"}, &help); !errors.Is(err, pflag.ErrHelp) {
		t.Fatalf("%s --help: %v", p.name, err)
	}
	var all []option
	for line := range strings.Lines(help.String()) {
		line = strings.TrimRight(line, "\n")
		m := optionLine.FindStringSubmatch(line)
		switch {
		case m != nil:
			all = append(all, option{name: m[2], kind: m[3], help: m[4]})
		case len(all) > 0 && strings.HasPrefix(line, "      "):
			all[len(all)-1].help += "\n" + strings.TrimSpace(line)
		case len(all) > 0 && strings.TrimSpace(line) != "":
			t.Fatalf("%s --help: line %q is no flag", p.name, line)
		}
	}
	if len(all) < 10 {
		t.Fatalf("%s --help has %d flags:\n%s", p.name, len(all), help.String())
	}
	for i := range all {
		o := &all[i]
		if m := defaultPart.FindStringSubmatchIndex(o.help); m != nil {
			o.help, o.standard = o.help[:m[0]], o.help[m[2]:m[3]]
		}
		if o.kind == "" {
			o.kind = "bool"
		}
	}
	slices.SortFunc(all, func(a, b option) int { return strings.Compare(a.name, b.name) })
	return all
}

func flagsPage(t *testing.T, p process) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Flags of %s\n\n", p.name)
	fmt.Fprintf(&b, "The flags of %s that `%s --help` shows. Most deprecated flags are not among them.\n"+
		"If the column \"default\" is empty, the default is an empty string or list, zero or false.\n\n", p.what, p.name)
	b.WriteString("| flag | type | default | what it does |\n|---|---|---|---|\n")
	for _, o := range options(t, p) {
		standard := ""
		if o.standard != "" && o.standard != "[]" {
			standard = "`" + strings.Trim(o.standard, `"`) + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", o.name, cell(o.kind), standard, cell(o.help))
	}
	return b.String()
}
