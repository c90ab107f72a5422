// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

// checkVolumes judges the volumes and remembers those without fault.
func (c *check) checkVolumes(path *field.Path) {
	made := sets.New[string]()
	if c.meta != nil && c.meta.Name != "" {
		for i := range c.spec.Volumes {
			if v := &c.spec.Volumes[i]; v.Ephemeral != nil {
				made.Insert(c.meta.Name + "-" + v.Name)
			}
		}
	}
	for i := range c.spec.Volumes {
		volume, at := &c.spec.Volumes[i], path.Index(i)
		before := len(c.Errors)
		c.checkSource(volume, at)
		c.RequiredLabel(at.Child("name"), volume.Name)
		if _, ok := c.volumes[volume.Name]; ok {
			c.Duplicate(at.Child("name"), volume.Name)
		}
		if len(c.Errors) == before {
			c.volumes[volume.Name] = &volume.VolumeSource
		}
		if claim := volume.PersistentVolumeClaim; claim != nil && made.Has(claim.ClaimName) {
			c.Invalid(at.Child("persistentVolumeClaim", "claimName"), claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	}
}

const oneVolumeType = "may not specify more than 1 volume type"

// checkSource judges the one source of a volume.
func (c *check) checkSource(v *corev1.Volume, path *field.Path) {
	found := false
	one := func(name string, set bool, judge func(*field.Path)) {
		if !set {
			return
		}
		if found {
			c.Forbidden(path.Child(name), oneVolumeType)
			return
		}
		found = true
		judge(path.Child(name))
	}
	one("emptyDir", v.EmptyDir != nil, func(at *field.Path) {
		if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			c.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	})
	one("hostPath", v.HostPath != nil, func(at *field.Path) { c.Add(ValidateHostPath(v.HostPath, at)...) })
	one("secret", v.Secret != nil, func(at *field.Path) {
		if v.Secret.SecretName == "" {
			c.Required(at.Child("secretName"), "")
		}
		c.checkMode(v.Secret.DefaultMode, at.Child("defaultMode"))
		c.checkItems(v.Secret.Items, at.Child("items"))
	})
	c.checkNetworkSource(v, one)
	one("persistentVolumeClaim", v.PersistentVolumeClaim != nil, func(at *field.Path) {
		if v.PersistentVolumeClaim.ClaimName == "" {
			c.Required(at.Child("claimName"), "")
		}
	})
	one("downwardAPI", v.DownwardAPI != nil, func(at *field.Path) {
		c.checkMode(v.DownwardAPI.DefaultMode, at.Child("defaultMode"))
		for i := range v.DownwardAPI.Items {
			c.checkDownwardFile(&v.DownwardAPI.Items[i], at)
		}
	})
	one("configMap", v.ConfigMap != nil, func(at *field.Path) {
		if v.ConfigMap.Name == "" {
			c.Required(at.Child("name"), "")
		}
		c.checkMode(v.ConfigMap.DefaultMode, at.Child("defaultMode"))
		c.checkItems(v.ConfigMap.Items, at.Child("items"))
	})
	one("projected", v.Projected != nil, func(at *field.Path) {
		c.checkMode(v.Projected.DefaultMode, at.Child("defaultMode"))
		c.checkProjected(v.Projected, at)
	})
	one("csi", v.CSI != nil, func(at *field.Path) { c.checkCSI(v.CSI, at) })
	one("ephemeral", v.Ephemeral != nil, func(at *field.Path) { c.checkEphemeralVolume(v, at, path) })
	one("image", v.Image != nil, func(at *field.Path) {
		if c.isPod() && v.Image.Reference == "" {
			c.Required(at.Child("reference"), "")
		}
		c.checkPullPolicy(v.Image.PullPolicy, at.Child("pullPolicy"))
	})
	if !found {
		c.Required(path, "must specify a volume type")
	}
}

// ValidateHostPath judges a path of the node.
func ValidateHostPath(h *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	var r report.Report
	if h.Path == "" {
		r.Required(path.Child("path"), "")
		return r.Errors
	}
	if hasBackstep(h.Path) {
		r.Invalid(path.Child("path"), h.Path, "must not contain '..'")
	}
	if h.Type != nil {
		report.OneOf(&r, path.Child("type"), *h.Type,
			corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
			corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
	}
	return r.Errors
}

func (c *check) checkMode(mode *int32, path *field.Path) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

func (c *check) checkItems(items []corev1.KeyToPath, path *field.Path) {
	for i := range items {
		c.checkItem(&items[i], path.Index(i))
	}
}

func (c *check) checkItem(item *corev1.KeyToPath, at *field.Path) {
	if item.Key == "" {
		c.Required(at.Child("key"), "")
	}
	if item.Path == "" {
		c.Required(at.Child("path"), "")
	}
	c.checkFileName(item.Path, at.Child("path"))
	c.checkMode(item.Mode, at.Child("mode"))
}

func (c *check) checkDownwardFile(file *corev1.DownwardAPIVolumeFile, path *field.Path) {
	if file.Path == "" {
		c.Required(path.Child("path"), "")
	}
	c.checkFileName(file.Path, path.Child("path"))
	switch {
	case file.FieldRef != nil:
		c.checkFieldRef(file.FieldRef, fieldsForFiles(), path.Child("fieldRef"))
		if file.ResourceFieldRef != nil {
			c.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case file.ResourceFieldRef != nil:
		c.checkResourceRef(file.ResourceFieldRef, true, path.Child("resourceFieldRef"))
	default:
		c.Required(path, "one of fieldRef and resourceFieldRef is required")
	}
	c.checkMode(file.Mode, path.Child("mode"))
}

const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func (c *check) checkProjected(p *corev1.ProjectedVolumeSource, path *field.Path) {
	files := sets.New[string]()
	claim := func(file string, value any) {
		if file == "" {
			return
		}
		if files.Has(file) {
			c.Invalid(path, value, "conflicting duplicate paths")
		}
		files.Insert(file)
	}
	for i := range p.Sources {
		source, at, kinds := &p.Sources[i], path.Child("sources").Index(i), 0
		if s := source.Secret; s != nil {
			kinds++
			c.checkProjectedObject(s.Name, s.Items, at.Child("secret"), claim)
		}
		if s := source.ConfigMap; s != nil {
			kinds++
			c.checkProjectedObject(s.Name, s.Items, at.Child("configMap"), claim)
		}
		if s := source.DownwardAPI; s != nil {
			kinds++
			for j := range s.Items {
				c.checkDownwardFile(&s.Items[j], at.Child("downwardAPI"))
				claim(s.Items[j].Path, s.Items[j].Path)
			}
		}
		if s := source.ServiceAccountToken; s != nil {
			kinds++
			c.checkToken(s, at.Child("serviceAccountToken"), path)
		}
		if kinds > 1 {
			c.Forbidden(at, "may not specify more than 1 volume type per source")
		}
	}
}

func (c *check) checkProjectedObject(name string, items []corev1.KeyToPath, at *field.Path, claim func(string, any)) {
	if name == "" {
		c.Required(at.Child("name"), "")
	}
	for i := range items {
		c.checkItem(&items[i], at.Child("items").Index(i))
		claim(items[i].Path, name)
	}
}

func (c *check) checkToken(token *corev1.ServiceAccountTokenProjection, at, volume *field.Path) {
	seconds := int64(0)
	if token.ExpirationSeconds != nil {
		seconds = *token.ExpirationSeconds
	}
	if seconds < minTokenSeconds {
		c.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes")
	}
	if seconds > maxTokenSeconds {
		c.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds")
	}
	if token.Path == "" {
		c.Required(volume.Child("path"), "")
	} else {
		c.checkFileName(token.Path, volume.Child("path"))
	}
}

func (c *check) checkCSI(csi *corev1.CSIVolumeSource, at *field.Path) {
	c.Add(ValidateDriverName(csi.Driver, at.Child("driver"))...)
	if ref := csi.NodePublishSecretRef; ref != nil {
		if ref.Name == "" {
			c.Required(at.Child("nodePublishSecretRef", "name"), "")
		} else {
			c.Each(at.Child("name"), ref.Name, apivalidation.NameIsDNSSubdomain(ref.Name, false))
		}
	}
}

const maxDriverName = 63

// ValidateDriverName judges the name of a CSI driver.
func ValidateDriverName(name string, path *field.Path) field.ErrorList {
	var r report.Report
	if name == "" {
		r.Required(path, "")
		return r.Errors
	}
	if len(name) > maxDriverName {
		r.TooLong(path, maxDriverName)
	}
	r.Each(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
	return r.Errors
}

func (c *check) checkEphemeralVolume(v *corev1.Volume, at, volume *field.Path) {
	template := v.Ephemeral.VolumeClaimTemplate
	if template == nil {
		c.Required(at.Child("volumeClaimTemplate"), "")
	} else {
		path := at.Child("volumeClaimTemplate")
		c.Annotations(path.Child("metadata", "annotations"), template.Annotations)
		c.Labels(path.Child("metadata", "labels"), template.Labels)
		c.Add(ValidateClaimSpec(&template.Spec, path.Child("spec"))...)
	}
	if c.meta == nil || c.meta.Name == "" || v.Name == "" {
		return
	}
	name := c.meta.Name + "-" + v.Name
	for _, reason := range apivalidation.NameIsDNSSubdomain(name, false) {
		c.Invalid(volume.Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", name, reason))
	}
}
