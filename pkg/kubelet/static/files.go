// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/kubelet/objects"
	"keelson.dev/keelson/pkg/kubelet/source"
)

// maxFile is the maximum size of a pod's file in bytes.
const maxFile = 1 << 20

// read returns the pods of a file, or of all files in a directory except hidden ones. The keys are
// "namespace/name". The result bad joins the errors of files in the directory that are not valid
// pods. A path that does not exist has no pods.
func read(from, node string) (pods map[string]*v1.Pod, bad, err error) {
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	pods = map[string]*v1.Pod{}
	if !info.IsDir() {
		pod, err := readPod(from, node)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", from, err)
		}
		pods[key(pod)] = pod
		return pods, nil, nil
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}
		file := filepath.Join(from, e.Name())
		pod, err := readPod(file, node)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
			continue
		}
		if name := key(pod); pods[name] == nil {
			pods[name] = pod
		} else {
			errs = append(errs, fmt.Errorf("%s: another file has the pod %s", file, name))
		}
	}
	return pods, errors.Join(errs...), nil
}

func key(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

func readPod(file, node string) (*v1.Pod, error) {
	// To open another kind of file may block, as a named pipe does.
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, errors.New("file is too large")
	}
	return decode(b, origin{source.File, file}, node)
}

// origin is the source of a static pod: the kind (File or HTTP), and the path or URL.
type origin struct{ source, at string }

// decode parses a pod as YAML or JSON and sets its defaults for the node.
func decode(b []byte, from origin, node string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict(b, pod); err != nil {
		return nil, err
	}
	switch {
	case pod.APIVersion != "v1" || pod.Kind != "Pod":
		return nil, fmt.Errorf("is %q %q, not v1 Pod", pod.APIVersion, pod.Kind)
	case pod.Name == "":
		return nil, errors.New("invalid pod: name is needed for the pod")
	}
	pod.TypeMeta = metav1.TypeMeta{}
	pod.Status = v1.PodStatus{Phase: v1.PodPending}
	podspec.DefaultPod(pod)
	if pod.UID == "" {
		uid, err := hash(pod, from, node)
		if err != nil {
			return nil, err
		}
		pod.UID = uid
	}
	pod.Name += "-" + node
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = node
	pod.Annotations = maps.Clone(pod.Annotations)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[source.AnnotationHash] = string(pod.UID)
	pod.Annotations[source.AnnotationSource] = from.source
	// Taints for problems of the node must not evict a static pod, because no controller would
	// create it again.
	pod.Spec.Tolerations = append(pod.Spec.Tolerations,
		v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	errs := validateMeta(&pod.ObjectMeta, field.NewPath("metadata"))
	errs = append(errs, podspec.ValidateSpec(context.Background(), &pod.Spec, &pod.ObjectMeta, field.NewPath("spec"))...)
	if len(errs) > 0 {
		return nil, fmt.Errorf("invalid pod: %w", errs.ToAggregate())
	}
	if what := reference(pod); what != "" {
		return nil, fmt.Errorf("static pods may not reference %s", what)
	}
	return pod, nil
}

// validateMeta validates the namespace, name and UID, which become parts of directory names on the
// node.
func validateMeta(meta *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(name, value string, reasons []string) {
		for _, reason := range reasons {
			errs = append(errs, field.Invalid(at.Child(name), value, reason))
		}
	}
	check("name", meta.Name, validation.IsDNS1123Subdomain(meta.Name))
	check("namespace", meta.Namespace, validation.IsDNS1123Label(meta.Namespace))
	check("uid", string(meta.UID), path.IsValidPathSegmentName(string(meta.UID)))
	return errs
}

// hash returns a hash of the pod, its source and the node. It is used as the pod's UID, so that
// each version of a static pod has its own UID.
func hash(pod *v1.Pod, from origin, node string) (types.UID, error) {
	b, err := json.Marshal(pod)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	h := fnv.New128a()
	_, _ = h.Write(b)
	_, _ = fmt.Fprintf(h, "host:%s%s:%s", node,
		map[string]string{source.File: "file", source.HTTP: "url"}[from.source], from.at)
	return types.UID(hex.EncodeToString(h.Sum(nil))), nil
}

// reference returns the kind of an API object to which the pod refers, or "" if it refers to none.
func reference(pod *v1.Pod) string {
	if pod.Spec.ServiceAccountName != "" {
		return "serviceaccounts"
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		return "resourceclaims"
	}
	for ref := range objects.References(pod) {
		if ref.Kind == objects.KindSecret {
			return "secrets"
		}
		return "configmaps"
	}
	for i := range pod.Spec.Volumes {
		if what := volumeReference(&pod.Spec.Volumes[i]); what != "" {
			return what
		}
	}
	return ""
}

// volumeReference returns the kind of the API object to which a volume refers, or "". It does not
// look for Secrets and ConfigMaps.
func volumeReference(v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims"
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)"
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)"
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)"
	case v.Projected == nil:
		return ""
	}
	for _, s := range v.Projected.Sources {
		switch {
		case s.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case s.ServiceAccountToken != nil:
			return "serviceaccounts"
		case s.PodCertificate != nil:
			return "podcertificates"
		}
	}
	return ""
}
