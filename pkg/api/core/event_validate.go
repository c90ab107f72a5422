// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/report"
)

const (
	maxEventName = 128 // of the reporting instance, the action and the reason
	maxEventNote = 1024
)

func validateEvent(_ context.Context, e *corev1.Event) field.ErrorList {
	var r report.Report
	checkEvent(&r, e, "reportingComponent")
	return r.Errors
}

func validateEventUpdate(ctx context.Context, e, _ *corev1.Event) field.ErrorList {
	return validateEvent(ctx, e)
}

// checkEvent judges what both groups ask of an event; they name the controller
// that reports it differently.
func checkEvent(r *report.Report, e *corev1.Event, controller string) {
	about := e.InvolvedObject.Namespace
	mismatch := e.Namespace != about
	if e.EventTime.IsZero() {
		if about == "" {
			mismatch = e.Namespace != metav1.NamespaceNone && e.Namespace != metav1.NamespaceDefault
		}
	} else {
		mismatch = about == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem
	}
	if mismatch {
		r.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")
	}
	if !e.EventTime.IsZero() {
		if e.ReportingController == "" {
			r.Required(field.NewPath(controller), "")
		}
		r.QualifiedName(field.NewPath(controller), e.ReportingController)
		checkEventText(r, "reportingInstance", e.ReportingInstance)
		checkEventText(r, "action", e.Action)
		checkEventText(r, "reason", e.Reason)
		if len(e.Message) > maxEventNote {
			r.Invalid(field.NewPath("message"), "", fmt.Sprintf("can have at most %v characters", maxEventNote))
		}
	}
	r.Each(field.NewPath("namespace"), e.Namespace, naming.IsDNS1123Subdomain(e.Namespace))
}

func checkEventText(r *report.Report, name, text string) {
	path := field.NewPath(name)
	if text == "" {
		r.Required(path, "")
	}
	if len(text) > maxEventName {
		r.Invalid(path, "", fmt.Sprintf("can have at most %v characters", maxEventName))
	}
}

// ValidateEvent judges a new event of events.k8s.io, in the form it is stored in.
func ValidateEvent(e *corev1.Event) field.ErrorList {
	var r report.Report
	checkEvent(&r, e, "reportingController")
	r.Add(resource.MetaHere())
	checkSeries(&r, e)
	if e.EventTime.IsZero() {
		r.Required(field.NewPath("eventTime"), "")
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		r.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type))
	}
	for _, stamp := range []struct {
		name string
		set  bool
	}{{"firstTimestamp", !e.FirstTimestamp.IsZero()}, {"lastTimestamp", !e.LastTimestamp.IsZero()}} {
		if stamp.set {
			r.Invalid(field.NewPath(stamp.name), "", "needs to be unset")
		}
	}
	if e.Count != 0 {
		r.Invalid(field.NewPath("count"), "", "needs to be unset")
	}
	if e.Source != (corev1.EventSource{}) {
		r.Invalid(field.NewPath("source"), "", "needs to be unset")
	}
	return r.Errors
}

func checkSeries(r *report.Report, e *corev1.Event) {
	if e.Series == nil {
		return
	}
	if e.Series.Count < 2 {
		r.Invalid(field.NewPath("series.count"), "", "should be at least 2")
	}
	if e.Series.LastObservedTime.IsZero() {
		r.Required(field.NewPath("series.lastObservedTime"), "")
	}
}

// ValidateEventUpdate lets nothing of an events.k8s.io event change but its series.
func ValidateEventUpdate(e, old *corev1.Event) field.ErrorList {
	var r report.Report
	checkEvent(&r, e, "reportingController")
	r.Add(resource.MetaHere())
	if e.Series != nil && (old.Series == nil || *e.Series != *old.Series) {
		checkSeries(&r, e)
	}
	keep := func(name string, is, was any) { r.Immutable(field.NewPath(name), is, was) }
	keep("involvedObject", e.InvolvedObject, old.InvolvedObject)
	keep("reason", e.Reason, old.Reason)
	keep("message", e.Message, old.Message)
	keep("source", e.Source, old.Source)
	keep("firstTimestamp", e.FirstTimestamp, old.FirstTimestamp)
	keep("lastTimestamp", e.LastTimestamp, old.LastTimestamp)
	keep("count", e.Count, old.Count)
	keep("reason", e.Reason, old.Reason)
	keep("type", e.Type, old.Type)
	if !e.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		keep("eventTime", e.EventTime, old.EventTime)
	}
	keep("action", e.Action, old.Action)
	keep("related", e.Related, old.Related)
	keep("reportingController", e.ReportingController, old.ReportingController)
	keep("reportingInstance", e.ReportingInstance, old.ReportingInstance)
	return r.Errors
}
