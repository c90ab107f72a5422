// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Flags are the flags of a command that needs a configuration.
type Flags struct {
	set    *pflag.FlagSet
	file   string
	values *KeelsonConfiguration
}

// AddFlags defines the flag --config and a flag for each field.
func AddFlags(fs *pflag.FlagSet) *Flags {
	f := &Flags{set: fs, values: constants()}
	fs.StringVar(&f.file, "config", "", "file with a "+Kind+" (YAML or JSON); flags win over the file")
	for _, each := range Fields() {
		if each.value == nil {
			continue
		}
		switch p := each.value(f.values).(type) {
		case *string:
			fs.StringVar(p, each.Flag, *p, each.Help)
		case *int:
			fs.IntVar(p, each.Flag, *p, each.Help)
		case *bool:
			fs.BoolVar(p, each.Flag, *p, each.Help)
		case *[]string:
			fs.StringSliceVar(p, each.Flag, *p, each.Help+"; separated by commas")
		case *map[string]string:
			if each.threshold {
				fs.Var(cliflag.NewLangleSeparatedMapStringString(p), each.Flag, each.Help+"; KEY<VALUE, separated by commas")
			} else {
				fs.StringToStringVar(p, each.Flag, *p, each.Help+"; KEY=VALUE, separated by commas")
			}
		}
	}
	return f
}

// Load returns the configuration of the file and the flags, with defaults. It returns an error that
// lists all faults if the configuration is not valid. For a machine that joins a cluster, shared is
// what Shared returned for the cluster's configuration; otherwise it is nil.
func (f *Flags) Load(m Facts, shared *KeelsonConfiguration) (*KeelsonConfiguration, error) {
	c := &KeelsonConfiguration{}
	if f.file != "" {
		data, err := os.ReadFile(f.file)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		if c, err = Decode(data); err != nil {
			return nil, fmt.Errorf("%s: %w", f.file, err)
		}
	}
	for _, each := range Fields() {
		if each.value != nil && f.set.Changed(each.Flag) {
			each.of(c).Set(each.of(f.values))
		}
	}
	if shared != nil {
		if err := c.adopt(shared); err != nil {
			return nil, fmt.Errorf("the configuration does not fit the cluster:\n%w", err)
		}
	}
	Default(c, m)
	if faults := Validate(c); len(faults) > 0 {
		var lines []error
		for _, fault := range faults {
			lines = append(lines, fault)
		}
		return nil, fmt.Errorf("invalid configuration:\n%w", errors.Join(lines...))
	}
	return c, nil
}

// Decode reads a configuration without defaults from YAML or JSON. Fields that do not exist, fields
// that occur twice, and a second document are errors.
func Decode(data []byte) (*KeelsonConfiguration, error) {
	document, err := onlyDocument(data)
	if err != nil {
		return nil, err
	}
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	c := &KeelsonConfiguration{}
	strict, err := json.UnmarshalStrict(text, c)
	if err != nil {
		return nil, err
	}
	if c.APIVersion != APIVersion {
		strict = append(strict, fmt.Errorf("apiVersion is %q, want %q", c.APIVersion, APIVersion))
	}
	if c.Kind != Kind {
		strict = append(strict, fmt.Errorf("kind is %q, want %q", c.Kind, Kind))
	}
	return c, errors.Join(strict...)
}

var errDocuments = errors.New("the file has several documents, want one")

// onlyDocument returns the only YAML document that is not empty.
func onlyDocument(data []byte) ([]byte, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var found []byte
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if empty(doc) {
			continue
		}
		if found != nil {
			return nil, errDocuments
		}
		found = doc
	}
}

// empty reports whether a YAML document has only comments and markers.
func empty(doc []byte) bool {
	for line := range strings.Lines(string(doc)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && line != "---" {
			return false
		}
	}
	return true
}
