// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxEnvFile is the maximum number of bytes that are read from an environment file. There is a
// limit because a container can write to the file.
const maxEnvFile = 1 << 20

// fileVariable returns the value of a variable in an environment file, or "" if the file does not
// contain the variable. The file consists of lines of the form NAME='value', blank lines, and
// comments that start with #. A value is taken literally up to its closing quote; it may span
// several lines, and a comment may follow. If there is a space after the =, the value is empty.
//
// The file is read only as far as the variable, so errors behind it are not found.
func fileVariable(r io.Reader, key string) (string, error) {
	lines := envLines{Scanner: bufio.NewScanner(io.LimitReader(r, maxEnvFile))}
	for lines.Scan() {
		line := strings.TrimLeft(lines.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return "", lines.invalid("missing '='")
		case strings.TrimRight(name, " \t") == "":
			return "", lines.invalid("empty variable name")
		case strings.TrimRight(name, " \t") != name:
			return "", lines.invalid("whitespace before '=' is not allowed")
		}
		value := ""
		if strings.TrimLeft(rest, " \t") == rest {
			var err error
			if value, err = lines.quoted(rest); err != nil {
				return "", err
			}
		}
		if name == key {
			return value, nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("error reading environment variable file: %w", err)
	}
	return "", nil
}

// envLines reads the lines of an environment file and counts them.
type envLines struct {
	*bufio.Scanner
	n int
}

// Scan advances to the next line and counts it.
func (l *envLines) Scan() bool {
	l.n++
	return l.Scanner.Scan()
}

func (l *envLines) invalid(what string) error {
	return fmt.Errorf("invalid environment variable format at line %d: %s", l.n, what)
}

var errNotClosed = errors.New("unclosed single quote")

// quoted parses a value in single quotes. The argument rest is the beginning of the value, which
// may continue on the following lines.
func (l *envLines) quoted(rest string) (string, error) {
	rest, ok := strings.CutPrefix(rest, "'")
	if !ok {
		return "", l.invalid("value must be enclosed in single quotes")
	}
	first := l.n
	var value strings.Builder
	for {
		text, after, closed := strings.Cut(rest, "'")
		value.WriteString(text)
		if closed {
			if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
				return "", l.invalid("unexpected content after closing quote")
			}
			return value.String(), nil
		}
		value.WriteByte('\n')
		if !l.Scan() {
			return "", fmt.Errorf("invalid environment variable format starting at line %d: %w", first, errNotClosed)
		}
		rest = l.Text()
	}
}
