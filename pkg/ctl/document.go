// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
)

// showDocument reads the JSON document at a path of the API server. If output is "json", it writes the
// document to stdout. Otherwise it passes the document to show.
func showDocument[T any](ctx context.Context, flags genericclioptions.RESTClientGetter, path string,
	parameters url.Values, stdout io.Writer, output string, show func(T) error) error {
	cfg, err := flags.ToRESTConfig()
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	request := client.RESTClient().Get().AbsPath(path)
	for name, values := range parameters {
		for _, v := range values {
			request = request.Param(name, v)
		}
	}
	data, err := request.DoRaw(ctx)
	if err != nil {
		return err
	}
	if output == "json" {
		_, err = stdout.Write(data)
		return err
	}
	var shown T
	if err := json.Unmarshal(data, &shown); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return show(shown)
}
