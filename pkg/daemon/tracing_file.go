// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
)

// TracingFile is the path of a TracingConfiguration of any version, or "" for no tracing.
type TracingFile string

// Add defines the flag. Kubernetes has it in its API server only.
func (f *TracingFile) Add(fs *pflag.FlagSet) {
	fs.StringVar((*string)(f), "tracing-config-file", string(*f),
		"file with a TracingConfiguration for the export of spans; empty: no tracing")
}

// Open returns the tracing of a process that the file configures, or nil if there is no file.
func (f TracingFile) Open(service string) (*Tracing, error) {
	if f == "" {
		return nil, nil
	}
	data, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("failed to read tracing config: unable to read tracing configuration from %q: %w", f, err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	var c apiserver.TracingConfiguration
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
	if err := runtime.DecodeInto(decoder, data, &c); err != nil {
		return nil, fmt.Errorf("failed to read tracing config: unable to decode tracing configuration data: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	// The connection to the collector lives until Shutdown, so it needs a context without end.
	return NewTracing(context.Background(), &c.TracingConfiguration, service, host)
}
