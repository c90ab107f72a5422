// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/keelson/pkg/kubelet/logs"
)

func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	o, code, text := logOptions(r)
	if code != 0 {
		writeText(w, code, text)
		return
	}
	pod, ok := s.cfg.Pods.Pod(namespace, name)
	if !ok {
		writeText(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", name))
		return
	}
	if !hasContainer(pod, container) {
		writeText(w, http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", container, name))
		return
	}
	source, err := s.cfg.Pods.ContainerLog(r.Context(), pod, container, o.Previous)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	out := &flusher{w: w, rc: http.NewResponseController(w)}
	if err := s.copyLog(r.Context(), source, o, out); err != nil {
		s.cfg.Log.Debug("Failed to send all of a log", "path", source.Path, "err", err)
		if !out.written {
			writeText(w, http.StatusBadRequest, err.Error())
		}
	}
}

// logOptions parses the options in the query. If they are invalid, code and text are the HTTP
// status and message to return.
func logOptions(r *http.Request) (o *v1.PodLogOptions, code int, text string) {
	query := r.URL.Query()
	switch tail := query.Get("tail"); tail { // old clients send tail, the former name of tailLines
	case "":
	case "all":
		query.Del("tailLines")
	default:
		query["tailLines"] = []string{tail}
	}
	o, err := decodeLogOptions(query)
	if err != nil {
		return nil, http.StatusBadRequest, `{"message": "Unable to decode query."}`
	}
	if !validLogOptions(o) {
		return nil, http.StatusUnprocessableEntity, `{"message": "Invalid request."}`
	}
	return o, 0, ""
}

// decodeLogOptions parses the options like the parameter codec of the API. That codec can decode
// PodLogOptions only in the API server.
func decodeLogOptions(query url.Values) (*v1.PodLogOptions, error) {
	o := &v1.PodLogOptions{}
	var errs []error
	decode := func(name string, into func(values *[]string) error) {
		if values, ok := query[name]; ok && len(values) > 0 {
			errs = append(errs, into(&values))
		}
	}
	boolean := func(name string, out *bool) {
		decode(name, func(v *[]string) error { return runtime.Convert_Slice_string_To_bool(v, out, nil) })
	}
	number := func(name string, out **int64) {
		decode(name, func(v *[]string) error { return runtime.Convert_Slice_string_To_Pointer_int64(v, out, nil) })
	}
	boolean("follow", &o.Follow)
	boolean("previous", &o.Previous)
	boolean("timestamps", &o.Timestamps)
	number("sinceSeconds", &o.SinceSeconds)
	number("tailLines", &o.TailLines)
	number("limitBytes", &o.LimitBytes)
	decode("sinceTime", func(v *[]string) error {
		o.SinceTime = &metav1.Time{}
		return metav1.Convert_Slice_string_To_v1_Time(v, o.SinceTime, nil)
	})
	decode("stream", func(v *[]string) error { o.Stream = &(*v)[0]; return nil })
	return o, errors.Join(errs...)
}

func validLogOptions(o *v1.PodLogOptions) bool {
	all := o.Stream == nil || *o.Stream == v1.LogStreamAll
	switch {
	case !all && *o.Stream != v1.LogStreamStdout && *o.Stream != v1.LogStreamStderr,
		// tailLines counts the lines of both streams, so it is rejected for a single stream.
		!all && o.TailLines != nil,
		o.TailLines != nil && *o.TailLines < 0,
		o.LimitBytes != nil && *o.LimitBytes < 1,
		o.SinceSeconds != nil && o.SinceTime != nil,
		o.SinceSeconds != nil && *o.SinceSeconds < 1:
		return false
	}
	return true
}

func hasContainer(pod *v1.Pod, name string) bool {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return true
		}
	}
	return false
}

func (s *Server) copyLog(ctx context.Context, source LogSource, o *v1.PodLogOptions, out io.Writer) error {
	opts := logs.Options{
		Tail: o.TailLines, Limit: o.LimitBytes, Follow: o.Follow, Running: source.Running,
		Timestamps: o.Timestamps, Stdout: out, Stderr: out, Clock: s.cfg.Clock,
	}
	switch {
	case o.SinceSeconds != nil:
		opts.Since = s.cfg.Clock.Now().Add(-time.Duration(*o.SinceSeconds) * time.Second)
	case o.SinceTime != nil:
		opts.Since = o.SinceTime.Time
	}
	if o.Stream != nil {
		switch *o.Stream {
		case v1.LogStreamStdout:
			opts.Stderr = nil
		case v1.LogStreamStderr:
			opts.Stdout = nil
		}
	}
	return logs.Read(ctx, source.Path, opts)
}

// flusher flushes the response after each write, so that a client that follows a log gets each line
// at once.
type flusher struct {
	w       io.Writer
	rc      *http.ResponseController
	written bool
}

// Write implements io.Writer.
func (f *flusher) Write(p []byte) (int, error) {
	f.written = true
	n, err := f.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, f.rc.Flush()
}
