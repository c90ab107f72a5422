// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stat reads the resource usage, the limits and the pressure stall information of cgroups.
// It supports cgroup v2, cgroup v1, and cgroup v1 with an additional v2 hierarchy, from which it
// reads only the pressure. It keeps no state. Values that the kernel does not provide are nil or
// missing.
package stat

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is the resource usage of a cgroup. Values that the kernel does not provide are nil or
// missing.
type Usage struct {
	CPU       *CPU
	Memory    *Memory
	IO        []Device
	Pressure  map[string]Pressure // by resource: "cpu", "memory" and "io"
	Processes []int               // IDs of the processes in the cgroup itself, not in its children
	Threads   *int64
	Limits    Limits
}

// CPU is the CPU time that a cgroup has used, and how often and how long its CPU quota throttled
// it.
type CPU struct {
	Total, User, System  time.Duration
	Periods, Throttled   uint64
	ThrottledFor         time.Duration
	Bounded              bool // the cgroup has a CPU quota
	HasUserAndSystemTime bool
}

// Memory is the memory usage of a cgroup.
type Memory struct {
	// Memory in use, in bytes:

	Usage, WorkingSet, RSS, Cache, MappedFile, Swap uint64
	Max                                             *uint64
	Failures                                        *uint64 // how often the cgroup reached its memory limit
	Faults, MajorFaults, OOMKills                   uint64
}

// Device counts what a cgroup has read from and written to a block device: bytes and operations.
// Major and Minor are the device's numbers.
type Device struct {
	Major, Minor                         string
	ReadBytes, WriteBytes, Reads, Writes uint64
}

// Pressure is the pressure stall information for a resource. Some is the time during which at least
// one task waited for the resource, and Full the time during which all tasks waited.
type Pressure struct{ Some, Full Waiting }

// Waiting is a waiting time: the percentage of the last 10, 60 and 300 seconds, and the total.
type Waiting struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// Limits holds the limits of a cgroup. A limit of zero means that it is not set.
type Limits struct {
	Shares, Quota, Period, Memory, Soft, Swap int64
}

// unlimited is the smallest value of a limit that means "no limit". Without a limit, cgroup v1
// shows a huge number that depends on the page size.
const unlimited = int64(1) << 62

// Reader reads the cgroups in the file systems that are mounted in one directory.
type Reader struct {
	mount   string
	unified bool
}

// New returns a Reader of the cgroups that are mounted at mount, normally /sys/fs/cgroup. unified
// means that this is a cgroup v2 hierarchy.
func New(mount string, unified bool) Reader { return Reader{mount, unified} }

// Exists reports whether a cgroup exists.
func (r Reader) Exists(path string) bool {
	_, err := os.Stat(r.dir("memory", path))
	return err == nil
}

func (r Reader) dir(controller, path string) string {
	if r.unified {
		return filepath.Join(r.mount, path)
	}
	return filepath.Join(r.mount, controller, path)
}

// Read returns the usage of the cgroup at path, for example /kubepods.
func (r Reader) Read(path string) Usage {
	u := Usage{Pressure: r.Pressures(path), Processes: pids(r.dir("memory", path))}
	if n, ok := number(r.dir("pids", path), "pids.current"); ok {
		u.Threads = &n
	}
	if r.unified {
		r.readUnified(&u, r.dir("", path))
	} else {
		r.readLegacy(&u, path)
	}
	return u
}

// Pressures returns the pressure of a cgroup, by resource. It returns nil if the kernel does not
// provide it.
func (r Reader) Pressures(path string) map[string]Pressure {
	dir := filepath.Join(r.mount, path)
	if !r.unified {
		dir = filepath.Join(r.mount, "unified", path)
	}
	return pressures(func(name string) string { return filepath.Join(dir, name+".pressure") })
}

// MachinePressures returns the pressure of the whole machine, by resource.
func MachinePressures() map[string]Pressure {
	return pressures(func(name string) string { return filepath.Join("/proc/pressure", name) })
}

func pressures(file func(name string) string) map[string]Pressure {
	out := map[string]Pressure{}
	for _, name := range []string{"cpu", "memory", "io"} {
		b, err := os.ReadFile(file(name))
		if err != nil {
			continue
		}
		p := Pressure{}
		for line := range strings.Lines(string(b)) {
			kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch kind {
			case "some":
				p.Some = waiting(rest)
			case "full":
				p.Full = waiting(rest)
			}
		}
		out[name] = p
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func waiting(text string) Waiting {
	w := Waiting{}
	for field := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "avg10":
			w.Avg10, _ = strconv.ParseFloat(value, 64)
		case "avg60":
			w.Avg60, _ = strconv.ParseFloat(value, 64)
		case "avg300":
			w.Avg300, _ = strconv.ParseFloat(value, 64)
		case "total":
			us, _ := strconv.ParseInt(value, 10, 64)
			w.Total = time.Duration(us) * time.Microsecond
		}
	}
	return w
}

func (r Reader) readUnified(u *Usage, dir string) {
	if cpu, ok := table(dir, "cpu.stat"); ok {
		u.CPU = &CPU{
			Total: micro(cpu["usage_usec"]), User: micro(cpu["user_usec"]), System: micro(cpu["system_usec"]),
			HasUserAndSystemTime: true,
			Periods:              cpu["nr_periods"], Throttled: cpu["nr_throttled"], ThrottledFor: micro(cpu["throttled_usec"]),
		}
	}
	if quota, period, ok := strings.Cut(readText(dir, "cpu.max"), " "); ok {
		u.Limits.Quota, _ = strconv.ParseInt(quota, 10, 64) // "max" means no quota
		u.Limits.Period, _ = strconv.ParseInt(period, 10, 64)
	}
	if weight, ok := number(dir, "cpu.weight"); ok {
		u.Limits.Shares = 2 + (weight-1)*262142/9999
	}
	m, ok := table(dir, "memory.stat")
	usage, known := number(dir, "memory.current")
	if ok && known {
		u.Memory = &Memory{
			Usage: uint64(usage), RSS: m["anon"], Cache: m["file"], MappedFile: m["file_mapped"],
			Faults: m["pgfault"], MajorFaults: m["pgmajfault"],
		}
		u.Memory.WorkingSet = u.Memory.Usage - min(u.Memory.Usage, m["inactive_file"])
		if swap, ok := number(dir, "memory.swap.current"); ok {
			u.Memory.Swap = uint64(swap)
		}
		if peak, ok := number(dir, "memory.peak"); ok {
			most := uint64(peak)
			u.Memory.Max = &most
		}
		if events, ok := table(dir, "memory.events"); ok {
			hit := events["max"]
			u.Memory.Failures, u.Memory.OOMKills = &hit, events["oom_kill"]
		}
	}
	u.Limits.Memory, _ = number(dir, "memory.max")
	u.Limits.Soft, _ = number(dir, "memory.high")
	u.Limits.Swap, _ = number(dir, "memory.swap.max")
	for line := range strings.Lines(readText(dir, "io.stat")) {
		fields := strings.Fields(line)
		major, minor, ok := strings.Cut(fields[0], ":")
		if !ok {
			continue
		}
		d := Device{Major: major, Minor: minor}
		for _, f := range fields[1:] {
			name, value, _ := strings.Cut(f, "=")
			d.add(map[string]string{"rbytes": "Read", "wbytes": "Write", "rios": "Reads", "wios": "Writes"}[name], value)
		}
		u.IO = append(u.IO, d)
	}
	u.CPU.bounded(u.Limits)
}

func (r Reader) readLegacy(u *Usage, path string) {
	cpu, memory := r.dir("cpu", path), r.dir("memory", path)
	if total, ok := number(r.dir("cpuacct", path), "cpuacct.usage"); ok {
		u.CPU = &CPU{Total: time.Duration(total)}
		if t, ok := table(r.dir("cpuacct", path), "cpuacct.stat"); ok {
			u.CPU.User, u.CPU.System, u.CPU.HasUserAndSystemTime = ticks(t["user"]), ticks(t["system"]), true
		}
		if t, ok := table(cpu, "cpu.stat"); ok {
			u.CPU.Periods, u.CPU.Throttled, u.CPU.ThrottledFor = t["nr_periods"], t["nr_throttled"],
				time.Duration(t["throttled_time"])
		}
	}
	u.Limits.Shares, _ = number(cpu, "cpu.shares")
	u.Limits.Quota, _ = number(cpu, "cpu.cfs_quota_us")
	u.Limits.Period, _ = number(cpu, "cpu.cfs_period_us")
	m, ok := table(memory, "memory.stat")
	usage, known := number(memory, "memory.usage_in_bytes")
	if ok && known {
		u.Memory = &Memory{
			Usage: uint64(usage), RSS: m["total_rss"], Cache: m["total_cache"],
			MappedFile: m["total_mapped_file"], Swap: m["total_swap"],
			Faults: m["total_pgfault"], MajorFaults: m["total_pgmajfault"],
		}
		u.Memory.WorkingSet = u.Memory.Usage - min(u.Memory.Usage, m["total_inactive_file"])
		if most, ok := number(memory, "memory.max_usage_in_bytes"); ok {
			n := uint64(most)
			u.Memory.Max = &n
		}
		if hit, ok := number(memory, "memory.failcnt"); ok {
			n := uint64(hit)
			u.Memory.Failures = &n
		}
		if t, ok := table(memory, "memory.oom_control"); ok {
			u.Memory.OOMKills = t["oom_kill"]
		}
	}
	u.Limits.Memory, _ = number(memory, "memory.limit_in_bytes")
	u.Limits.Soft, _ = number(memory, "memory.soft_limit_in_bytes")
	u.Limits.Swap, _ = number(memory, "memory.memsw.limit_in_bytes")
	u.IO = legacyIO(r.dir("blkio", path))
	u.CPU.bounded(u.Limits)
}

func (c *CPU) bounded(l Limits) {
	if c != nil {
		c.Bounded = l.Quota > 0
	}
}

// legacyIO reads the files of cgroup v1 that count bytes and operations of block devices. Their
// lines have the form "8:0 Read 4096".
func legacyIO(dir string) []Device {
	var out []Device
	at := map[string]int{}
	for _, f := range []struct{ file, read, write string }{
		{"blkio.throttle.io_service_bytes_recursive", "Read", "Write"},
		{"blkio.throttle.io_service_bytes", "Read", "Write"}, {"blkio.throttle.io_serviced", "Reads", "Writes"},
	} {
		if f.file == "blkio.throttle.io_service_bytes" && len(out) > 0 {
			continue // the recursive file, which was read before, includes these values
		}
		for line := range strings.Lines(readText(dir, f.file)) {
			fields := strings.Fields(line)
			if len(fields) != 3 {
				continue
			}
			i, ok := at[fields[0]]
			if !ok {
				major, minor, _ := strings.Cut(fields[0], ":")
				i, at[fields[0]] = len(out), len(out)
				out = append(out, Device{Major: major, Minor: minor})
			}
			out[i].add(map[string]string{"Read": f.read, "Write": f.write}[fields[1]], fields[2])
		}
	}
	return out
}

func (d *Device) add(what, value string) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return
	}
	switch what {
	case "Read":
		d.ReadBytes += n
	case "Write":
		d.WriteBytes += n
	case "Reads":
		d.Reads += n
	case "Writes":
		d.Writes += n
	}
}

func micro(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }

// ticks converts a number of the kernel's clock ticks. A tick is 10 ms on every Linux.
func ticks(n uint64) time.Duration { return time.Duration(n) * 10 * time.Millisecond }

func readText(dir, file string) string {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// number reads a file that contains one number. ok is false if there is no number or it means "no
// limit".
func number(dir, file string) (int64, bool) {
	n, err := strconv.ParseInt(readText(dir, file), 10, 64)
	if err != nil || n >= unlimited {
		return 0, false
	}
	return n, true
}

// table reads a file whose lines consist of a name and a number. ok is false if the file is empty
// or cannot be read.
func table(dir, file string) (map[string]uint64, bool) {
	s := readText(dir, file)
	out := map[string]uint64{}
	for line := range strings.Lines(s) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out, s != ""
}

func pids(dir string) []int {
	var out []int
	for field := range strings.FieldsSeq(readText(dir, "cgroup.procs")) {
		if n, err := strconv.Atoi(field); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// Interface counts the traffic of a network interface.
type Interface struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// Network returns the traffic of the network interfaces in the network namespace of a process,
// without the loopback interface.
func Network(proc string, pid int) []Interface {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "net", "dev"))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var out []Interface
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, ok := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || name == "lo" || len(fields) < 12 {
			continue
		}
		n := func(i int) uint64 { v, _ := strconv.ParseUint(fields[i], 10, 64); return v }
		out = append(out, Interface{
			Name: name, RxBytes: n(0), RxPackets: n(1), RxErrors: n(2), RxDropped: n(3), TxBytes: n(8),
			TxPackets: n(9), TxErrors: n(10), TxDropped: n(11),
		})
	}
	return out
}
