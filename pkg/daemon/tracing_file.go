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

// AddTracingFile defines the flag --tracing-config-file, the path of a TracingConfiguration file.
// In Kubernetes only the API server has this flag.
func AddTracingFile(fs *pflag.FlagSet, file *string) {
	fs.StringVar(file, "tracing-config-file", *file,
		"file with a TracingConfiguration, which names the collector that gets the process's trace spans; if "+
			"empty, no spans are sent")
}

// OpenTracing returns the tracing of a process according to file, which has a TracingConfiguration
// of any version. It returns nil if file is empty.
func OpenTracing(file, service string) (*Tracing, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("failed to read tracing config: unable to read tracing configuration from %q: %w", file, err)
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
	// The connection to the collector is used until Shutdown, so its context must not end earlier.
	return NewTracing(context.Background(), &c.TracingConfiguration, service, host)
}
