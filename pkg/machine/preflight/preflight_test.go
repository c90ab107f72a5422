// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"keelson.dev/keelson/pkg/machine/config"
)

const kernel = "6.1.0-37-amd64"

// built is when the release of the tests was built.
var built = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// machine is a System and what tests change about it.
type machine struct {
	System
	files    fstest.MapFS
	taken    []string // addresses at which other programs listen, each as "tcp :6443"
	lacking  []Kind   // what the kernel cannot make
	readOnly []string // paths
	spaces   map[string]Space
	hosts    map[string]string
	options  Options
}

// healthy returns a machine without problems.
func healthy() *machine {
	m := &machine{
		System: System{
			Root: true, HostName: "m1", Kernel: kernel, Now: built.Add(time.Hour), Synchronised: true,
			Addresses: []Address{
				{Interface: "lo", Prefix: netip.MustParsePrefix("127.0.0.1/8")},
				{Interface: "eth0", Prefix: netip.MustParsePrefix("192.168.7.11/24")},
			},
			Routes: []Route{
				{Interface: "eth0", Prefix: netip.MustParsePrefix("0.0.0.0/0")},
				{Interface: "eth0", Prefix: netip.MustParsePrefix("192.168.7.0/24")},
			},
		},
		files:  fstest.MapFS{},
		spaces: map[string]Space{"/var/lib": {Type: ext4, Free: 50 << 30, Total: 100 << 30}},
		hosts:  map[string]string{},
	}
	for path, text := range map[string]string{
		"/run/systemd/system/placeholder": "", "/proc/filesystems": "nodev\toverlay\n\text4\n", "/var/lib/dpkg/status": "",
		"/proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n", "/usr/bin/mount": "", "/usr/bin/umount": "",
		"/proc/1/comm":        "systemd\n",
		"/usr/sbin/mkfs.ext4": "", "/usr/sbin/resize2fs": "", "/proc/sys/net/ipv6/conf/all/disable_ipv6": "0\n",
		"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids\n",
		"/etc/resolv.conf":                  "nameserver 192.168.7.1\n",
	} {
		m.write(path, text)
	}
	m.Files = m.files
	m.Writable = func(path string) bool { return !slices.Contains(m.readOnly, path) }
	m.Space = func(path string) (Space, error) {
		if s, ok := m.spaces[path]; ok {
			return s, nil
		}
		return m.spaces["/var/lib"], nil
	}
	m.Listen = func(_ context.Context, network, address string) error {
		if slices.Contains(m.taken, network+" "+address) {
			return fmt.Errorf("listen: %w", syscall.EADDRINUSE)
		}
		return nil
	}
	m.Lookup = func(_ context.Context, name string) ([]netip.Addr, error) {
		if a, ok := m.hosts[name]; ok {
			return []netip.Addr{netip.MustParseAddr(a)}, nil
		}
		return nil, errors.New("no such host")
	}
	m.Make = func(kind Kind) error {
		if slices.Contains(m.lacking, kind) {
			return syscall.EOPNOTSUPP
		}
		return nil
	}
	c := &config.KeelsonConfiguration{}
	config.Default(c, m.Facts())
	m.options = Options{Config: c, ControlPlane: true, Built: built}
	return m
}

const ext4 = 0xef53

func (m *machine) write(path, text string) {
	m.files[strings.TrimPrefix(path, "/")] = &fstest.MapFile{Data: []byte(text)}
}

func (m *machine) remove(path string) { delete(m.files, strings.TrimPrefix(path, "/")) }

// useVersion1 gives the machine cgroups of version 1 with some controllers.
func (m *machine) useVersion1(controllers ...string) {
	m.remove("/sys/fs/cgroup/cgroup.controllers")
	for _, name := range controllers {
		m.write("/sys/fs/cgroup/"+name+"/cgroup.procs", "")
	}
}

func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine)
		want   []string // the findings, each as "SEVERITY CHECK: part of the text"
	}{
		"healthy": {change: func(*machine) {}},
		"user":    {func(m *machine) { m.Root = false }, []string{"error IsPrivilegedUser: root"}},
		"user without rights": {func(m *machine) { m.Root, m.lacking = false, []Kind{NetworkNamespace} },
			[]string{"error IsPrivilegedUser: root"}},
		"other init": {func(m *machine) { m.remove("/run/systemd/system/placeholder") },
			[]string{"error Systemd: not booted by systemd"}},

		"old kernel":    {func(m *machine) { m.Kernel = "5.10.0" }, []string{"error KernelVersion: 5.10.0, want 5.13"}},
		"other kernel":  {func(m *machine) { m.Kernel = "new" }, []string{"error KernelVersion: new"}},
		"newest kernel": {change: func(m *machine) { m.Kernel = "10.0" }},
		"no overlay": {func(m *machine) { m.write("/proc/filesystems", "nodev\toverlayother\n") },
			[]string{"error Kernel-overlay: no file system overlay"}},
		"module overlay": {change: func(m *machine) {
			m.write("/proc/filesystems", "ext4\n")
			m.write("/lib/modules/"+kernel+"/modules.dep", "kernel/fs/overlayfs/overlay.ko.xz:\n")
		}},
		"built-in overlay": {change: func(m *machine) {
			m.write("/proc/filesystems", "ext4\n")
			m.write("/lib/modules/"+kernel+"/modules.builtin", "kernel/fs/overlayfs/overlay.ko\n")
		}},
		"no namespaces": {func(m *machine) { m.lacking = []Kind{NetworkNamespace, VXLAN} },
			[]string{"error Kernel-namespaces: cannot make network namespaces"}},
		"missing modules": {func(m *machine) { m.lacking = []Kind{PacketFilter, VirtualEthernet, Bridge, VXLAN} }, []string{
			"error Kernel-nftables: operation not supported", "error Kernel-veth: veth devices",
			"error Kernel-bridge: bridge devices", "error Kernel-vxlan: vxlan devices",
		}},
		"IPv6 is off": {func(m *machine) {
			m.write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1\n")
			m.options.Config.Network.PodCIDRs = []string{"10.244.0.0/16", "fd44::/48"}
		}, []string{"error Kernel-ipv6: IPv6 is disabled"}},
		"IPv6 is off and not used": {change: func(m *machine) { m.remove("/proc/sys/net/ipv6/conf/all/disable_ipv6") }},

		"no controller": {func(m *machine) { m.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu pids\n") },
			[]string{"error Cgroups: the cgroup controller memory"}},
		"read-only cgroups": {func(m *machine) { m.readOnly = []string{"/sys/fs/cgroup"} },
			[]string{"error Cgroups: /sys/fs/cgroup is not writable"}},
		"cgroups of version 1": {change: func(m *machine) { m.useVersion1("cpu", "memory", "pids") }},
		"no controller of version 1": {func(m *machine) { m.useVersion1("cpu", "memory") },
			[]string{"error Cgroups: the cgroup controller pids"}},
		"read-only cgroups of version 1": {func(m *machine) {
			m.useVersion1("cpu", "memory", "pids")
			m.readOnly = []string{"/sys/fs/cgroup/memory"}
		}, []string{"error Cgroups: /sys/fs/cgroup/memory is not writable"}},

		"swap": {func(m *machine) { m.write("/proc/swaps", "Filename Type\n/dev/vda2 partition 1 0 -2\n") },
			[]string{"warning Swap: /dev/vda2"}},
		"wrong clock": {func(m *machine) { m.Now, m.Synchronised = built.Add(-time.Hour), false },
			[]string{"warning Time: shows 2026-11-30 11:00:00, before"}},
		"free clock": {func(m *machine) { m.Synchronised = false }, []string{"warning Time: follows no time server"}},

		"ports": {func(m *machine) { m.taken = []string{"tcp :6443", "tcp :10250", "udp :4789", "tcp 127.0.0.1:7443"} },
			[]string{"error Port-10250: the kubelet", "error Port-7443: 127.0.0.1, for the load balancer",
				"error Port-6443: the API server", "error Port-4789: udp"}},
		"ports of etcd": {func(m *machine) { m.taken = []string{"tcp :2379", "tcp :2380"} },
			[]string{"error Port-2379: etcd", "error Port-2380: etcd"}},
		"other port of the API server": {func(m *machine) {
			m.options.Config.APIServer.Port, m.taken = 8443, []string{"tcp :6443", "tcp :8443"}
		}, []string{"error Port-8443: the API server"}},
		"ports that a worker does not need": {change: func(m *machine) {
			m.options.ControlPlane = false
			m.taken = []string{"tcp :6443", "tcp :2379", "tcp 127.0.0.1:10257", "tcp 127.0.0.1:10259"}
		}},
		"name server": {func(m *machine) { m.taken = []string{"udp 192.168.7.11:53"} },
			[]string{"error Port-53: udp port 53"}},
		"port of another pod network": {change: func(m *machine) {
			m.options.Config.Network.Plugin, m.taken = config.PluginExternal, []string{"udp :4789"}
		}},

		"name of this machine": {change: func(m *machine) { m.hosts["m1"] = "192.168.7.11" }},
		"name of loopback":     {change: func(m *machine) { m.hosts["m1"] = "127.0.1.1" }},
		"name of another machine": {func(m *machine) { m.hosts["m1"] = "192.168.7.12" },
			[]string{"warning Hostname: 192.168.7.12"}},
		"addresses of another machine": {func(m *machine) {
			m.options.Config.Node.Addresses = []string{"192.168.7.12"}
			m.options.Config.APIServer.AdvertiseAddress = "192.168.7.13"
		}, []string{"error Addresses: node.addresses[0] is 192.168.7.12",
			"error Addresses: apiServer.advertiseAddress is 192.168.7.13"}},
		"clash with an interface": {func(m *machine) {
			m.Addresses = append(m.Addresses, Address{Interface: "docker0", Prefix: netip.MustParsePrefix("10.96.3.1/24")})
		}, []string{"error AddressClash: network.serviceCIDRs 10.96.0.0/16 overlaps the network 10.96.3.0/24"}},
		"clash with a route": {func(m *machine) {
			m.Routes = append(m.Routes, Route{Interface: "vpn0", Prefix: netip.MustParsePrefix("10.0.0.0/8")})
		}, []string{"error AddressClash: podCIDRs", "error AddressClash: serviceCIDRs"}},
		"clash with a name server": {func(m *machine) { m.write("/etc/resolv.conf", "search a\nnameserver 10.96.0.2\n") },
			[]string{"error AddressClash: the name server 10.96.0.2"}},

		"earlier installation": {func(m *machine) {
			m.write("/etc/kubernetes/pki/ca.crt", "")
			m.write("/var/lib/etcd/member/snap/db", "")
			m.write("/var/lib/kubelet/config.yaml", "")
			m.write("/etc/keelson/config.yaml", "")
			m.write("/etc/containerd/config.toml", "")
			m.write("/etc/cni/net.d/10-calico.conflist", "")
			m.write("/proc/77/comm", "kubelet\n")
		}, []string{"error DirAvailable--etc-kubernetes: earlier", "error DirAvailable--etc-keelson: earlier",
			"error DirAvailable--etc-containerd-config.toml: earlier", "error DirAvailable--var-lib-kubelet: earlier",
			"error DirAvailable--var-lib-etcd: earlier", "error DirAvailable--etc-cni-net.d: 10-calico.conflist",
			"error Process-kubelet: the process ID 77"}},
		"empty directories": {change: func(m *machine) {
			m.files["etc/kubernetes/manifests"] = &fstest.MapFile{Mode: 0o755 | 1<<31}
		}},
		"other CNI plugin": {change: func(m *machine) {
			m.write("/etc/cni/net.d/10-calico.conflist", "")
			m.options.Config.Network.Plugin = config.PluginExternal
		}},
		"containerd": {func(m *machine) { m.write("/proc/88/comm", "containerd\n") },
			[]string{"error CRI: another containerd"}},
		"socket of containerd": {func(m *machine) { m.write("/run/containerd/containerd.sock", "") },
			[]string{"error CRI: another containerd"}},
		"Docker":    {func(m *machine) { m.write("/run/docker.sock", "") }, []string{"warning OtherRuntime: Docker runs"}},
		"firewalld": {func(m *machine) { m.write("/proc/99/comm", "firewalld\n") }, []string{"warning Firewalld: active"}},
		"ufw": {func(m *machine) { m.write("/etc/ufw/ufw.conf", "# a\nENABLED=yes\n") },
			[]string{"warning Ufw: active"}},
		"ufw is off": {change: func(m *machine) { m.write("/etc/ufw/ufw.conf", "ENABLED=no\n") }},

		"small disk": {func(m *machine) { m.spaces["/var/lib"] = Space{ext4, 5 << 30, 20 << 30} },
			[]string{"warning Disk: only 5.0 GiB"}},
		"full disk": {func(m *machine) { m.spaces["/var/lib"] = Space{ext4, 1 << 30, 2 << 30} },
			[]string{"error Disk: less than 2 GiB"}},
		"disk with evictions": {func(m *machine) { m.spaces["/var/lib"] = Space{ext4, 50 << 30, 1 << 40} },
			[]string{"error Disk: less than 10%: the kubelet would evict"}},
		"disk with other thresholds": {change: func(m *machine) {
			m.spaces["/var/lib"] = Space{ext4, 50 << 30, 1 << 40}
			m.options.Config.Kubelet.EvictionHard = map[string]string{"nodefs.available": "1Gi"}
		}},
		"overlay": {func(m *machine) { m.spaces["/var/lib"] = Space{0x794c7630, 50 << 30, 100 << 30} },
			[]string{"error FileSystem: the file system overlay"}},
		"disk of containers": {func(m *machine) {
			m.write("/var/lib/containerd/lost+found/a", "")
			m.spaces["/var/lib/containerd"] = Space{0x6969, 50 << 30, 100 << 30}
		}, []string{"error FileSystem: /var/lib/containerd is on the file system NFS"}},
		"no mkfs": {func(m *machine) { m.remove("/usr/sbin/mkfs.ext4") },
			[]string{"error FileExisting-mkfs.ext4: mkfs.ext4"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := healthy()
			c.change(m)
			var have []string
			for _, f := range Run(t.Context(), &m.System, m.options) {
				have = append(have, fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.What))
				if f.Remedy == "" {
					t.Errorf("%s has no remedy", f.Check)
				}
			}
			if len(have) != len(c.want) {
				t.Fatalf("findings %q, want %q", have, c.want)
			}
			for i, want := range c.want {
				head, part, _ := strings.Cut(want, ": ")
				if !strings.HasPrefix(have[i], head+": ") || !strings.Contains(have[i], part) {
					t.Errorf("finding %q, want %q", have[i], want)
				}
			}
		})
	}
}

func TestReport(t *testing.T) {
	findings := []Finding{
		{"Swap", Warning, "swap is on", "turn it off"}, {"Port-53", Error, "the tcp port is in use", "free it"},
		{"Port-53", Error, "the udp port is in use", "free it"}, {"Cgroups", Error, "no cgroups", "boot"},
	}
	for name, c := range map[string]struct {
		findings []Finding
		ignore   []string
		want     string // the end of the error
	}{
		"nothing":  {},
		"warnings": {findings: findings[:1]},
		"errors":   {findings: findings, want: "--ignore-preflight-errors=Port-53,Cgroups"},
		"some":     {findings: findings, ignore: []string{"port-53"}, want: "--ignore-preflight-errors=Cgroups"},
		"others":   {findings: findings, ignore: []string{"Swap"}, want: "--ignore-preflight-errors=Port-53,Cgroups"},
		"all":      {findings: findings, ignore: []string{"all"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := Report(&out, c.findings, c.ignore)
			if (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			for _, f := range c.findings {
				if !strings.Contains(out.String(), f.What+"\n         remedy: "+f.Remedy) {
					t.Errorf("%q is not in\n%s", f.What, out.String())
				}
			}
		})
	}
}

// TestFacts checks from which interface the default addresses of a machine come.
func TestFacts(t *testing.T) {
	address := func(link, prefix string, fleeting bool) Address {
		return Address{Interface: link, Prefix: netip.MustParsePrefix(prefix), Fleeting: fleeting}
	}
	route := func(link, prefix string, priority int) Route {
		return Route{Interface: link, Prefix: netip.MustParsePrefix(prefix), Priority: priority}
	}
	s := &System{
		HostName: "m1",
		Addresses: []Address{
			address("lo", "127.0.0.1/8", false), address("wlan0", "10.1.0.5/24", false), address("eth0", "fe80::1/64", false),
			address("eth0", "fd07::99/64", true), address("eth0", "fd07::11/64", false),
			address("eth0", "192.168.7.11/24", false),
			address("eth0", "192.168.7.12/24", false), address("eth1", "172.16.0.1/24", false),
		},
		Routes: []Route{
			route("eth0", "::/0", 100), route("eth1", "172.16.0.0/24", 0), route("wlan0", "0.0.0.0/0", 600),
			route("eth0", "0.0.0.0/0", 100),
		},
	}
	f := s.Facts()
	if got, want := fmt.Sprint(f.Addresses), "[192.168.7.11 fd07::11]"; got != want || f.HostName != "m1" {
		t.Errorf("facts %v, want %v", f, want)
	}
	s.Routes = s.Routes[:2]
	if got, want := fmt.Sprint(s.Facts().Addresses), "[fd07::11]"; got != want {
		t.Errorf("without a route of IPv4: %v, want %v", got, want)
	}
}
