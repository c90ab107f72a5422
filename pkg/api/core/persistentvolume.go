// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// persistentVolumeRow returns the row of the kind table for the resource persistentvolumes.
func persistentVolumeRow() *resource.Row {
	parts := strategy.Parts[corev1.PersistentVolume, corev1.PersistentVolumeSpec,
		corev1.PersistentVolumeStatus](func(o *corev1.PersistentVolume) (*corev1.PersistentVolumeSpec,
		*corev1.PersistentVolumeStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[corev1.PersistentVolumeList](resource.Kind[*corev1.PersistentVolume]{
		Group: "", Version: "v1", Resource: "persistentvolumes", Kind: "PersistentVolume",
		ShortNames: []string{"pv"},

		Default:                  defaultPersistentVolume,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            preparePersistentVolumeCreate,
		Validate:                 validateNewVolume,
		PrepareUpdate:            parts.KeepStatus,
		ValidateUpdate:           validatePersistentVolumeUpdate,
		Warnings:                 warnPersistentVolume,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Capacity", Type: "string", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["capacity"]},
			{Name: "Access Modes", Type: "string", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["accessModes"]},
			{Name: "Reclaim Policy", Type: "string",
				Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["persistentVolumeReclaimPolicy"]},
			{Name: "Status", Type: "string", Description: corev1.PersistentVolumeStatus{}.SwaggerDoc()["phase"]},
			{Name: "Claim", Type: "string", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["claimRef"]},
			{Name: "StorageClass", Type: "string", Description: "StorageClass of the pv"},
			{Name: "VolumeAttributesClass", Type: "string", Description: "VolumeAttributesClass of the pv"},
			{Name: "Reason", Type: "string", Description: corev1.PersistentVolumeStatus{}.SwaggerDoc()["reason"]},
			column.Age(),
			{Name: "VolumeMode", Type: "string",
				Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["volumeMode"], Priority: column.Wide},
		},
		Cells: persistentVolumeCells,

		Subresources: []resource.Sub[*corev1.PersistentVolume]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: preparePersistentVolumeStatus},
		},
	})
}

func defaultPersistentVolume(pv *corev1.PersistentVolume) {
	unset.Fill(&pv.Status.Phase, corev1.VolumePending)
	unset.Fill(&pv.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	unset.Point(&pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	podspec.Milli(pv.Spec.Capacity)
	podspec.DefaultPersistentSource(&pv.Spec.PersistentVolumeSource)
}

func preparePersistentVolumeCreate(_ context.Context, pv *corev1.PersistentVolume) {
	created := pv.CreationTimestamp
	pv.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &created}
}

// preparePersistentVolumeStatus keeps the spec. If the phase changes, it sets
// lastPhaseTransitionTime to the current time unless the client has set a new time.
func preparePersistentVolumeStatus(ctx context.Context, pv, old *corev1.PersistentVolume) {
	pv.Spec = old.Spec
	stamp, was := pv.Status.LastPhaseTransitionTime, old.Status.LastPhaseTransitionTime
	switch samePhase := pv.Status.Phase == old.Status.Phase; {
	case samePhase && stamp == nil:
		pv.Status.LastPhaseTransitionTime = was
	case !samePhase && (stamp == nil || stamp.Equal(was)):
		now := resource.Time(ctx)
		pv.Status.LastPhaseTransitionTime = &now
	}
}

func validatePersistentVolume(_ context.Context, pv *corev1.PersistentVolume) field.ErrorList {
	var r report.Report
	spec, at := &pv.Spec, field.NewPath("spec")
	podspec.ValidateAccessModes(&r, spec.AccessModes, at.Child("accessModes"))
	if len(spec.Capacity) == 0 {
		r.Required(at.Child("capacity"), "")
	}
	if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		r.Add(field.NotSupported(at.Child("capacity"), spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range report.Keys(spec.Capacity) {
		value := spec.Capacity[name]
		key := at.Child("capacity").Key(string(name))
		checkNotNegative(&r, key, value)
		if value.Sign() <= 0 {
			r.Invalid(key, value.String(), "must be greater than zero")
		}
	}
	if p := spec.PersistentVolumeReclaimPolicy; p != "" {
		report.OneOf(&r, at.Child("persistentVolumeReclaimPolicy"), p,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	}
	checkVolumeAffinity(&r, spec, at.Child("nodeAffinity"))
	ValidateVolumeSource(&r, pv.Name, spec, at)
	if name := spec.StorageClassName; name != "" {
		r.Each(at.Child("storageClassName"), name, naming.NameIsDNSSubdomain(name, false))
	}
	if mode := spec.VolumeMode; mode != nil {
		report.OneOf(&r, at.Child("volumeMode"), *mode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	}
	checkAttributesClass(&r, spec, at)
	return r.Errors
}

// validateNewVolume validates a new volume, including the annotation with mount options.
func validateNewVolume(ctx context.Context, pv *corev1.PersistentVolume) field.ErrorList {
	return append(validatePersistentVolume(ctx, pv), checkMountAnnotation(pv)...)
}

// checkMountAnnotation rejects the annotation with mount options if the type of volume does not
// support mount options. Clients used the annotation before the field for mount options existed.
func checkMountAnnotation(pv *corev1.PersistentVolume) field.ErrorList {
	s := &pv.Spec.PersistentVolumeSource
	takes := s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil ||
		s.NFS != nil || s.RBD != nil ||
		s.Quobyte != nil || s.ISCSI != nil || s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil ||
		s.VsphereVolume != nil ||
		s.AzureDisk != nil || s.PhotonPersistentDisk != nil
	if _, said := pv.Annotations[corev1.MountOptionAnnotation]; !said || takes {
		return nil
	}
	return field.ErrorList{
		field.Forbidden(field.NewPath("metadata").Child("annotations", corev1.MountOptionAnnotation),
			"may not specify mount options for this volume type")}
}

func checkVolumeAffinity(r *report.Report, spec *corev1.PersistentVolumeSpec, at *field.Path) {
	if spec.NodeAffinity == nil {
		return
	}
	if spec.NodeAffinity.Required == nil {
		r.Required(at.Child("required"), "must specify required node constraints")
		return
	}
	r.Add(podspec.ValidateNodeSelector(spec.NodeAffinity.Required, at.Child("required"))...)
}

func checkAttributesClass(r *report.Report, spec *corev1.PersistentVolumeSpec, at *field.Path) {
	class := spec.VolumeAttributesClassName
	if class == nil {
		return
	}
	if *class == "" {
		r.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed")
	} else {
		r.Each(at.Child("volumeAttributesClassName"), *class, naming.NameIsDNSSubdomain(*class, false))
	}
	if spec.CSI == nil {
		r.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName")
	}
}

func validatePersistentVolumeUpdate(ctx context.Context, pv, old *corev1.PersistentVolume) field.ErrorList {
	r := report.Report{Errors: validateNewVolume(ctx, pv)}
	source := pv.Spec.PersistentVolumeSource.DeepCopy()
	if was := old.Spec.CSI; was != nil && was.ControllerExpandSecretRef == nil && source.CSI != nil {
		source.CSI.ControllerExpandSecretRef = nil
	}
	if !equality.Semantic.DeepEqual(*source, old.Spec.PersistentVolumeSource) {
		r.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v",
				diff.Diff(old.Spec.PersistentVolumeSource, *source)))
	}
	r.Immutable(field.NewPath("volumeMode"), pv.Spec.VolumeMode, old.Spec.VolumeMode)
	if old.Spec.NodeAffinity != nil && !sameAffinity(pv.Spec.NodeAffinity, old.Spec.NodeAffinity) {
		r.Invalid(field.NewPath("nodeAffinity"), pv.Spec.NodeAffinity, apivalidation.FieldImmutableErrorMsg+
			", except for updating from beta label to GA")
	}
	if old.Spec.VolumeAttributesClassName != nil && pv.Spec.VolumeAttributesClassName == nil {
		r.Forbidden(field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
	}
	return r.Errors
}

// sameAffinity reports whether the node affinity is unchanged. A change from a deprecated label,
// such as failure-domain.beta.kubernetes.io/zone, to the label that replaced it does not count.
func sameAffinity(affinity, old *corev1.VolumeNodeAffinity) bool {
	was := old.DeepCopy()
	if affinity != nil && affinity.Required != nil && was.Required != nil {
		for i := range min(len(affinity.Required.NodeSelectorTerms), len(was.Required.NodeSelectorTerms)) {
			renameLabels(affinity.Required.NodeSelectorTerms[i].MatchExpressions,
				was.Required.NodeSelectorTerms[i].MatchExpressions)
		}
	}
	return equality.Semantic.DeepEqual(affinity, was)
}

func renameLabels(is, was []corev1.NodeSelectorRequirement) {
	today := map[string]string{
		corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
		corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		"beta." + corev1.LabelOSStable:      corev1.LabelOSStable,
		"beta." + corev1.LabelArchStable:    corev1.LabelArchStable,
		corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	}
	for i := range min(len(is), len(was)) {
		// If the stored key is not a deprecated label, the lookup returns "". So an empty new key
		// also replaces the stored key here, but another check rejects empty keys.
		if is[i].Key == today[was[i].Key] {
			was[i].Key = is[i].Key
		}
	}
}

// namesGroup reports whether the data source of a stored claim has an API group. If it has one, an
// update does not validate the group again.
func namesGroup(spec *corev1.PersistentVolumeClaimSpec) bool {
	return spec.DataSource != nil && spec.DataSource.APIGroup != nil || spec.DataSourceRef != nil &&
		spec.DataSourceRef.APIGroup != nil
}

// ValidateVolumeSource validates the source of a persistent volume. The argument name is the name
// of the volume, and the argument at is the path of its spec.
func ValidateVolumeSource(r *report.Report, name string, spec *corev1.PersistentVolumeSpec, at *field.Path) {
	v, s := &spec.PersistentVolumeSource, &podspec.Sources{Report: r, Path: at}
	s.One("hostPath", v.HostPath != nil, func(p *field.Path) { r.Add(podspec.ValidateHostPath(v.HostPath, p)...) })
	s.GCE(v.GCEPersistentDisk)
	s.EBS(v.AWSElasticBlockStore)
	s.One("glusterfs", v.Glusterfs != nil, func(p *field.Path) { checkGlusterfs(r, v.Glusterfs, p) })
	s.Flocker(v.Flocker)
	s.NFS(v.NFS)
	s.RBD(v.RBD != nil, func() []string { return v.RBD.CephMonitors }, func() string { return v.RBD.RBDImage })
	s.Quobyte(v.Quobyte)
	s.CephFS(v.CephFS != nil, func() []string { return v.CephFS.Monitors })
	s.One("iscsi", v.ISCSI != nil, func(p *field.Path) { checkISCSI(s, name, v.ISCSI, p) })
	s.One("cinder", v.Cinder != nil, func(p *field.Path) {
		require(r, p.Child("volumeID"), v.Cinder.VolumeID)
		if ref := v.Cinder.SecretRef; ref != nil {
			s.NamespacedSecret(p, ref.Name, ref.Namespace)
		}
	})
	s.FC(v.FC)
	if v.FlexVolume != nil { // checked even if there is another source
		s.Found = true
		s.Flex(at.Child("flexVolume"), v.FlexVolume.Driver, v.FlexVolume.Options)
	}
	s.One("azureFile", v.AzureFile != nil, func(p *field.Path) {
		require(r, p.Child("secretName"), v.AzureFile.SecretName)
		require(r, p.Child("shareName"), v.AzureFile.ShareName)
		if namespace := v.AzureFile.SecretNamespace; namespace != nil {
			require(r, p.Child("secretNamespace"), *namespace)
		}
	})
	s.Vsphere(v.VsphereVolume)
	s.Photon(v.PhotonPersistentDisk)
	s.Portworx(v.PortworxVolume)
	s.AzureDisk(v.AzureDisk)
	s.One("scaleIO", v.ScaleIO != nil, func(p *field.Path) {
		s.ScaleIO(p, v.ScaleIO.Gateway, v.ScaleIO.System, v.ScaleIO.VolumeName)
	})
	s.One("local", v.Local != nil, func(p *field.Path) {
		require(r, p.Child("path"), v.Local.Path)
		r.Add(podspec.ValidateNoBackstep(v.Local.Path, p.Child("path"))...)
		if spec.NodeAffinity == nil {
			r.Required(at.Child("nodeAffinity"), "Local volume requires node affinity")
		}
	})
	s.One("storageos", v.StorageOS != nil, func(p *field.Path) {
		s.StorageOS(p, v.StorageOS.VolumeName, v.StorageOS.VolumeNamespace)
		if ref := v.StorageOS.SecretRef; ref != nil {
			s.NamespacedSecret(p, ref.Name, ref.Namespace)
		}
	})
	s.One("csi", v.CSI != nil, func(p *field.Path) { checkCSISource(r, v.CSI, p) })
	if !s.Found {
		r.Required(at, "must specify a volume type")
	}
	if v.HostPath != nil && path.Clean(v.HostPath.Path) == "/" &&
		spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		r.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
}

func require(r *report.Report, path *field.Path, value string) {
	if value == "" {
		r.Required(path, "")
	}
}

func checkGlusterfs(r *report.Report, v *corev1.GlusterfsPersistentVolumeSource, at *field.Path) {
	require(r, at.Child("endpoints"), v.EndpointsName)
	require(r, at.Child("path"), v.Path)
	switch namespace := v.EndpointsNamespace; {
	case namespace == nil:
	case *namespace == "":
		r.Invalid(at.Child("endpointsNamespace"), *namespace,
			"if the endpointnamespace is set, it must be a valid namespace name")
	default:
		r.Label(at.Child("endpointsNamespace"), *namespace)
	}
}

func checkISCSI(s *podspec.Sources, name string, v *corev1.ISCSIPersistentVolumeSource, at *field.Path) {
	require(s.Report, at.Child("targetPortal"), v.TargetPortal)
	if !podspec.ISCSIFits(name, v.TargetPortal, v.InitiatorName) {
		s.Report.Invalid(at.Child("targetportal"), v.TargetPortal, podspec.ISCSITooLong)
	}
	s.ISCSI(at, v.IQN, v.Lun, (v.DiscoveryCHAPAuth || v.SessionCHAPAuth) && v.SecretRef == nil, podspec.AnyISCSIForm)
	if v.SecretRef != nil {
		require(s.Report, at.Child("secretRef", "name"), v.SecretRef.Name)
	}
	s.ISCSIInitiator(at, v.InitiatorName, podspec.AnyISCSIForm)
}

func checkCSISource(r *report.Report, v *corev1.CSIPersistentVolumeSource, at *field.Path) {
	r.Add(podspec.ValidateDriverName(v.Driver, at.Child("driver"))...)
	require(r, at.Child("volumeHandle"), v.VolumeHandle)
	for _, s := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", v.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", v.ControllerExpandSecretRef},
		{"nodePublishSecretRef", v.NodePublishSecretRef}, {"nodeExpandSecretRef", v.NodeExpandSecretRef},
	} {
		if s.ref == nil {
			continue
		}
		if s.ref.Name == "" {
			r.Required(at.Child(s.name, "name"), "")
		} else {
			r.Subdomain(at.Child(s.name, "name"), s.ref.Name)
		}
		r.RequiredLabel(at.Child(s.name, "namespace"), s.ref.Namespace)
	}
}

func warnPersistentVolume(_ context.Context, pv, _ *corev1.PersistentVolume) []string {
	var warnings []string
	for _, a := range []struct{ key, message string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, there := pv.Annotations[a.key]; there {
			warnings = append(warnings, field.NewPath("metadata", "annotations").Key(a.key).String()+": "+a.message)
		}
	}
	spec := field.NewPath("spec")
	if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warnings = append(warnings, spec.Child("persistentVolumeReclaimPolicy").String()+
			": The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i := range a.Required.NodeSelectorTerms {
			warnings = append(warnings, podspec.WarnOfNodeTerm(&a.Required.NodeSelectorTerms[i], false,
				spec.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i))...)
		}
	}
	return append(warnings, podspec.WarnOfPersistentSource(&pv.Spec.PersistentVolumeSource, spec)...)
}

func persistentVolumeCells(pv *corev1.PersistentVolume, env resource.CellEnv) []any {
	claim := ""
	if ref := pv.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	phase := string(pv.Status.Phase)
	if pv.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	return []any{
		pv.Name, size.String(), accessModes(pv.Spec.AccessModes), string(pv.Spec.PersistentVolumeReclaimPolicy), phase, claim,
		storageClass(pv.Annotations, &pv.Spec.StorageClassName),
		column.Deref(pv.Spec.VolumeAttributesClassName, column.Unset),
		pv.Status.Reason, env.Age(pv.CreationTimestamp), column.Deref(pv.Spec.VolumeMode, column.Unset),
	}
}

// storageClass returns the name of the storage class. If the beta annotation is set, it takes
// precedence over the field.
func storageClass(annotations map[string]string, name *string) string {
	if class, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if name == nil {
		return ""
	}
	return *name
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var texts []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		text string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			texts = append(texts, m.text)
		}
	}
	return strings.Join(texts, ",")
}
