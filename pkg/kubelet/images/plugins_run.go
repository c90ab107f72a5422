// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// pluginTimeout is the timeout of one call of a plugin, and maxAnswer the maximum size of its
// response in bytes. If a plugin is killed, a child process may keep its output open. The kubelet
// then waits at most afterKill for the end of the output.
const (
	pluginTimeout = time.Minute
	maxAnswer     = 1 << 20
	afterKill     = time.Second
)

// run runs a plugin's program with the request as its input and returns the response.
func (p *Plugins) run(ctx context.Context, one *plugin, request *pluginapi.CredentialProviderRequest) (
	*pluginapi.CredentialProviderResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.cfg.BinDir, one.Name), one.Args...)
	cmd.Env = os.Environ()
	for _, e := range one.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	out, complaint := &bounded{left: maxAnswer}, &bounded{left: 4 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(body), out, complaint
	cmd.WaitDelay = afterKill
	begun := p.cfg.Clock.Now()
	err = cmd.Run()
	p.duration.WithLabelValues(one.Name).Observe(p.cfg.Clock.Since(begun).Seconds())
	if err != nil {
		p.errors.WithLabelValues(one.Name).Inc()
		return nil, fmt.Errorf("run: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	response := &pluginapi.CredentialProviderResponse{}
	if err := json.Unmarshal(out.Bytes(), response); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	switch {
	case response.APIVersion != one.APIVersion || response.Kind != "CredentialProviderResponse":
		return nil, fmt.Errorf("answer is %q %q, not %s CredentialProviderResponse", response.APIVersion,
			response.Kind, one.APIVersion)
	case !slices.Contains([]pluginapi.PluginCacheKeyType{pluginapi.ImagePluginCacheKeyType,
		pluginapi.RegistryPluginCacheKeyType, pluginapi.GlobalPluginCacheKeyType}, response.CacheKeyType):
		return nil, fmt.Errorf("answer has the cacheKeyType %q", response.CacheKeyType)
	}
	return response, nil
}

// bounded is a writer that stores data up to a maximum size, and drops further data.
type bounded struct {
	bytes.Buffer
	left int
}

// Write implements io.Writer.
func (b *bounded) Write(data []byte) (int, error) {
	n := min(len(data), b.left)
	b.left -= n
	b.Buffer.Write(data[:n])
	return len(data), nil
}
