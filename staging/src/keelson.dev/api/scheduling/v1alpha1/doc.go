// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:openapi-gen=true

// Package v1alpha1 has the kinds of scheduling.keelson.dev/v1alpha1.
//
// A BindingBatch binds many pods in one request. Each binding has the preconditions and errors of
// a POST to pods/binding, without the cost of a request of its own. Bindings are independent: some
// may fail. With AllOrNothing, no pod is bound unless all of them can be.
//
// A VerdictBatch reports scheduling decisions about pods that got no node: the condition and the
// nominated node that each pod's status gets, and the pods to delete to make room for it. Each
// verdict replaces a patch of the pod's status, and each victim replaces a patch of the victim's
// status and a delete. If a victim is terminated gracefully, the server makes both of its changes
// in one write.
//
// The server stores nothing of a batch. It answers with the batch's kind and with Results, in the
// order of the bindings or verdicts.
//
// A client needs the verb create on bindingbatches or verdictbatches of the group to send
// a batch. In addition, it needs the permissions for the requests that the batch replaces:
// create on pods/binding for a binding; patch on pods/status for a verdict; patch on
// pods/status and delete on pods for a victim; create on events of events.k8s.io for an event.
// Without the last permission, the server writes no event. The audit log has an event for the batch
// and one for each of these requests. The latter have the batch's audit ID in the annotation
// scheduling.keelson.dev/batch.
// Write options, such as dryRun, are rejected with 400.
//
// The server may write several objects of a batch in one transaction of the store. They then have
// the same resourceVersion.
//
// The kinds are served by default although they are alpha. API servers other than Keelson's answer
// 404.
package v1alpha1
