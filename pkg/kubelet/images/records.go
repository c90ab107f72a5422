// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

// maxSecrets limits the secrets in a record. MayUse adds another secret only to a record with fewer
// secrets.
const maxSecrets = 100

// Records store which secrets and service accounts images were pulled with, so that a pod cannot
// use an image on the node that it may not pull. The files have the same format as those of
// Kubernetes' kubelet. Records are safe for concurrent use.
type Records struct {
	pulling, pulled string // directories with the records of pulls in progress and of pulled images
	policy          kubeletconfig.ImagePullCredentialsVerificationPolicy
	// allowed are full names of images that every pod may use. A name that ends in / stands for all
	// names with that prefix.
	allowed []string
	clock   clock.Clock
	log     *slog.Logger

	mu     sync.Mutex // locked while files are read or written
	wanted map[string]int
}

// NewRecords opens the records in a directory, and creates the directory if necessary.
func NewRecords(dir string, c *kubeletconfig.KubeletConfiguration, cl clock.Clock, log *slog.Logger) (*Records, error) {
	r := &Records{
		pulling: filepath.Join(dir, "pulling"), pulled: filepath.Join(dir, "pulled"),
		policy: c.ImagePullCredentialsVerificationPolicy, clock: cl, log: log, wanted: map[string]int{},
	}
	switch r.policy {
	case kubeletconfig.NeverVerify, kubeletconfig.NeverVerifyPreloadedImages,
		kubeletconfig.NeverVerifyAllowlistedImages, kubeletconfig.AlwaysVerify:
	case "":
		r.policy = kubeletconfig.NeverVerifyPreloadedImages
	default:
		return nil, fmt.Errorf("unknown image pull credential verification policy: %v", r.policy)
	}
	for _, pattern := range c.PreloadedImagesVerificationAllowlist {
		name, all := strings.CutSuffix(pattern, "/*")
		if strings.Contains(name, "*") {
			return nil, fmt.Errorf("not a valid wildcard pattern: %q", pattern)
		}
		if all {
			r.allowed = append(r.allowed, name+"/")
			continue
		}
		named, err := reference.ParseNormalizedNamed(name)
		if err != nil || !reference.IsNameOnly(named) {
			return nil, fmt.Errorf("failed to parse image name %q", pattern)
		}
		r.allowed = append(r.allowed, named.Name())
	}
	for _, d := range []string{r.pulling, r.pulled} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("records of images: %w", err)
		}
	}
	return r, nil
}

func file(dir, of string) string {
	return filepath.Join(dir, fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(of))))
}

// bare returns an image's full name without its tag and digest.
func bare(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return named.Name()
}

// Begin records that a pull is about to begin. If Begin fails, the caller must not pull the image:
// if the kubelet then crashed, there would be no record of the pull, and all pods could use the
// image.
func (r *Records) Begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	intent := kubeletconfig.ImagePullIntent{TypeMeta: typeOf("ImagePullIntent"), Image: image}
	if err := checkpoint.WriteDurably(file(r.pulling, image), intent); err != nil {
		return fmt.Errorf("failed to record image pull intent: %w", err)
	}
	r.wanted[image]++
	return nil
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: kind}
}

// Failed records that a pull has failed. It must follow each Begin whose pull fails.
func (r *Records) Failed(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(image)
}

// end removes the record that Begin has written, unless another pull of the image is still running.
// The caller holds r.mu.
func (r *Records) end(image string) {
	if r.wanted[image]--; r.wanted[image] > 0 {
		return
	}
	delete(r.wanted, image)
	if err := os.Remove(file(r.pulling, image)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("Failed to remove the record of an image pull in progress", "image", image, "err", err)
	}
}

// Pulled records with which credential an image was pulled: a secret, a service account, or the
// node's credentials. It must follow each Begin whose pull succeeds.
func (r *Records) Pulled(image, id string, with credential) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.add(image, id, with); err != nil {
		r.log.Warn("Failed to write the record of an image pull", "image", image, "err", err)
		return // the record of Begin stays, so that pods still need credentials for the image
	}
	r.end(image)
}

// add adds a credential to the record of an image. The caller holds r.mu.
func (r *Records) add(image, id string, with credential) error {
	record, found := r.read(id)
	if !found {
		record = kubeletconfig.ImagePulledRecord{TypeMeta: typeOf("ImagePulledRecord"), ImageRef: id}
	}
	if record.CredentialMapping == nil {
		record.CredentialMapping = map[string]kubeletconfig.ImagePullCredentials{}
	}
	name := bare(image)
	has := record.CredentialMapping[name]
	switch {
	case has.NodePodsAccessible:
		return nil
	case with.secret != nil:
		if slices.Contains(has.KubernetesSecrets, *with.secret) {
			return nil
		}
		has.KubernetesSecrets = append(slices.DeleteFunc(has.KubernetesSecrets,
			func(s kubeletconfig.ImagePullSecret) bool { return sameSecret(s, *with.secret) }), *with.secret)
	case with.account != nil:
		if slices.Contains(has.KubernetesServiceAccounts, *with.account) {
			return nil
		}
		has.KubernetesServiceAccounts = append(has.KubernetesServiceAccounts, *with.account)
	default:
		has = kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	}
	record.CredentialMapping[name] = has
	record.LastUpdatedTime = metav1.NewTime(r.clock.Now())
	return checkpoint.WriteDurably(file(r.pulled, id), record)
}

func sameSecret(a, b kubeletconfig.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// read reads the record of an image. A record that cannot be parsed counts as an empty record. The
// caller holds r.mu.
func (r *Records) read(id string) (kubeletconfig.ImagePulledRecord, bool) {
	record := kubeletconfig.ImagePulledRecord{}
	found, err := checkpoint.Read(file(r.pulled, id), &record)
	if err != nil {
		r.log.Warn("Failed to read the record of an image", "image", id, "err", err)
		return kubeletconfig.ImagePulledRecord{TypeMeta: typeOf("ImagePulledRecord"), ImageRef: id}, true
	}
	return record, found
}

// MayUse reports whether a pod with these credentials may use an image that is on the node, without
// pulling it.
func (r *Records) MayUse(image, id string, credentials func() []credential) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, found := r.read(id)
	if !r.verifies(image, found) {
		return true
	}
	has := record.CredentialMapping[bare(image)]
	if has.NodePodsAccessible {
		return true
	}
	if len(has.KubernetesSecrets)+len(has.KubernetesServiceAccounts) == 0 {
		return false
	}
	for _, mine := range credentials() {
		if !covers(has, mine) {
			continue
		}
		// Record this credential too, because the matching secret may change later.
		if len(has.KubernetesSecrets) < maxSecrets {
			if err := r.add(image, id, mine); err != nil {
				r.log.Warn("Failed to record the credentials of an image", "image", image, "err", err)
			}
		}
		return true
	}
	return false
}

// covers reports whether an image was pulled with the same secret as mine, with another secret of
// the same content, or for the same service account.
func covers(has kubeletconfig.ImagePullCredentials, mine credential) bool {
	if mine.account != nil {
		return slices.Contains(has.KubernetesServiceAccounts, *mine.account)
	}
	return mine.secret != nil && slices.ContainsFunc(has.KubernetesSecrets, func(s kubeletconfig.ImagePullSecret) bool {
		return sameSecret(s, *mine.secret) || s.CredentialHash == mine.secret.CredentialHash
	})
}

// verifies reports whether the policy requires credentials for the image. recorded says whether the
// image has a record of a completed pull. The caller holds r.mu.
func (r *Records) verifies(image string, recorded bool) bool {
	switch r.policy {
	case kubeletconfig.NeverVerify:
		return false
	case kubeletconfig.AlwaysVerify:
		return true
	case kubeletconfig.NeverVerifyAllowlistedImages:
		name := bare(image)
		return !slices.ContainsFunc(r.allowed, func(a string) bool {
			return name == a || strings.HasSuffix(a, "/") && strings.HasPrefix(name, a)
		})
	}
	_, err := os.Stat(file(r.pulling, image))
	return recorded || err == nil
}

// Prune removes the records of images that are not among ids, which are the images that were on the
// node at the given time. It keeps records that were written after that time.
func (r *Records) Prune(ids []string, at time.Time) {
	keep := map[string]bool{}
	for _, id := range ids {
		keep[file(r.pulled, id)] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list, err := filepath.Glob(filepath.Join(r.pulled, "sha256-*"))
	if err != nil {
		return // the only error of Glob is an invalid pattern, and this one is valid
	}
	for _, path := range list {
		record := kubeletconfig.ImagePulledRecord{}
		if _, err := checkpoint.Read(path, &record); err != nil || keep[path] || !record.LastUpdatedTime.Time.Before(at) {
			continue
		}
		if err := os.Remove(path); err != nil {
			r.log.Warn("Failed to remove the record of an image", "image", record.ImageRef, "err", err)
		}
	}
}
