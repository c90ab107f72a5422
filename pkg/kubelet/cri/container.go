// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerInput holds what a container's configuration depends on, besides the pod and the
// container's spec.
type ContainerInput struct {
	// Data of this run of the container:

	Restarts int
	// Epoch is how often all containers of the pod have been restarted together.
	Epoch int64
	// Command and Args are the container's command and arguments, with variables already expanded.
	Command, Args []string
	Envs          []*runtimeapi.KeyValue
	// Annotations are added to the annotations that ContainerConfig sets.
	Annotations map[string]string
	// Target is the ID of the container whose process namespace an ephemeral container shares.
	Target string

	// Data of the image:

	// Image is the reference to which the runtime resolved the image's name.
	Image string
	// ImageUID and ImageUser are the user that the image specifies, as a number or as a name. At
	// most one of the two is set.
	ImageUID  *int64
	ImageUser string

	// Resources and settings that the node provides:

	RuntimeHandler string
	Mounts         []*runtimeapi.Mount
	Devices        []*runtimeapi.Device
	CDIDevices     []*runtimeapi.CDIDevice
	Resources      *runtimeapi.LinuxContainerResources
	UserNamespace  *runtimeapi.UserNamespace

	// Settings for seccomp:

	// SeccompRoot is the directory of the seccomp profiles of type Localhost. If SeccompDefault is
	// true, a container that specifies no profile gets the profile RuntimeDefault.
	SeccompRoot    string
	SeccompDefault bool
}

// LogPath returns the path of a container's log file, relative to the directory of the pod's logs.
func LogPath(container string, restarts int) string {
	return filepath.Join(container, strconv.Itoa(restarts)+".log")
}

// ContainerConfig returns the configuration of a container.
func ContainerConfig(pod *v1.Pod, c *v1.Container, in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	if err := checkNonRoot(pod, c, in); err != nil {
		return nil, err
	}
	sc, err := containerSecurity(pod, c, in)
	if err != nil {
		return nil, err
	}
	cfg := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.Restarts)},
		Image:       &runtimeapi.ImageSpec{Image: in.Image, UserSpecifiedImage: c.Image, RuntimeHandler: in.RuntimeHandler},
		Command:     in.Command,
		Args:        in.Args,
		WorkingDir:  c.WorkingDir,
		Envs:        in.Envs,
		Mounts:      in.Mounts,
		Devices:     in.Devices,
		CDIDevices:  in.CDIDevices,
		Labels:      containerLabels(pod, c),
		Annotations: containerAnnotations(pod, c, in.Restarts),
		LogPath:     LogPath(c.Name, in.Restarts),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: in.Resources, SecurityContext: sc},
	}
	maps.Copy(cfg.Annotations, in.Annotations)
	if in.Epoch > 0 {
		cfg.Annotations[annotationEpoch] = strconv.FormatInt(in.Epoch, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		cfg.StopSignal = runtimeapi.Signal(runtimeapi.Signal_value[string(*c.Lifecycle.StopSignal)])
	}
	return cfg, nil
}

// Security returns the container's security context. Fields that the container does not set are
// taken from the pod's security context.
func Security(pod *v1.Pod, c *v1.Container) v1.SecurityContext {
	sc := v1.SecurityContext{}
	if c.SecurityContext != nil {
		sc = *c.SecurityContext.DeepCopy()
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return sc
	}
	if sc.SELinuxOptions == nil {
		sc.SELinuxOptions = p.SELinuxOptions
	}
	if sc.RunAsUser == nil {
		sc.RunAsUser = p.RunAsUser
	}
	if sc.RunAsGroup == nil {
		sc.RunAsGroup = p.RunAsGroup
	}
	if sc.RunAsNonRoot == nil {
		sc.RunAsNonRoot = p.RunAsNonRoot
	}
	if sc.SeccompProfile == nil {
		sc.SeccompProfile = p.SeccompProfile
	}
	if sc.AppArmorProfile == nil {
		sc.AppArmorProfile = p.AppArmorProfile
	}
	return sc
}

func checkNonRoot(pod *v1.Pod, c *v1.Container, in ContainerInput) error {
	sc := Security(pod, c)
	if sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot {
		return nil
	}
	who := fmt.Sprintf("(pod: %q, container: %s)", Describe(pod), c.Name)
	switch {
	case sc.RunAsUser != nil:
		if *sc.RunAsUser == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", who)
		}
	case in.ImageUID == nil && in.ImageUser != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify "+
			"user is non-root %s", in.ImageUser, who)
	case in.ImageUID == nil || *in.ImageUID == 0: // if the image specifies no user, the container runs as root
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", who)
	case *in.ImageUID < 0 || *in.ImageUID > math.MaxInt32:
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be "+
			"1-(%d)): must be between 0 and %d, inclusive %s",
			*in.ImageUID, math.MaxInt32, math.MaxInt32, who)
	}
	return nil
}

// Describe returns a pod's name for messages, in the form NAME_NAMESPACE(UID).
func Describe(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

func containerSecurity(pod *v1.Pod, c *v1.Container,
	in ContainerInput) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := Security(pod, c)
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:     capabilities(sc.Capabilities),
		Privileged:       isTrue(sc.Privileged),
		ReadonlyRootfs:   isTrue(sc.ReadOnlyRootFilesystem),
		SelinuxOptions:   selinux(sc.SELinuxOptions),
		RunAsUser:        int64Value(sc.RunAsUser),
		RunAsGroup:       int64Value(sc.RunAsGroup),
		NoNewPrivs:       sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		NamespaceOptions: namespaces(pod, in.UserNamespace),
	}
	if out.RunAsUser == nil {
		out.RunAsUser, out.RunAsUsername = int64Value(in.ImageUID), in.ImageUser
	}
	if in.Target != "" {
		out.NamespaceOptions.Pid, out.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, in.Target
	}
	if p := pod.Spec.SecurityContext; p != nil {
		var err error
		if out.SupplementalGroups, out.SupplementalGroupsPolicy, err = groups(p); err != nil {
			return nil, err
		}
	}
	if sc.ProcMount == nil || *sc.ProcMount != v1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	var err error
	if out.Seccomp, err = seccomp(sc.SeccompProfile, in); err != nil {
		return nil, err
	}
	// Set both fields, because older runtimes read only the deprecated field ApparmorProfile.
	if out.Apparmor, out.ApparmorProfile, err = appArmor(pod, c, sc.AppArmorProfile); err != nil {
		return nil, err
	}
	return out, nil
}

func maskedPaths() []string {
	paths := []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	throttles, _ := filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
	return append(paths, throttles...)
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func seccomp(p *v1.SeccompProfile, in ContainerInput) (*runtimeapi.SecurityProfile, error) {
	kind := v1.SeccompProfileTypeUnconfined
	if in.SeccompDefault {
		kind = v1.SeccompProfileTypeRuntimeDefault
	}
	if p != nil {
		kind = p.Type
	}
	switch kind {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			// This is the text of Kubernetes' message.
			return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost.")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: filepath.Join(in.SeccompRoot, *p.LocalhostProfile),
		}, nil
	case v1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	default:
		// Return an error, because a container with an unknown type of profile must not run
		// unconfined.
		return nil, fmt.Errorf("unsupported seccomp profile type %q", kind)
	}
}

// appArmor converts a container's AppArmor profile to the runtime's form. If p is nil, it uses the
// annotation that pods had before the field existed.
func appArmor(pod *v1.Pod, c *v1.Container, p *v1.AppArmorProfile) (*runtimeapi.SecurityProfile, string, error) {
	if p == nil {
		old, ok := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if !ok {
			return nil, "", nil
		}
		p = &v1.AppArmorProfile{}
		if local, ok := strings.CutPrefix(old, v1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
			p.Type, p.LocalhostProfile = v1.AppArmorProfileTypeLocalhost, &local
		} else if old == v1.DeprecatedAppArmorBetaProfileNameUnconfined {
			p.Type = v1.AppArmorProfileTypeUnconfined
		} else {
			p.Type = v1.AppArmorProfileTypeRuntimeDefault
		}
	}
	switch p.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			v1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			v1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case v1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			return nil, "", fmt.Errorf("missing localhost apparmor profile name")
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost,
				LocalhostRef: *p.LocalhostProfile},
			v1.DeprecatedAppArmorBetaProfileNamePrefix + *p.LocalhostProfile, nil
	default:
		return nil, "", fmt.Errorf("unknown apparmor profile type: %q", p.Type)
	}
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, k := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(k))
	}
	for _, k := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(k))
	}
	return out
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func isTrue(b *bool) bool { return b != nil && *b }

// NextRestart returns the restart count of a container's next run, derived from the names of the
// log files in dir. It is used if the runtime no longer has the earlier runs.
func NextRestart(dir string) int {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	next := 0
	for _, e := range entries {
		number, _, ok := strings.Cut(e.Name(), ".log")
		if n, err := strconv.Atoi(number); ok && err == nil && n+1 > next {
			next = n + 1
		}
	}
	return next
}
