package wallspec

import (
	"slices"
	"time"

	"coworker/enforce"
	"coworker/platform/config"
)

// Defaults that stop a runaway and are far above what builds need. Processes counts threads: a Java or Rust build
// on many cores has some thousands. FileSize is above disk images and model files.
const (
	defaultProcesses = 4096
	defaultOpenFiles = 65536
	defaultFileSize  = 64 << 30
	leastMemory      = 512 << 20
	leastTmp         = 256 << 20
)

// limits takes the flag, else the settings, else the default; a project's ceiling lowers the last two. What a
// person asked for is named (by the JSON keys of enforce.Limits), and the session does not start without it.
func (b *builder) limits() error {
	c := b.req.Config
	l := &b.plan.Spec.Limits
	ram := b.host.Memory
	memory := max(ram/4*3, leastMemory)
	files := int64(defaultOpenFiles)
	if b.host.OpenFiles > 0 {
		files = min(files, b.host.OpenFiles)
	}
	if ram <= 0 {
		memory = 0 // unknown: the backend decides
	}
	var err error
	l.Processes, err = pick(b, limit[config.Count]{"processes", "--pids", b.req.Pids, config.ParseCount, c.Limits.Processes, c.Ceiling.Processes, defaultProcesses})
	if err != nil {
		return err
	}
	l.Memory, err = pick(b, limit[config.Size]{"memory", "--memory", b.req.Memory, config.ParseSize, c.Limits.Memory, c.Ceiling.Memory, config.Size(memory)})
	if err != nil {
		return err
	}
	tmp := max(l.Memory/3, leastTmp) // a quarter of RAM where memory has its default
	cpus, err := pickCores(b, c)
	if err != nil {
		return err
	}
	l.CPUs = cpus
	for _, x := range []struct {
		name string
		to   *int64
		own  int64
		max  int64
		def  int64
	}{
		{"open_files", &l.OpenFiles, int64(c.Limits.OpenFiles), int64(c.Ceiling.OpenFiles), files},
		{"file_size", &l.FileSize, int64(c.Limits.FileSize), int64(c.Ceiling.FileSize), defaultFileSize},
		{"tmp", &l.Tmp, int64(c.Limits.Tmp), int64(c.Ceiling.Tmp), tmp},
	} {
		*x.to, _ = pick(b, limit[config.Size]{name: x.name, own: config.Size(x.own), ceiling: config.Size(x.max), def: config.Size(x.def)})
	}
	slices.Sort(l.Named)
	return b.timeout()
}

type limit[T config.Count | config.Size] struct {
	name, flag, given string
	parse             func(string) (T, error)
	own, ceiling, def T
}

func pick[T config.Count | config.Size](b *builder, l limit[T]) (int64, error) {
	named := &b.plan.Spec.Limits.Named
	if l.given != "" {
		v, err := l.parse(l.given)
		if err != nil {
			return 0, refuse(l.flag, "", "%v", err)
		}
		*named = append(*named, l.name)
		return int64(v), nil
	}
	v := l.def
	if l.own > 0 {
		v = l.own
	}
	if l.ceiling > 0 && (v == 0 || l.ceiling < v) {
		v = l.ceiling
	}
	if l.own > 0 || l.ceiling > 0 {
		*named = append(*named, l.name)
	}
	return int64(v), nil
}

// pickCores is pick for the one limit that is a fraction and has no default: an idle machine is for the build.
func pickCores(b *builder, c config.Config) (float64, error) {
	v := c.Limits.CPUs
	if b.req.CPU != "" {
		var err error
		if v, err = config.ParseCores(b.req.CPU); err != nil {
			return 0, refuse("--cpu", "", "%v", err)
		}
	} else if c.Ceiling.CPUs > 0 && (v == 0 || c.Ceiling.CPUs < v) {
		v = c.Ceiling.CPUs
	}
	if v > 0 {
		b.plan.Spec.Limits.Named = append(b.plan.Spec.Limits.Named, "cpus")
	}
	return float64(v), nil
}

// hardenedTime is how long a command may take where every resource must be bounded and nobody said how far.
const hardenedTime = 24 * time.Hour

// harden bounds what has no bound by default, because the level asks for one: a quarter of a core stays for whoever watches.
func (b *builder) harden() {
	l := &b.plan.Spec.Limits
	if b.plan.Level != enforce.Hardened {
		return
	}
	if l.CPUs == 0 && b.host.Cores > 0 {
		l.CPUs = float64(b.host.Cores) - 0.25
	}
	if b.plan.Timeout == 0 {
		b.plan.Timeout = hardenedTime
		l.Time = int64(hardenedTime / time.Second)
	}
}

func (b *builder) timeout() error {
	defer b.harden()
	if b.req.Timeout == "" {
		return nil
	}
	d, err := config.ParseDuration(b.req.Timeout)
	if err != nil {
		return refuse("--timeout", "", "%v", err)
	}
	b.plan.Timeout = time.Duration(d)
	b.plan.Spec.Limits.Time = int64((b.plan.Timeout + time.Second - 1) / time.Second)
	return nil
}
