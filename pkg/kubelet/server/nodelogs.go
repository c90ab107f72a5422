// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os/exec"
	"path"
	"strings"
	"time"

	"keelson.dev/keelson/pkg/beneath"
)

const (
	// queryTimeout is the timeout of a query for logs of services.
	queryTimeout = 30 * time.Second
	// maxQueries is the maximum number of concurrent queries. Further queries wait.
	maxQueries = 4
	// journalTime is the time format of journalctl.
	journalTime = "2006-01-02 15:04:05"
)

// nodeLogs serves /logs/. Without a query it serves the files of a directory. With a query, such as
// /logs/?query=kubelet&tailLines=10, it serves the logs of services. It reads them from systemd's
// journal, or from files whose name is that of the service.
type nodeLogs struct {
	dir   beneath.Files
	files http.Handler
	slots chan struct{}
}

func newNodeLogs(dir string) *nodeLogs {
	return &nodeLogs{dir: beneath.Files(dir), files: http.FileServerFS(beneath.Files(dir)),
		slots: make(chan struct{}, maxQueries)}
}

// ServeHTTP implements http.Handler. It expects a path without the prefix /logs/.
func (l *nodeLogs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, errs := parseLogQuery(r.URL.Query())
	switch {
	case len(errs) > 0:
		http.Error(w, errs.ToAggregate().Error(), http.StatusBadRequest)
		return
	case q.empty():
		l.files.ServeHTTP(w, r)
		return
	case strings.Trim(r.URL.Path, "/") != "":
		http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		return
	}
	if errs := q.validate(); len(errs) > 0 {
		http.Error(w, errs.ToAggregate().Error(), http.StatusNotAcceptable)
		return
	}
	if len(q.files) > 0 {
		serveLogFile(w, r, l.dir, q.files[0])
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), queryTimeout)
	defer cancel()
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		http.Error(w, "too many log queries", http.StatusTooManyRequests)
		return
	}
	defer func() { <-l.slots }()
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	q.write(ctx, w, l.dir)
}

// serveLogFile serves a file, or the list of the entries of a directory.
func serveLogFile(w http.ResponseWriter, r *http.Request, files beneath.Files, name string) {
	name = path.Clean("/" + strings.ReplaceAll(name, `\`, "/"))
	info, err := fs.Stat(files, path.Join(".", name))
	if err != nil {
		http.Error(w, invalidFile(name, err).Error(), http.StatusNotAcceptable)
		return
	}
	if info.IsDir() && name != "/" {
		name += "/"
	}
	r = r.Clone(r.Context())
	r.URL.Path = name
	http.FileServerFS(files).ServeHTTP(w, r)
}

// write writes the logs of the services in the query. An error is written in the place of the log
// that could not be read.
func (q *logQuery) write(ctx context.Context, w io.Writer, dir beneath.Files) {
	units := journalUnits(ctx)
	var journal, files []string
	for _, s := range q.services {
		if units[s+".service"] {
			journal = append(journal, s)
		} else {
			files = append(files, s)
		}
	}
	if len(journal) > 0 {
		q.writeJournal(ctx, w, journal)
	}
	if len(files) > 0 && q.narrowed() {
		fmt.Fprintf(w, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", files)
		return
	}
	for _, s := range files {
		switch err := writeServiceFile(ctx, w, dir, s); {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(w, "\nlog not found for %s\n", s)
		case err != nil:
			fmt.Fprintf(w, "\nerror getting log for %s: %v\n", s, err)
		}
	}
}

// journalUnits returns the names of the systemd units that have logs in the journal. It returns
// none if there is no journal.
func journalUnits(ctx context.Context) map[string]bool {
	out, err := exec.CommandContext(ctx, "journalctl", "--field=_SYSTEMD_UNIT").Output()
	if err != nil {
		return nil
	}
	units := map[string]bool{}
	for unit := range strings.Lines(string(out)) {
		units[strings.TrimSpace(unit)] = true
	}
	return units
}

func (q *logQuery) writeJournal(ctx context.Context, w io.Writer, services []string) {
	c := exec.CommandContext(ctx, "journalctl", q.journalArgs(services)...)
	c.Stdout, c.Stderr = w, w
	exited := &exec.ExitError{}
	// If journalctl exits with an error, its output already contains the reason.
	if err := c.Run(); err != nil && !errors.As(err, &exited) {
		fmt.Fprintf(w, "\nerror: journal output not available\n")
	}
}

// journalArgs returns the arguments of journalctl for the query.
func (q *logQuery) journalArgs(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	add := func(on bool, name string, value any) {
		if on {
			args = append(args, fmt.Sprintf("--%s=%v", name, value))
		}
	}
	add(!q.since.IsZero(), "since", q.since.UTC().Format(journalTime)+" UTC")
	add(!q.until.IsZero(), "until", q.until.UTC().Format(journalTime)+" UTC")
	if q.tail != nil {
		add(true, "lines", *q.tail)
	}
	for _, s := range services {
		add(true, "unit", s)
	}
	add(q.pattern != "", "grep", q.pattern)
	if q.boot != nil {
		add(true, "boot", *q.boot)
	}
	return args
}

// writeServiceFile writes the first existing file among the names that a service's log may have.
func writeServiceFile(ctx context.Context, w io.Writer, dir beneath.Files, service string) error {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		f, err := dir.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if info.IsDir() { // a directory of the service's name may contain the log file
			continue
		}
		_, err = io.Copy(w, whileContext{ctx, f})
		return err
	}
	return fs.ErrNotExist
}

// whileContext is an io.Reader that fails once its context has ended.
type whileContext struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r whileContext) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
