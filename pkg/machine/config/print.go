// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"
)

// printWidth is the maximum number of characters in a comment that Print prints.
const printWidth = 100

// Print writes c as a file that Decode can read, with a comment for each field.
func Print(out io.Writer, c *KeelsonConfiguration) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", APIVersion, Kind)
	for _, f := range Fields() {
		parts := strings.Split(f.Path, ".")
		key, indent := parts[len(parts)-1], strings.Repeat("  ", len(parts)-1)
		help := strings.ToUpper(f.Help[:1]) + f.Help[1:] + "."
		if f.Flag != "" {
			help += " Flag: --" + f.Flag
		}
		comment(&b, indent, help)
		if f.value == nil {
			fmt.Fprintf(&b, "%s%s:\n", indent, key)
			continue
		}
		text, err := yaml.Marshal(map[string]any{key: printable(f.of(c))})
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		for line := range strings.Lines(string(text)) {
			b.WriteString(indent + line)
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

// printable returns a value in a form that YAML prints as an empty list or map instead of null.
func printable(v reflect.Value) any {
	switch {
	case v.Kind() == reflect.Slice && v.IsNil():
		return []string{}
	case v.Kind() == reflect.Map && v.IsNil():
		return map[string]string{}
	}
	return v.Interface()
}

// comment writes text as a YAML comment of several lines.
func comment(b *bytes.Buffer, indent, text string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > printWidth {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
