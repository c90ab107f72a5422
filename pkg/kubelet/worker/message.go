// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/beneath"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/logs"
)

// Maximum length of a termination message, and of the end of the log that replaces it, in bytes;
// and maximum number of lines of the log.
const (
	maxMessage  = 4096
	maxFallback = 2048
	maxLines    = 80
)

// message returns the termination message of a container: the content of the file at its
// termination message path. If the file is empty, the container failed and its policy is
// FallbackToLogsOnError, message returns the end of the container's log instead.
func (w *worker) message(run *cri.Container) string {
	text := ""
	for _, m := range run.Mounts {
		if run.MessagePath == "" || m.GetContainerPath() != run.MessagePath {
			continue
		}
		b, err := tail(openMessage, m.GetHostPath(), maxMessage)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("Error on reading termination log %s: %v", run.MessagePath, err)
		}
		text = string(b)
	}
	if text == "" && run.MessagePolicy == v1.TerminationMessageFallbackToLogsOnError && run.ExitCode != 0 &&
		run.LogPath != "" {
		b, err := tail(logs.Open, run.LogPath, 2*maxFallback)
		if err != nil {
			return fmt.Sprintf("Error on reading termination message from logs: %v", err)
		}
		text = lastLines(b)
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// openMessage opens the file at a container's termination message path. A pod can mount a volume
// there, with a pipe or a device in the place of the file that the kubelet created, so openMessage
// opens only regular files.
func openMessage(path string) (*os.File, error) {
	return beneath.Open(filepath.Dir(path), filepath.Base(path))
}

// tail returns the last bytes of a file, at most limit of them.
func tail(open func(path string) (*os.File, error), path string, limit int64) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	if _, err := f.Seek(max(info.Size()-limit, 0), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// lastLines returns the text of the last lines of a log in the CRI's format, whose lines consist of
// time, stream, tag and text. It skips a line whose beginning is missing.
func lastLines(b []byte) string {
	lines := bytes.SplitAfter(b, []byte("\n"))
	var out []string
	for _, line := range lines {
		parts := bytes.SplitN(line, []byte(" "), 4)
		if len(parts) < 4 || len(parts[2]) == 0 || parts[2][0] != 'F' && parts[2][0] != 'P' {
			continue
		}
		text := string(parts[3])
		if parts[2][0] == 'P' {
			text = strings.TrimSuffix(text, "\n")
		}
		out = append(out, text)
	}
	text := strings.Join(out[max(len(out)-maxLines, 0):], "")
	return text[max(len(text)-maxFallback, 0):]
}
