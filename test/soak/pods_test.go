// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"keelson.dev/keelson/test/soak/history"
)

// podManifests has the workloads that are rolled out repeatedly, and the StatefulSets. SEED is
// replaced by the seed of the run.
const podManifests = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: soak}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1.27
        ports: [{containerPort: 80}]
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: soak}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: configured, namespace: soak}
spec:
  replicas: 2
  selector: {matchLabels: {app: configured}}
  template:
    metadata: {labels: {app: configured}}
    spec:
      terminationGracePeriodSeconds: 1
      initContainers:
      - {name: first, image: busybox:1.36, command: [sh, -c, "test -f /config/value || test -d /config"], volumeMounts: [{name: config, mountPath: /config}]}
      containers:
      - {name: main, image: busybox:1.36, command: [sleep, "100000"], volumeMounts: [{name: config, mountPath: /config}, {name: scratch, mountPath: /scratch}]}
      volumes:
      - {name: config, configMap: {name: counter-0}}
      - {name: scratch, emptyDir: {medium: Memory}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agents, namespace: soak}
spec:
  selector: {matchLabels: {app: agents}}
  template:
    metadata: {labels: {app: agents}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: busybox:1.36, command: [sleep, "100000"], ports: [{containerPort: 80, hostPort: 8099}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: soak}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: soak}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: busybox:1.36
        command: [sh, -c, "trap 'sleep 1; exit 0' TERM; while :; do sleep 1 & wait; done"]
        env:
        - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: KEELSON_SOAK_IDENTITY, value: SEED/$(NAME)}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: csi, resources: {requests: {storage: 1Mi}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: one, namespace: soak}
spec:
  replicas: 3
  serviceName: db
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: busybox:1.36
        command: [sh, -c, "trap 'sleep 1; exit 0' TERM; while :; do sleep 1 & wait; done"]
        env:
        - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: KEELSON_SOAK_IDENTITY, value: SEED/$(NAME)}
`

// identityCount is the total number of pods in the StatefulSets.
const identityCount = 2 + 3

// makePods creates the workloads that have pods, and waits until their pods are ready.
func (w *workloads) makePods() {
	s := w.s
	s.apply(strings.ReplaceAll(podManifests, "SEED", fmt.Sprint(s.seed)))
	s.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + siteNamespace + "}\n")
	w.rollouts = []*rollout{{s: s, kind: "deployments", name: "web"},
		{s: s, kind: "deployments", name: "configured"}, {s: s, kind: "daemonsets", name: "agents"}}
	w.sets = []*identitySet{{rollout{s: s, kind: "statefulsets", name: "db"}},
		{rollout{s: s, kind: "statefulsets", name: "one"}}}
	w.jobs, w.sites, w.services, w.requests, w.crds = &jobs{s: s, deleted: map[string]bool{}}, &sites{s: s},
		&services{s: s}, &requests{s: s}, &definitions{s: s}
	for _, r := range w.rollouts {
		s.eventually(r.name+" is complete", r.incomplete)
	}
	for _, set := range w.sets {
		s.eventually(set.name+" is complete", set.incomplete)
	}
}

// startPods starts the goroutines that roll out the workloads and send requests to pods.
func (w *workloads) startPods(ctx context.Context, random func() uint64) {
	s := w.s
	for _, r := range w.rollouts {
		w.running.Go(func() { r.run(ctx, 2*time.Second) })
	}
	for _, set := range w.sets {
		r := s.random(random())
		w.running.Go(func() { set.run(ctx, r) })
	}
	for i := range 2 {
		name := fmt.Sprintf("db-%d", i)
		r := s.random(random())
		w.running.Go(func() { s.appendLines(ctx, name, r, w.files) })
	}
	clients := s.apis(3)
	w.running.Go(func() { w.jobs.run(ctx) })
	w.running.Go(func() { w.sites.run(ctx, clients[0]) })
	w.running.Go(func() { w.services.run(ctx, clients[1]) })
	w.running.Go(func() { w.crds.run(ctx, clients[2]) })
	w.running.Go(func() { w.requests.run(ctx) })
}

// finishPods waits until every workload has the state that its spec requires.
func (w *workloads) finishPods() {
	s := w.s
	for _, r := range w.rollouts {
		s.eventually(r.name+" is complete", r.incomplete)
		s.count("rollouts of "+r.kind, r.rolled)
	}
	for _, set := range w.sets {
		s.eventually(set.name+" is complete", set.incomplete)
		s.count("changes of stateful sets", set.rolled)
	}
	w.jobs.finish()
	w.sites.finish(s.apis(1)[0])
	finals := map[string][]string{}
	for i := range 2 {
		name := fmt.Sprintf("db-%d", i)
		s.eventually("the file of "+name+" is read", func(ctx context.Context) error {
			out, err := s.exec(ctx, name, "sh", "-c", "touch /data/lines; cat /data/lines")
			finals[name] = strings.Fields(out)
			return err
		})
	}
	ops := w.files.Ops()
	for _, v := range history.Files(ops, finals) {
		s.violatef("%v", v)
	}
	w.save("files", ops)
}

// rollout is a Deployment, DaemonSet or StatefulSet that is rolled out repeatedly.
type rollout struct {
	s          *soak
	kind, name string
	rolled     int
}

// status has the fields that the kinds of workloads have in common.
type status struct {
	Metadata struct {
		Generation int64 `json:"generation"`
	} `json:"metadata"`
	Spec struct {
		Replicas *int `json:"replicas"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration     int64  `json:"observedGeneration"`
		Replicas               int    `json:"replicas"`
		UpdatedReplicas        int    `json:"updatedReplicas"`
		ReadyReplicas          int    `json:"readyReplicas"`
		CurrentRevision        string `json:"currentRevision"`
		UpdateRevision         string `json:"updateRevision"`
		DesiredNumberScheduled int    `json:"desiredNumberScheduled"`
		UpdatedNumberScheduled int    `json:"updatedNumberScheduled"`
		NumberReady            int    `json:"numberReady"`
	} `json:"status"`
}

func (r *rollout) roll(ctx context.Context) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"rolled":"%d"}}}}}`, time.Now().UnixNano())
	return r.s.client.AppsV1().RESTClient().Patch(types.MergePatchType).Namespace(loadNamespace).Resource(
		r.kind).Name(r.name).Body([]byte(patch)).Do(ctx).Error()
}

// incomplete returns an error that says why the last rollout is not complete, or nil if it is
// complete.
func (r *rollout) incomplete(ctx context.Context) error {
	var st status
	if err := r.s.getJSON(ctx, "/apis/apps/v1/namespaces/"+loadNamespace+"/"+r.kind+"/"+r.name, &st); err != nil {
		return err
	}
	have := st.Status
	want := have.DesiredNumberScheduled
	if st.Spec.Replicas != nil {
		want = *st.Spec.Replicas
	}
	ready, updated := max(have.ReadyReplicas, have.NumberReady), max(have.UpdatedReplicas, have.UpdatedNumberScheduled)
	if r.kind == "statefulsets" && have.CurrentRevision == have.UpdateRevision {
		updated = want // the field is omitted when all pods are updated
	}
	if have.ObservedGeneration < st.Metadata.Generation || ready != want || updated != want ||
		have.Replicas > want || want == 0 {
		return fmt.Errorf("%s/%s: generation %d: %+v", r.kind, r.name, st.Metadata.Generation, have)
	}
	return nil
}

// run starts a rollout again and again until ctx ends. The argument between is the pause after each
// rollout.
func (r *rollout) run(ctx context.Context, between time.Duration) {
	for pause(ctx, between) {
		if r.roll(ctx) == nil {
			r.rolled++
			r.await(ctx)
		}
	}
}

// await waits until the rollout is complete, for at most one minute. After that, run starts the
// next rollout even if this one is not complete, because the test also covers rollouts during
// rollouts.
func (r *rollout) await(ctx context.Context) {
	deadline := time.Now().Add(time.Minute)
	for pause(ctx, 500*time.Millisecond) && r.incomplete(ctx) != nil && time.Now().Before(deadline) {
	}
}

// identitySet is a StatefulSet whose pods are deleted, and which is rolled out.
type identitySet struct{ rollout }

func (i *identitySet) run(ctx context.Context, random *rand.Rand) {
	for pause(ctx, time.Duration(3+random.IntN(6))*time.Second) {
		if i.change(ctx, random) == nil {
			i.rolled++
			i.await(ctx)
		}
	}
}

// change deletes one pod, or starts a rollout that replaces all pods.
func (i *identitySet) change(ctx context.Context, random *rand.Rand) error {
	if random.IntN(3) == 0 {
		return i.roll(ctx)
	}
	pods, err := i.s.client.CoreV1().Pods(loadNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + i.name})
	if err != nil || len(pods.Items) == 0 {
		return errors.Join(err, errors.New("no pods"))
	}
	return i.s.client.CoreV1().Pods(loadNamespace).Delete(ctx, pods.Items[random.IntN(len(pods.Items))].Name,
		metav1.DeleteOptions{})
}

// getJSON sends a GET request, and retries if the server requests that, as clients usually do.
func (s *soak) getJSON(ctx context.Context, path string, into any) error {
	data, err := s.client.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return err
	}
	return unmarshal(data, into)
}

// exec runs a command in a pod and returns its output.
func (s *soak) exec(ctx context.Context, pod string, command ...string) (string, error) {
	url := s.client.CoreV1().RESTClient().Post().Namespace(loadNamespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&v1.PodExecOptions{Container: "main", Command: command, Stdout: true, Stderr: true},
			scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(s.rest, "GET", url.String())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var out, failure bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &failure}); err != nil {
		return "", errors.Join(err, errors.New(failure.String()))
	}
	return out.String(), nil
}

// appendLines appends lines to a file in the volume of a pod, one after the other, and records them
// in log.
func (s *soak) appendLines(ctx context.Context, pod string, random *rand.Rand, log *history.Log) {
	for n := 1; pause(ctx, time.Duration(random.Int64N(int64(3*time.Second)))); n++ {
		o := history.Op{Client: "appender", Kind: history.Append, Key: pod, Value: fmt.Sprintf("%s-%d", pod, n),
			Begin: s.at(), Outcome: history.Acknowledged}
		out, err := s.exec(context.WithoutCancel(ctx), pod, "sh", "-c", "echo "+o.Value+" >>/data/lines && echo written")
		if err == nil && out != "written\n" {
			// If the stream between the API server and the kubelet breaks, the client gets the same
			// end of the stream as for a successful command, as in Kubernetes. Therefore a command
			// counts as successful only if its output has arrived.
			err = errors.New("the command printed nothing")
		}
		if err != nil {
			o.Outcome, o.Note = streamed(err), err.Error()
		}
		o.End = s.at()
		log.Add(o)
	}
}

// streamed returns the outcome of a command whose stream failed. If the stream could not be set up,
// the command certainly did not run, because a node starts the command only afterwards.
func streamed(err error) history.Outcome {
	if strings.Contains(err.Error(), "unable to upgrade ") {
		return history.Refused
	}
	return history.Unknown
}

// jobs is a workload that creates Jobs one after the other. Several Jobs may run at the same time.
type jobs struct {
	s       *soak
	made    int
	waiting []string
	deleted map[string]bool // Jobs that were checked and are being deleted
}

const (
	jobCompletions = 3
	maxJobs        = 4
)

func (j *jobs) run(ctx context.Context) {
	for pause(ctx, 3*time.Second) {
		j.waiting = slices.DeleteFunc(j.waiting, func(name string) bool { return j.unfinished(ctx, name) == nil })
		if len(j.waiting) >= maxJobs {
			continue
		}
		j.made++
		name := fmt.Sprintf("job-%d", j.made)
		mode := []string{"Indexed", "NonIndexed"}[j.made%2]
		// If the response is lost, the request is repeated with the same name.
		err := j.s.postJSON(ctx, "/apis/batch/v1/namespaces/"+loadNamespace+"/jobs",
			fmt.Sprintf(jobManifest, name, jobCompletions, mode))
		if err != nil {
			j.made--
			continue
		}
		j.waiting = append(j.waiting, name)
	}
}

const jobManifest = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":%q},"spec":{"completions":%d,"parallelism":2,"completionMode":%q,"backoffLimit":100,
"template":{"spec":{"restartPolicy":"Never","terminationGracePeriodSeconds":1,"containers":[{"name":"main","image":"busybox:1.36","command":["sleep","2"]}]}}}}`

// unfinished returns an error that says why a Job is not complete, or nil. It checks and deletes a
// Job that is complete.
func (j *jobs) unfinished(ctx context.Context, name string) error {
	api := j.s.client.BatchV1().Jobs(loadNamespace)
	job, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && j.deleted[name] {
		j.s.count("jobs completed", 1) // an earlier delete succeeded, but its response was lost
		return nil
	}
	if err != nil {
		return err
	}
	if j.deleted[name] {
		return j.remove(ctx, name)
	}
	st := job.Status
	done := slices.IndexFunc(st.Conditions, func(c batchCondition) bool {
		return c.Status == v1.ConditionTrue && (c.Type == "Complete" || c.Type == "Failed")
	})
	if done < 0 {
		return fmt.Errorf("job %s: %d active, %d succeeded, %d failed", name, st.Active, st.Succeeded, st.Failed)
	}
	indexed := *job.Spec.CompletionMode == "Indexed"
	switch {
	case st.Conditions[done].Type != "Complete":
		j.s.violatef("job %s: %+v", name, st)
	case indexed && (st.Succeeded != jobCompletions || st.CompletedIndexes != fmt.Sprintf("0-%d", jobCompletions-1)):
		j.s.violatef("job %s: %d succeeded, indexes %s of %d", name, st.Succeeded, st.CompletedIndexes, jobCompletions)
	case st.Succeeded < jobCompletions || st.Succeeded > jobCompletions+1:
		j.s.violatef("job %s: %d succeeded of %d", name, st.Succeeded, jobCompletions)
	case st.Succeeded > jobCompletions:
		// This is allowed. It happens if the response to the creation of a pod was lost.
		j.s.count("jobs that ran a pod more than they needed", 1)
	}
	j.deleted[name] = true
	return j.remove(ctx, name)
}

// remove deletes a Job that was checked.
func (j *jobs) remove(ctx context.Context, name string) error {
	background := metav1.DeletePropagationBackground
	err := j.s.client.BatchV1().Jobs(loadNamespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err == nil {
		j.s.count("jobs completed", 1)
	}
	return err
}

func (j *jobs) finish() {
	for _, name := range j.waiting {
		j.s.eventually(name+" is complete", func(ctx context.Context) error { return j.unfinished(ctx, name) })
	}
}
