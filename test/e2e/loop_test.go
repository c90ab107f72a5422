// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// webManifest is a Deployment of a web server. Tests create its Service with "ctl expose".
const webManifest = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx-deployment
  labels:
    app: nginx
spec:
  replicas: 2
  selector:
    matchLabels:
      app: nginx
  template:
    metadata:
      labels:
        app: nginx
    spec:
      containers:
      - name: nginx
        image: nginx:1.7.9
        ports:
        - containerPort: 80
`

// loopManifest is a pod that sends requests to the Service by its DNS name in an endless loop, and
// logs the responses.
const loopManifest = `apiVersion: v1
kind: Pod
metadata:
  name: loop
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: loop
    image: busybox:1.36
    command: [sh, -c]
    args:
    - |
      while :; do
        if answer=$(wget -q -T 60 -O - http://nginx-deployment/hostname 2>&1); then echo "ok $answer"; else echo "failed $answer"; fi
      done
`

// loop gives access to the log of the pod of loopManifest in a namespace.
type loop struct{ namespace string }

func startLoop(t *testing.T, ns string) loop {
	t.Helper()
	if out, err := try(t, loopManifest, "-n", ns, "create", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l := loop{ns}
	l.more(t, 20)
	return l
}

// read returns the number of responses of each kind, their total, and the failures since the pod's
// start.
func (l loop) read(t *testing.T) (answers map[string]int, total int, failures []string) {
	t.Helper()
	answers = map[string]int{}
	out, err := try(t, "", "-n", l.namespace, "logs", "loop")
	if err != nil {
		return answers, 0, nil // the pod has not started yet
	}
	for _, line := range strings.Split(out, "\n") {
		if host, ok := strings.CutPrefix(line, "ok "); ok {
			answers[host]++
			total++
		} else if line != "" {
			failures = append(failures, line)
		}
	}
	return answers, total, failures
}

// more waits until the pod has got n more responses.
func (l loop) more(t *testing.T, n int) {
	t.Helper()
	_, before, _ := l.read(t)
	eventually(t, fmt.Sprintf("%d more answers", n), func() bool {
		_, total, _ := l.read(t)
		return total >= before+n
	})
}

// check fails the test if a request of the pod has failed. The message contains during, a
// description of what the test did meanwhile.
func (l loop) check(t *testing.T, during string) {
	t.Helper()
	l.more(t, 5)
	if _, total, failures := l.read(t); len(failures) > 0 {
		t.Errorf("%s: %d of %d requests failed, the first: %s", during, len(failures), total+len(failures), failures[0])
	}
}
