package landlock

import (
	"errors"
	"fmt"
	"slices"

	golandlock "github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// ABI asks the kernel which Landlock ABI it has. The error is ErrNotBuilt, ErrDisabled or what else the kernel said;
// the ABI is 0 with each.
func ABI() (int, error) {
	abi, err := ll.LandlockGetABIVersion()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return 0, fmt.Errorf("%w: landlock_create_ruleset: %w", ErrNotBuilt, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, fmt.Errorf("%w: landlock_create_ruleset: %w", ErrDisabled, err)
	case err != nil:
		return 0, fmt.Errorf("landlock_create_ruleset version: %w", err)
	case abi < 1:
		return 0, fmt.Errorf("landlock_create_ruleset: ABI %d", abi)
	}
	return abi, nil
}

// usable returns the ABI to use. Kernels whose signal scope also stops signals between threads of one process (erratum
// 2, fixed in the 6.12 series) count as ABI 5, because the Go runtime needs those signals; go-landlock does the same.
func usable(abi int) int {
	const signalScopeFixed = 1 << 1
	if errata, err := ll.LandlockGetErrata(); abi >= scopeABI && (err != nil || errata&signalScopeFixed == 0) {
		return scopeABI - 1
	}
	return min(abi, newestABI)
}

// Restrict puts all threads of the process, for good, behind one ruleset that handles every file right of the kernel's
// ABI, and sets no_new_privs on them. It is all or nothing: an error from a rule leaves the process as it was. After
// ErrNotEnforced the process must end.
//
// Below ABI 2 the kernel refuses every rename and link between folders; below ABI 6 there are no scopes. Applied says
// which rights are in force, and the caller decides whether they are enough.
//
// In a binary built with cgo the library also grants listing /proc/PID/task, which its thread handling needs; shipped
// binaries are built without.
func Restrict(r Rules) (Applied, error) {
	if err := r.check(); err != nil {
		return Applied{}, err
	}
	abi, err := ABI()
	if err != nil {
		return Applied{}, err
	}
	done := Applied{ABI: abi, Used: usable(abi)}
	config, err := r.config(&done)
	if err != nil {
		return Applied{}, err
	}
	rules, err := r.compile(&done)
	if err != nil {
		return Applied{}, err
	}
	proof, err := newCanary(done.Used)
	if err != nil {
		return Applied{}, err
	}
	defer proof.close()
	if err := config.Restrict(rules...); err != nil {
		return Applied{}, fmt.Errorf("landlock ABI %d: %w", done.Used, err)
	}
	done.Proven, err = proof.verify()
	if err != nil {
		return Applied{}, err
	}
	return done, nil
}

// config handles everything the ABI has, but for the network only if asked.
func (r *Rules) config(done *Applied) (golandlock.Config, error) {
	files, names := upTo(fsRights, done.Used)
	scoped, scopeNames := upTo(scopes, done.Used)
	done.HandledFS, done.Scopes = names, scopeNames
	config := golandlock.Config{HandledAccessFS: golandlock.AccessFSSet(files), Scoped: golandlock.ScopedSet(scoped)}
	if r.LogDenials {
		if done.ABI < logABI {
			return config, fmt.Errorf("%w: ABI %d, want %d", ErrNoLog, done.ABI, logABI)
		}
		config = config.DisableLoggingForOriginatingProcess().EnableLoggingForSubprocesses()
	}
	if !r.RestrictTCP {
		return config, nil
	}
	if done.Used < tcpABI {
		return config, fmt.Errorf("%w: ABI %d, want %d", ErrNoTCP, done.Used, tcpABI)
	}
	net, netNames := upTo(netRights, done.Used)
	config.HandledAccessNet, done.Network = golandlock.AccessNetSet(net), netNames
	return config, nil
}

// compile looks at every path and turns it into a rule with the rights that fit what is there.
func (r *Rules) compile(done *Applied) ([]golandlock.Rule, error) {
	handled, _ := upTo(fsRights, done.Used)
	var rules []golandlock.Rule
	lists := []struct {
		paths  []Path
		rights uint64
	}{{r.ReadOnly, readRights}, {r.ReadWrite, writeRights}, {r.Devices, deviceRights}, {r.List, readDir}, {r.UnixSockets, resolveUnix}}
	for _, list := range lists {
		for _, p := range list.paths {
			mode, err := fileType(p.Name)
			if errors.Is(err, unix.ENOENT) && p.Optional {
				done.Skipped = append(done.Skipped, p.Name)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("landlock rule for %q: %w", p.Name, err)
			}
			rights, err := fit(list.rights, mode)
			if err != nil {
				return nil, fmt.Errorf("%w: %q: %w", ErrRule, p.Name, err)
			}
			if rights &= handled; rights != 0 {
				rules = append(rules, golandlock.PathAccess(golandlock.AccessFSSet(rights), p.Name))
			}
		}
	}
	return append(rules, r.ports()...), nil
}

func (r *Rules) ports() []golandlock.Rule {
	var rules []golandlock.Rule
	for _, port := range slices.Compact(slices.Sorted(slices.Values(r.ConnectTCP))) {
		rules = append(rules, golandlock.ConnectTCP(port))
	}
	for _, port := range slices.Compact(slices.Sorted(slices.Values(r.BindTCP))) {
		rules = append(rules, golandlock.BindTCP(port))
	}
	return rules
}

// fileType is the S_IFMT part of what a path leads to. If something else is there when the rule is made, the kernel
// refuses folder rights on a file (EINVAL), and file rights on a folder are fewer.
func fileType(path string) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	return st.Mode & unix.S_IFMT, nil
}

// fit narrows the rights of a list to what the kernel takes for a type of file. ioctl is for devices and folders of
// devices; nothing else belongs into that list.
func fit(rights uint64, mode uint32) (uint64, error) {
	if rights == deviceRights && mode != unix.S_IFCHR && mode != unix.S_IFBLK && mode != unix.S_IFDIR {
		return 0, fmt.Errorf("file type %#o is no device", mode)
	}
	if mode == unix.S_IFDIR {
		return rights, nil
	}
	return rights & fileOnly, nil
}
