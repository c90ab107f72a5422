// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/url"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxTailLines     = 100_000
	maxServices      = 4
	maxServiceLength = 256
)

// notOfServices is a regular expression for characters that are invalid in names of services.
const notOfServices = `[^a-zA-Z\-_.:0-9@]`

// logQuery is a parsed query for the logs of services, or for one log file.
type logQuery struct {
	asked           bool // whether the request has any parameter of a log query
	services, files []string
	since, until    time.Time // a zero time means no bound
	tail, boot      *int
	pattern         string
}

// empty reports whether the request has only a path and no parameters of a log query.
func (q *logQuery) empty() bool { return !q.asked }

// narrowed reports whether the query selects a part of each log, by time, boot, pattern or number
// of lines.
func (q *logQuery) narrowed() bool {
	return !q.since.IsZero() || !q.until.IsZero() || q.tail != nil || q.boot != nil || q.pattern != ""
}

// parseLogQuery parses the parameters of a request.
func parseLogQuery(values url.Values) (*logQuery, field.ErrorList) {
	var errs field.ErrorList
	q := &logQuery{pattern: values.Get("pattern")}
	queries, asked := values["query"]
	for _, s := range queries {
		switch {
		case strings.ContainsAny(s, `/\`):
			q.files = append(q.files, s)
		case strings.TrimSpace(s) != "":
			q.services = append(q.services, s)
		}
	}
	if asked && len(q.files)+len(q.services) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("query"), queries, "may not be empty"))
	}
	moment := func(name string) time.Time {
		text := values.Get(name)
		if text == "" {
			return time.Time{}
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(name), text, "invalid time format"))
		}
		return at
	}
	number := func(name string) *int {
		text := values.Get(name)
		if text == "" {
			return nil
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(name), text, err.Error()))
		}
		return &n
	}
	q.since, q.until, q.boot, q.tail = moment("sinceTime"), moment("untilTime"), number("boot"), number("tailLines")
	q.asked = asked || q.narrowed()
	return q, errs
}

func (q *logQuery) validate() field.ErrorList {
	errs := validateServices(q.services)
	query := field.NewPath("query")
	switch files, services := len(q.files), len(q.services); {
	case files == 0 && services == 0:
		errs = append(errs, field.Required(query, "cannot be empty with options"))
	case files > 0 && services > 0:
		errs = append(errs, field.Invalid(query, fmt.Sprintf("%v, %v", q.files, q.services),
			"cannot specify a file and service"))
	case files > 1:
		errs = append(errs, field.Invalid(query, q.files, "cannot specify more than one file"))
	case files == 1 && q.narrowed():
		errs = append(errs, field.Invalid(query, q.files, "cannot specify file with options"))
	}
	if !q.since.IsZero() && !q.until.IsZero() && q.since.After(q.until) {
		errs = append(errs, field.Invalid(field.NewPath("untilTime"), q.until, "must be after `sinceTime`"))
	}
	if q.boot != nil && *q.boot > 0 {
		errs = append(errs, field.Invalid(field.NewPath("boot"), *q.boot, "must be less than 1"))
	}
	if q.tail != nil {
		for _, text := range validation.IsInRange(*q.tail, 0, maxTailLines) {
			errs = append(errs, field.Invalid(field.NewPath("tailLines"), *q.tail, text))
		}
	}
	if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), q.pattern, err.Error()))
	}
	return errs
}

func validateServices(services []string) field.ErrorList {
	var errs field.ErrorList
	query := field.NewPath("query")
	unsafe := regexp.MustCompile(notOfServices)
	for _, s := range services {
		switch {
		case len(s) > maxServiceLength:
			errs = append(errs, field.Invalid(query, s, fmt.Sprintf("length must be less than %d", maxServiceLength)))
		case unsafe.MatchString(s):
			errs = append(errs, field.Invalid(query, s, "input contains unsupported characters"))
		}
	}
	if len(services) > maxServices {
		errs = append(errs, field.TooMany(query, len(services), maxServices))
	}
	return errs
}

func invalidFile(name string, err error) *field.Error {
	return field.Invalid(field.NewPath("query"), []string{name}, err.Error())
}
