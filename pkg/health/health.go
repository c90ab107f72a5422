// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package health serves /healthz, /livez and /readyz as Kubernetes' components do: named checks in
// a fixed order, the parameters verbose and exclude, and one path for each check. The answer about
// all checks does not contain the reasons of failures, which are logged. The answer about a single
// check contains its reason.
package health

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// Check is a named health check. Run returns nil if the check passes.
type Check struct {
	Name string
	// Group is another name, which several checks share, to exclude all of them. It may be empty.
	Group string
	Run   func(ctx context.Context) error
}

// Ping returns a check that always passes.
func Ping() Check { return Check{Name: "ping", Run: func(context.Context) error { return nil }} }

// Gate is a check that passes while the gate is open. It is closed at first.
type Gate struct {
	name string
	open atomic.Bool
	why  string
}

// NewGate returns a closed gate. While it is closed, the error of its check is why.
func NewGate(name, why string) *Gate { return &Gate{name: name, why: why} }

// Open makes the check pass.
func (g *Gate) Open() { g.open.Store(true) }

// Close makes the check fail.
func (g *Gate) Close() { g.open.Store(false) }

// Check returns the check that passes while the gate is open.
func (g *Gate) Check() Check {
	return Check{Name: g.name, Run: func(context.Context) error {
		if g.open.Load() {
			return nil
		}
		return fmt.Errorf("%s", g.why)
	}}
}

// Once returns a check that runs c until c has passed for the first time, and then always passes.
func Once(c Check) Check {
	var held atomic.Bool
	return Check{Name: c.Name, Group: c.Group, Run: func(ctx context.Context) error {
		if held.Load() {
			return nil
		}
		err := c.Run(ctx)
		if err == nil {
			held.Store(true)
		}
		return err
	}}
}

// Handler serves root, such as "/readyz", with the results of all checks, and a path below root for
// each check.
func Handler(root string, log *slog.Logger, checks ...Check) http.Handler {
	name := strings.TrimPrefix(root, "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if rest := strings.TrimPrefix(r.URL.Path, root); rest != "" && rest != "/" {
			serveOne(w, r, name, strings.TrimPrefix(rest, "/"), log, checks)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		serveAll(w, r, name, log, checks)
	})
}

func serveOne(w http.ResponseWriter, r *http.Request, root, name string, log *slog.Logger, checks []Check) {
	i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		http.NotFound(w, r)
		return
	}
	if err := checks[i].Run(r.Context()); err != nil {
		log.Info("Health check failed", "endpoint", root, "check", name, "err", err)
		http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "ok")
}

func serveAll(w http.ResponseWriter, r *http.Request, root string, log *slog.Logger, checks []Check) {
	excluded := excludes(r)
	var lines bytes.Buffer
	var failed []string
	for _, c := range checks {
		if _, ok := excluded[c.Name]; ok {
			excluded[c.Name] = true
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		if _, ok := excluded[c.Group]; ok && c.Group != "" {
			excluded[c.Group] = true
			fmt.Fprintf(&lines, "[+]%s excluded with %s: ok\n", c.Name, c.Group)
			continue
		}
		if err := c.Run(r.Context()); err != nil {
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
			failed = append(failed, c.Name)
			log.Debug("Health check failed", "endpoint", root, "check", c.Name, "err", err)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
	}
	if unknown := unmatched(excluded); len(unknown) > 0 {
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(unknown, ","))
	}
	if len(failed) > 0 {
		log.Info("Health checks failed", "endpoint", root, "checks", failed)
		http.Error(w, fmt.Sprintf("%s%s check failed", lines.String(), root), http.StatusInternalServerError)
		return
	}
	if _, verbose := r.URL.Query()["verbose"]; !verbose {
		_, _ = io.WriteString(w, "ok")
		return
	}
	_, _ = lines.WriteTo(w)
	fmt.Fprintf(w, "%s check passed\n", root)
}

// excludes returns a map with the names in the parameters exclude. The values are false. The caller
// sets the value of a name to true when it finds a check with this name or group.
func excludes(r *http.Request) map[string]bool {
	out := map[string]bool{}
	for _, v := range r.URL.Query()["exclude"] {
		out[v] = false
	}
	return out
}

func unmatched(excluded map[string]bool) []string {
	var out []string
	for name, found := range excluded {
		if !found {
			out = append(out, fmt.Sprintf("%q", name))
		}
	}
	slices.Sort(out)
	return out
}
