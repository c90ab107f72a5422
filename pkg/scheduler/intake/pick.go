// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/transcode"
)

// Fields of a pod that no plugin reads. Most of them are only for the kubelet.
var (
	uselessInSpec = []string{
		"dnsConfig", "ephemeralContainers", "hostAliases", "imagePullSecrets", "securityContext",
		"serviceAccount", "serviceAccountName",
		"terminationGracePeriodSeconds",
	}
	uselessInContainers = []string{
		"args", "command", "env", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "securityContext",
		"startupProbe",
		"terminationMessagePath", "terminationMessagePolicy", "volumeDevices", "volumeMounts", "workingDir",
	}
	uselessInStatus = []string{"ephemeralContainerStatuses", "hostIP", "hostIPs", "podIP", "podIPs", "qosClass",
		"message", "reason"}
)

// apartInSpec has the fields of the spec that often differ between pods of one controller. The Reader
// decodes them for each pod. It decodes the other fields of the spec only once for all pods in which
// all of these other fields are equal, and these pods share the result.
var apartInSpec = []string{"nodeName", "hostname", "volumes"}

// pickers extract parts of an encoded pod.
type pickers struct {
	own     *transcode.Picker // fields that differ between pods, except volumes
	volumes *transcode.Picker
	labels  *transcode.Picker
	owners  *transcode.Picker
	spec    *transcode.Picker // fields that pods of one controller share
	has     *transcode.Picker // resources in container statuses; in most pods they equal the requests
}

func newPickers() (*pickers, error) {
	var out pickers
	types := transcode.NewTypes()
	own := []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion",
		"metadata.generation", "metadata.annotations",
		"metadata.creationTimestamp", "metadata.deletionTimestamp", "spec.nodeName", "spec.hostname",
	}
	own = append(own, fields[v1.PodStatus]("status.", uselessInStatus, "containerStatuses", "initContainerStatuses")...)
	var has []string
	for _, statuses := range []string{"status.containerStatuses.", "status.initContainerStatuses."} {
		for _, f := range []string{"name", "resources", "allocatedResources"} {
			has = append(has, statuses+f)
		}
	}
	spec := fields[v1.PodSpec]("spec.", uselessInSpec,
		append(slices.Clone(apartInSpec), "containers", "initContainers")...)
	for _, containers := range []string{"spec.containers.", "spec.initContainers."} {
		spec = append(spec, fields[v1.Container](containers, uselessInContainers)...)
	}
	for into, paths := range map[**transcode.Picker][]string{
		&out.own: own, &out.spec: spec, &out.has: has, &out.volumes: {"spec.volumes"},
		&out.labels: {"metadata.labels"}, &out.owners: {"metadata.ownerReferences"},
	} {
		p, err := types.Picker(&v1.Pod{}, paths...)
		if err != nil {
			return nil, fmt.Errorf("parts of a pod: %w", err)
		}
		*into = p
	}
	return &out, nil
}

// fields returns the paths of all fields of type T, except those in the argument without, followed
// by the paths in the argument more.
func fields[T any](prefix string, without []string, more ...string) []string {
	var out []string
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !slices.Contains(without, name) && !slices.Contains(more, name) {
			out = append(out, prefix+name)
		}
	}
	return out
}

// Protobuf field numbers on the path from a pod to the kind of a volume.
const (
	specNumber, volumesNumber, sourceNumber protowire.Number = 2, 1, 2
)

// plainVolumes has the protobuf field numbers of the kinds of volumes that no plugin reads.
var plainVolumes = plainVolumeNumbers()

func plainVolumeNumbers() map[protowire.Number]bool {
	plain := []string{"configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"}
	out := map[protowire.Number]bool{}
	for f := range reflect.TypeFor[v1.VolumeSource]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !slices.Contains(plain, name) {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(f.Tag.Get("protobuf"), "bytes,%d,", &n); err != nil {
			panic("intake: field " + f.Name + " has no number") // cannot happen: the types are part of the program
		}
		out[protowire.Number(n)] = true
	}
	return out
}

// matters reports whether the encoded pod has a volume of a kind that a plugin reads.
func matters(raw []byte) bool {
	return some(raw, specNumber, func(spec []byte) bool {
		return some(spec, volumesNumber, func(volume []byte) bool {
			return some(volume, sourceNumber, func(source []byte) bool {
				return some(source, 0, nil)
			})
		})
	})
}

// some reports whether the given function returns true for a field of the message with the given
// number. If number is 0, it reports whether the message has a field that is not in plainVolumes.
func some(raw []byte, number protowire.Number, is func([]byte) bool) bool {
	for len(raw) > 0 {
		n, typ, tag := protowire.ConsumeTag(raw)
		if tag < 0 {
			return true // let the decoder report the malformed message
		}
		size := protowire.ConsumeFieldValue(n, typ, raw[tag:])
		if size < 0 {
			return true
		}
		switch {
		case number == 0:
			if !plainVolumes[n] {
				return true
			}
		case n == number && typ == protowire.BytesType:
			if value, _ := protowire.ConsumeBytes(raw[tag:]); is(value) {
				return true
			}
		}
		raw = raw[tag+size:]
	}
	return false
}

// isPlain reports whether v has a kind that no plugin reads.
func isPlain(v v1.Volume) bool {
	return v.ConfigMap != nil || v.DownwardAPI != nil || v.EmptyDir != nil || v.HostPath != nil ||
		v.Projected != nil || v.Secret != nil
}
