// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/restart"
)

// Reasons that a container's status shows while it waits for its image. Kubernetes uses the same
// ones.
const (
	ErrImagePull        = "ErrImagePull"
	ErrImagePullBackOff = "ImagePullBackOff"
	ErrImageNeverPull   = "ErrImageNeverPull"
	ErrInvalidImageName = "InvalidImageName"
	ErrImageInspect     = "ImageInspectError"
)

// pullTimeout is the maximum duration of one pull.
const pullTimeout = 30 * time.Minute

// Error is the error of a container whose image is not available.
type Error struct {
	// Reason is the reason of the waiting state in the container's status.
	Reason  string
	Message string
	// Retry is when the caller should try again.
	Retry time.Time
}

// Error returns the reason and the message.
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Runtime is the part of the container runtime that a Puller uses.
type Runtime interface {
	// ImageStatus returns an image if it is on the node, and nil otherwise.
	ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	// PullImage pulls an image and returns the reference of the pulled image.
	PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (string, error)
}

// Config holds a Puller's settings.
type Config struct {
	Runtime Runtime
	// Records store the credentials with which images were pulled. If it is nil, every pod may use
	// every image on the node.
	Records *Records
	// Parallel is the maximum number of concurrent pulls; 0 means no limit.
	Parallel int
	// Allow reports whether a pull may begin now. It limits the rate of requests to registries.
	// nil means no limit.
	Allow func() bool
	// Secrets reads the pull secrets of pods.
	Secrets interface {
		Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	}
	// Plugins provide logins in addition to those of the pods' secrets. It is nil if there are
	// none.
	Plugins *Plugins
	// Metrics counts requests for images and records the duration of pulls; nil disables that.
	Metrics *metrics.Node
	// Pulled is called when a pod's image was pulled, with the time since the first attempt. It may
	// be nil.
	Pulled func(pod types.UID, took time.Duration)
	Clock  clock.Clock
	// Event records an event on a container of the pod.
	Event func(pod *v1.Pod, container, eventType, reason, message string)
}

// Puller pulls images. It is safe for concurrent use.
type Puller struct {
	cfg Config

	slots chan struct{} // contains one token for each running pull; nil if their number is not limited

	mu     sync.Mutex
	states map[string]*state // records of failed pulls, by pod and image
	pulls  map[string]*pull  // pulls by image; an entry exists while a caller pulls the image or waits for it
}

// pull is shared by all callers that pull the same image or wait for it.
type pull struct {
	turn  chan struct{} // a channel of capacity 1 that is used as a lock: the caller that has sent to it pulls the image
	users int
}

// state is the record of failed pulls of an image for a pod.
type state struct {
	begun   time.Time // when the first of the pulls began; zero before
	backoff restart.Backoff
	failed  time.Time
	message string
}

// New returns a Puller.
func New(cfg Config) *Puller {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewNode(nil)
	}
	p := &Puller{cfg: cfg, states: map[string]*state{}, pulls: map[string]*pull{}}
	if cfg.Parallel > 0 {
		p.slots = make(chan struct{}, cfg.Parallel)
	}
	return p
}

// Forget drops the records of failed pulls for a pod.
func (p *Puller) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.states {
		if strings.HasPrefix(key, string(uid)+" ") {
			delete(p.states, key)
		}
	}
}

// Ensure returns the image of a container. It pulls the image if the pull policy requires that.
// Errors are of type *Error.
func (p *Puller) Ensure(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig,
	handler string) (*runtimeapi.Image, error) {
	present, required := metrics.Unknown, metrics.Unknown
	defer func() { p.cfg.Metrics.EnsuredImage(string(c.ImagePullPolicy), present, required) }()
	if _, err := reference.ParseDockerRef(c.Image); err != nil {
		return nil, p.fail(pod, c, ErrInvalidImageName, "InspectFailed",
			fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: %v", c.Image, c.Image, err))
	}
	spec := &runtimeapi.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image, RuntimeHandler: handler}
	if c.ImagePullPolicy != v1.PullAlways {
		image, err := p.cfg.Runtime.ImageStatus(ctx, spec)
		if err != nil {
			return nil, p.fail(pod, c, ErrImageInspect, "InspectFailed",
				fmt.Sprintf("Failed to inspect image %q: %s", c.Image, cri.Message(err)))
		}
		present = strconv.FormatBool(image != nil)
		if image != nil {
			usable := p.mayUse(ctx, pod, c.Image, image)
			required = strconv.FormatBool(!usable)
			if usable {
				p.reportPull(pod, c.Image) // another pod may have pulled the image after this pod has failed to
				p.event(pod, c, "Pulled",
					fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", c.Image))
				return image, nil
			}
		}
		if c.ImagePullPolicy == v1.PullNever {
			return nil, p.fail(pod, c, ErrImageNeverPull, ErrImageNeverPull,
				fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image))
		}
	}
	required = strconv.FormatBool(true)
	return p.pull(ctx, pod, c, spec, sandbox)
}

// mayUse reports whether the pod has credentials to use an image that is already on the node.
func (p *Puller) mayUse(ctx context.Context, pod *v1.Pod, name string, image *runtimeapi.Image) bool {
	if p.cfg.Records == nil {
		return true
	}
	return p.cfg.Records.MayUse(name, image.GetId(), func() []credential { return p.credentials(ctx, pod, name) })
}

func (p *Puller) pull(ctx context.Context, pod *v1.Pod, c *v1.Container, spec *runtimeapi.ImageSpec,
	sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	st := p.state(pod, c.Image)
	now := p.cfg.Clock.Now()
	if until := st.backoff.Until(st.failed, now); !st.failed.IsZero() && now.Before(until) {
		message := fmt.Sprintf("Back-off pulling image %q: %s", c.Image, st.message)
		p.cfg.Event(pod, c.Name, v1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", c.Image))
		return nil, &Error{Reason: ErrImagePullBackOff, Message: message, Retry: until}
	}
	if st.begun.IsZero() {
		st.begun = now
	}
	p.event(pod, c, "Pulling", fmt.Sprintf("Pulling image %q", c.Image))
	done, err := p.turn(ctx, c.Image)
	if err != nil {
		return nil, &Error{Reason: ErrImagePull, Message: err.Error(), Retry: p.cfg.Clock.Now()}
	}
	defer done()
	waited := p.cfg.Clock.Since(now)
	begun := p.cfg.Clock.Now()
	image, err := p.recorded(ctx, pod, spec, sandbox)
	if err != nil {
		if ctx.Err() != nil {
			return nil, &Error{Reason: ErrImagePull, Message: ctx.Err().Error(), Retry: p.cfg.Clock.Now()}
		}
		failure := p.failedPull(pod, c, st, err)
		if missing := p.missingSecrets(ctx, pod); len(missing) > 0 {
			p.cfg.Event(pod, "", v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", fmt.Sprintf(
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
				strings.Join(missing, ", ")))
		}
		return nil, failure
	}
	took := p.cfg.Clock.Since(begun)
	p.reportPull(pod, c.Image)
	p.forget(pod, c.Image)
	p.cfg.Metrics.Pulled(image.GetSize(), took+waited)
	p.event(pod, c, "Pulled",
		fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
			c.Image, took.Truncate(time.Millisecond), (took+waited).Truncate(time.Millisecond), image.GetSize()))
	return image, nil
}

// recorded pulls an image, and records the credential with which it was pulled.
func (p *Puller) recorded(ctx context.Context, pod *v1.Pod, spec *runtimeapi.ImageSpec,
	sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	r := p.cfg.Records
	if r != nil {
		if err := r.Begin(spec.Image); err != nil {
			return nil, err
		}
	}
	ref, with, err := p.fetch(ctx, pod, spec, sandbox)
	var image *runtimeapi.Image
	if err == nil {
		image, err = p.cfg.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref, RuntimeHandler: spec.RuntimeHandler})
	}
	if err == nil && image == nil {
		err = errors.New("the image does not exist after it was pulled")
	}
	switch {
	case r == nil:
	case err != nil:
		r.Failed(spec.Image)
	default:
		r.Pulled(spec.Image, image.GetId(), with)
	}
	return image, err
}

func (p *Puller) failedPull(pod *v1.Pod, c *v1.Container, st *state, err error) error {
	reason, message := explain(c.Image, err)
	now := p.cfg.Clock.Now()
	p.mu.Lock()
	st.backoff.Next(now, now)
	st.failed, st.message = now, reason+": "+message
	retry := st.backoff.Until(now, now)
	p.mu.Unlock()
	p.fail(pod, c, reason, "Failed", fmt.Sprintf("Failed to pull image %q: %v", c.Image, err))
	p.cfg.Event(pod, c.Name, v1.EventTypeWarning, "Failed", "Error: "+reason)
	return &Error{Reason: reason, Message: message, Retry: retry}
}

// explain returns the reason and the message that a container's status shows after a failed pull.
// If the runtime's message begins with one of the reasons that the CRI defines, explain returns
// that reason.
func explain(image string, err error) (reason, message string) {
	for word, what := range map[string]string{
		"RegistryUnavailable":       "because the registry is unavailable",
		"SignatureValidationFailed": "because the signature validation failed",
	} {
		if rest, ok := strings.CutPrefix(cri.Message(err), word); ok {
			return word, fmt.Sprintf("image pull failed for %s %s%s", image, what, rest)
		}
	}
	return ErrImagePull, err.Error()
}

// errTooOften is the error of a pull that exceeds the rate limit.
var errTooOften = errors.New("pull QPS exceeded")

// fetch pulls an image with each of the pod's matching credentials in turn, or without a credential
// if none matches. It returns the credential that succeeded.
func (p *Puller) fetch(ctx context.Context, pod *v1.Pod, spec *runtimeapi.ImageSpec,
	sandbox *runtimeapi.PodSandboxConfig) (ref string, with credential, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	list := p.credentials(ctx, pod, spec.Image)
	if len(list) == 0 {
		list = []credential{{}}
	}
	var errs []error
	for _, c := range list {
		if p.cfg.Allow != nil && !p.cfg.Allow() {
			return "", with, errTooOften
		}
		ref, err := p.cfg.Runtime.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec, Auth: c.auth,
			SandboxConfig: sandbox})
		if err == nil {
			return ref, c, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return "", with, errs[0]
	}
	return "", with, errors.Join(errs...)
}

// state returns the record of failed pulls of an image for a pod, and creates it if necessary.
func (p *Puller) state(pod *v1.Pod, image string) *state {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := string(pod.UID) + " " + image
	if p.states[key] == nil {
		p.states[key] = &state{}
	}
	return p.states[key]
}

// turn waits until the caller may pull the image. At most one caller pulls an image at a time, and
// at most Parallel images are pulled at a time. The caller must call the returned function after
// the pull.
func (p *Puller) turn(ctx context.Context, image string) (done func(), err error) {
	p.mu.Lock()
	one := p.pulls[image]
	if one == nil {
		one = &pull{turn: make(chan struct{}, 1)}
		p.pulls[image] = one
	}
	one.users++
	p.mu.Unlock()
	left := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(p.pulls, image)
		}
	}
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		left()
		return nil, ctx.Err()
	}
	if p.slots != nil {
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			<-one.turn
			left()
			return nil, ctx.Err()
		}
	}
	return func() {
		if p.slots != nil {
			<-p.slots
		}
		<-one.turn
		left()
	}, nil
}

// reportPull reports how long the pod has waited for an image, if it has begun to pull it.
func (p *Puller) reportPull(pod *v1.Pod, image string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.states[string(pod.UID)+" "+image]
	if st == nil || st.begun.IsZero() {
		return
	}
	if p.cfg.Pulled != nil {
		p.cfg.Pulled(pod.UID, p.cfg.Clock.Since(st.begun))
	}
	st.begun = time.Time{}
}

func (p *Puller) forget(pod *v1.Pod, image string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.states, string(pod.UID)+" "+image)
}

func (p *Puller) event(pod *v1.Pod, c *v1.Container, reason, message string) {
	p.cfg.Event(pod, c.Name, v1.EventTypeNormal, reason, message)
}

// retryMissing is how long to wait before looking again for a missing image with the pull policy
// Never.
const retryMissing = 10 * time.Second

func (p *Puller) fail(pod *v1.Pod, c *v1.Container, reason, event, message string) *Error {
	p.cfg.Event(pod, c.Name, v1.EventTypeWarning, event, message)
	return &Error{Reason: reason, Message: message, Retry: p.cfg.Clock.Now().Add(retryMissing)}
}
