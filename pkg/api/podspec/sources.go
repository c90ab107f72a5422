// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"net"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/unset"
)

// Sources validates the source of a volume. Exactly one of its fields must be set. It is for the
// volumes of pods and for persistent volumes, because many types of sources have the same rules in
// both. If pods and persistent volumes have different Go types for a source, the method takes the
// fields as parameters.
type Sources struct {
	Report *report.Report
	// Path is the path of the struct with the sources. Found becomes true when a source is set.
	Path  *field.Path
	Found bool
}

const oneVolumeType = "may not specify more than 1 volume type"

// One validates one source. The argument name is the name of its field. If the argument set is
// true, One calls validate, unless another source has already been found; then it reports an error.
func (s *Sources) One(name string, set bool, validate func(at *field.Path)) {
	s.oneAs(name, name, set, validate)
}

// oneAs does the same as One for a source that Kubernetes calls name in the error about several
// sources, and inside in errors about its fields.
func (s *Sources) oneAs(name, inside string, set bool, validate func(at *field.Path)) {
	switch {
	case !set:
	case s.Found:
		s.Report.Forbidden(s.Path.Child(name), oneVolumeType)
	default:
		s.Found = true
		validate(s.Path.Child(inside))
	}
}

// need reports the fields that are empty. fields are pairs of a name and a value.
func (s *Sources) need(at *field.Path, fields ...string) {
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			s.Report.Required(at.Child(fields[i]), "")
		}
	}
}

// GCE validates a Google persistent disk.
func (s *Sources) GCE(v *corev1.GCEPersistentDiskVolumeSource) {
	s.oneAs("gcePersistentDisk", "persistentDisk", v != nil, func(at *field.Path) {
		s.need(at, "pdName", v.PDName)
		s.partition(at, v.Partition)
	})
}

// EBS validates an Amazon EBS volume.
func (s *Sources) EBS(v *corev1.AWSElasticBlockStoreVolumeSource) {
	s.One("awsElasticBlockStore", v != nil, func(at *field.Path) {
		s.need(at, "volumeID", v.VolumeID)
		s.partition(at, v.Partition)
	})
}

func (s *Sources) partition(at *field.Path, n int32) {
	if n < 0 || n > 255 {
		s.Report.Invalid(at.Child("partition"), n, validation.InclusiveRangeError(1, 255))
	}
}

// NFS validates an NFS export.
func (s *Sources) NFS(v *corev1.NFSVolumeSource) {
	s.One("nfs", v != nil, func(at *field.Path) {
		s.need(at, "server", v.Server, "path", v.Path)
		if !path.IsAbs(v.Path) {
			s.Report.Invalid(at.Child("path"), v.Path, "must be an absolute path")
		}
	})
}

// Flocker validates a Flocker dataset.
func (s *Sources) Flocker(v *corev1.FlockerVolumeSource) {
	s.One("flocker", v != nil, func(at *field.Path) {
		switch {
		case v.DatasetName == "" && v.DatasetUUID == "":
			s.Report.Required(at, "one of datasetName and datasetUUID is required")
		case v.DatasetName != "" && v.DatasetUUID != "":
			s.Report.Invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously")
		}
		if strings.Contains(v.DatasetName, "/") {
			s.Report.Invalid(at.Child("datasetName"), v.DatasetName, "must not contain '/'")
		}
	})
}

// RBD validates a Ceph block device.
func (s *Sources) RBD(set bool, monitors func() []string, image func() string) {
	s.One("rbd", set, func(at *field.Path) {
		if len(monitors()) == 0 {
			s.Report.Required(at.Child("monitors"), "")
		}
		s.need(at, "image", image())
	})
}

// CephFS validates a Ceph file system.
func (s *Sources) CephFS(set bool, monitors func() []string) {
	s.oneAs("cephFS", "cephfs", set, func(at *field.Path) {
		if len(monitors()) == 0 {
			s.Report.Required(at.Child("monitors"), "")
		}
	})
}

// Quobyte validates a Quobyte volume.
func (s *Sources) Quobyte(v *corev1.QuobyteVolumeSource) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	s.One("quobyte", v != nil, func(at *field.Path) {
		switch {
		case v.Registry == "":
			s.Report.Required(at.Child("registry"), pairs)
		case len(v.Tenant) > 64:
			s.Report.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters")
		default:
			for pair := range strings.SplitSeq(v.Registry, ",") {
				if _, _, err := net.SplitHostPort(pair); err != nil {
					s.Report.Invalid(at.Child("registry"), v.Registry, pairs)
				}
			}
		}
		s.need(at, "volume", v.Volume)
	})
}

// FC validates a Fibre Channel volume.
func (s *Sources) FC(v *corev1.FCVolumeSource) {
	s.One("fc", v != nil, func(at *field.Path) {
		names := at.Child("targetWWNs")
		if len(v.TargetWWNs) == 0 && len(v.WWIDs) == 0 {
			s.Report.Required(names, "must specify either targetWWNs or wwids, but not both")
		}
		if len(v.TargetWWNs) > 0 && len(v.WWIDs) > 0 {
			s.Report.Invalid(names, v.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
		}
		switch {
		case len(v.TargetWWNs) == 0:
		case v.Lun == nil:
			s.Report.Required(at.Child("lun"), "lun is required if targetWWNs is specified")
		case *v.Lun < 0 || *v.Lun > 255:
			s.Report.Invalid(at.Child("lun"), v.Lun, validation.InclusiveRangeError(0, 255))
		}
	})
}

// Flex validates the driver and options of a flex volume.
func (s *Sources) Flex(at *field.Path, driver string, options map[string]string) {
	s.need(at, "driver", driver)
	for _, key := range report.Keys(options) {
		namespace, _, _ := strings.Cut(key, "/")
		namespace = "." + strings.ToLower(namespace)
		if strings.HasSuffix(namespace, ".kubernetes.io") || strings.HasSuffix(namespace, ".k8s.io") {
			s.Report.Invalid(at.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

// Vsphere validates a vSphere virtual disk.
func (s *Sources) Vsphere(v *corev1.VsphereVirtualDiskVolumeSource) {
	s.One("vsphereVolume", v != nil, func(at *field.Path) { s.need(at, "volumePath", v.VolumePath) })
}

// Photon validates a Photon persistent disk.
func (s *Sources) Photon(v *corev1.PhotonPersistentDiskVolumeSource) {
	s.One("photonPersistentDisk", v != nil, func(at *field.Path) { s.need(at, "pdID", v.PdID) })
}

// Portworx validates a Portworx volume.
func (s *Sources) Portworx(v *corev1.PortworxVolumeSource) {
	s.One("portworxVolume", v != nil, func(at *field.Path) { s.need(at, "volumeID", v.VolumeID) })
}

// AzureDisk validates an Azure disk.
func (s *Sources) AzureDisk(v *corev1.AzureDiskVolumeSource) {
	s.One("azureDisk", v != nil, func(at *field.Path) {
		s.need(at, "diskName", v.DiskName, "diskURI", v.DataDiskURI)
		if v.CachingMode != nil {
			report.OneOf(s.Report, at.Child("cachingMode"), *v.CachingMode,
				corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
		}
		if v.Kind == nil {
			return
		}
		report.OneOf(s.Report, at.Child("kind"), *v.Kind, corev1.AzureDedicatedBlobDisk,
			corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)
		begin, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
		if *v.Kind == corev1.AzureManagedDisk {
			begin, form = "/subscriptions/",
				"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
		}
		if !strings.HasPrefix(v.DataDiskURI, begin) {
			s.Report.Add(field.NotSupported(at.Child("diskURI"), v.DataDiskURI, []string{form}))
		}
	})
}

// ScaleIO validates a ScaleIO volume.
func (s *Sources) ScaleIO(at *field.Path, gateway, system, volume string) {
	s.need(at, "gateway", gateway, "system", system, "volumeName", volume)
}

// StorageOS validates a StorageOS volume.
func (s *Sources) StorageOS(at *field.Path, volume, namespace string) {
	s.Report.RequiredLabel(at.Child("volumeName"), volume)
	if namespace != "" {
		s.Report.Label(at.Child("volumeNamespace"), namespace)
	}
}

// Secret validates an optional reference to a secret. If it is set, it must have a name.
func (s *Sources) Secret(at *field.Path, ref *corev1.LocalObjectReference) {
	if ref != nil {
		s.need(at.Child("secretRef"), "name", ref.Name)
	}
}

// NamespacedSecret validates a reference to a secret, which must have a name and a namespace.
func (s *Sources) NamespacedSecret(at *field.Path, name, namespace string) {
	s.need(at.Child("secretRef"), "name", name, "namespace", namespace)
}

// ISCSI validates an iSCSI target. prefix is the message for a qualified name that begins with no
// known type, AnyISCSIPrefix in pods and AnyISCSIForm in persistent volumes.
func (s *Sources) ISCSI(at *field.Path, iqn string, lun int32, needsSecret bool, prefix string) {
	if iqn == "" {
		s.Report.Required(at.Child("iqn"), "")
	} else {
		s.qualifiedName(at.Child("iqn"), iqn, prefix)
	}
	if lun < 0 || lun > 255 {
		s.Report.Invalid(at.Child("lun"), lun, validation.InclusiveRangeError(0, 255))
	}
	if needsSecret {
		s.Report.Required(at.Child("secretRef"), "")
	}
}

// The messages for an iSCSI qualified name. AnyISCSIPrefix is for a name that begins with no known
// type. AnyISCSIForm is for a name that does not have the form of its type.
const (
	AnyISCSIPrefix = "must be valid format starting with iqn, eui, or naa"
	AnyISCSIForm   = "must be valid format"
)

func (s *Sources) qualifiedName(at *field.Path, name, prefix string) {
	form := ""
	switch {
	case strings.HasPrefix(name, "iqn"):
		form = `iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`
	case strings.HasPrefix(name, "eui"):
		form = `^eui.[[:alnum:]]{16}$`
	case strings.HasPrefix(name, "naa"):
		form = `^naa.[[:alnum:]]{32}$`
	default:
		s.Report.Invalid(at, name, prefix)
		return
	}
	if !regexp.MustCompile(form).MatchString(name) {
		s.Report.Invalid(at, name, AnyISCSIForm)
	}
}

// ISCSIInitiator validates the name of the initiator, which is optional. prefix has the same
// meaning as in ISCSI.
func (s *Sources) ISCSIInitiator(at *field.Path, name *string, prefix string) {
	if name != nil {
		s.qualifiedName(at.Child("initiatorname"), *name, prefix)
	}
}

// ISCSITooLong is the error message if ISCSIFits returns false.
const ISCSITooLong = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if " +
	"iscsi.initiatorName is specified."

// ISCSIFits reports whether a volume's name and its target portal are short enough together. Their
// length is limited only if an initiator is set.
func ISCSIFits(name, portal string, initiator *string) bool {
	return initiator == nil || len(name)+1+len(portal) <= 64
}

const (
	fileMode          int32 = 0o644 // permissions of files from secrets, config maps and pod fields
	tokenLifetime     int64 = 60 * 60
	iscsiInterface          = "default"
	rbdPool                 = "rbd"
	rbdUser                 = "admin"
	rbdKeyring              = "/etc/ceph/keyring"
	scaleIOStorage          = "ThinProvisioned"
	scaleIOFilesystem       = "xfs"
	azureFilesystem         = "ext4"
)

func defaultVolume(v *corev1.Volume) {
	if ptr.AllPtrFieldsNil(&v.VolumeSource) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	// Every source gets its defaults, because the error about a volume with several sources shows
	// them with their defaults.
	if v.HostPath != nil {
		DefaultHostPath(v.HostPath)
	}
	if v.Secret != nil {
		unset.Point(&v.Secret.DefaultMode, fileMode)
	}
	if v.ConfigMap != nil {
		unset.Point(&v.ConfigMap.DefaultMode, fileMode)
	}
	if v.DownwardAPI != nil {
		unset.Point(&v.DownwardAPI.DefaultMode, fileMode)
		defaultDownward(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
	if v.Image != nil {
		defaultPullPolicy(&v.Image.PullPolicy, v.Image.Reference)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		DefaultClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	defaultNetworkVolume(v)
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	unset.Point(&p.DefaultMode, fileMode)
	for i := range p.Sources {
		source := &p.Sources[i]
		if source.DownwardAPI != nil {
			defaultDownward(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			unset.Point(&source.ServiceAccountToken.ExpirationSeconds, tokenLifetime)
		}
	}
}

func defaultDownward(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

func defaultNetworkVolume(v *corev1.Volume) {
	if s := v.ISCSI; s != nil {
		unset.Fill(&s.ISCSIInterface, iscsiInterface)
	}
	if s := v.RBD; s != nil {
		defaultRBD(&s.RBDPool, &s.RadosUser, &s.Keyring)
	}
	if v.AzureDisk != nil {
		defaultAzureDisk(v.AzureDisk)
	}
	if s := v.ScaleIO; s != nil {
		defaultScaleIO(&s.StorageMode, &s.FSType)
	}
}

// DefaultPersistentSource sets the defaults of a persistent volume's source.
func DefaultPersistentSource(s *corev1.PersistentVolumeSource) {
	if s.HostPath != nil {
		DefaultHostPath(s.HostPath)
	}
	if s := s.ISCSI; s != nil {
		unset.Fill(&s.ISCSIInterface, iscsiInterface)
	}
	if s := s.RBD; s != nil {
		defaultRBD(&s.RBDPool, &s.RadosUser, &s.Keyring)
	}
	if s.AzureDisk != nil {
		defaultAzureDisk(s.AzureDisk)
	}
	if s := s.ScaleIO; s != nil {
		defaultScaleIO(&s.StorageMode, &s.FSType)
	}
}

func defaultRBD(pool, user, keyring *string) {
	unset.Fill(pool, rbdPool)
	unset.Fill(user, rbdUser)
	unset.Fill(keyring, rbdKeyring)
}

func defaultScaleIO(mode, filesystem *string) {
	unset.Fill(mode, scaleIOStorage)
	unset.Fill(filesystem, scaleIOFilesystem)
}

// DefaultHostPath sets the type of a host path if it is unset.
func DefaultHostPath(h *corev1.HostPathVolumeSource) { unset.Point(&h.Type, corev1.HostPathUnset) }

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	unset.Point(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	unset.Point(&d.FSType, azureFilesystem)
	unset.Point(&d.ReadOnly, false)
	unset.Point(&d.Kind, corev1.AzureSharedBlobDisk)
}

// DefaultClaimSpec sets the defaults of the specification of a volume claim.
func DefaultClaimSpec(spec *corev1.PersistentVolumeClaimSpec) {
	unset.Point(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	Milli(spec.Resources.Limits)
	Milli(spec.Resources.Requests)
}
