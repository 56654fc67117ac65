//go:build seccompgen

// Command seccompgen compiles the system-call filters of package seccomp with libseccomp and writes, for every
// architecture and variant, the program the cell loads (NAME.bpf) and the library's readable form of it (NAME.pfc).
//
// It is the only code that needs cgo and libseccomp, it runs at build time, and its output is committed. Review a
// change by its policy tables and by the .pfc files, not by the binary ones.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sort"

	libseccomp "github.com/seccomp/libseccomp-golang"
)

// libraryVersion is the one of Debian 12. Another version may put the same rules in another order, and a difference
// that nobody asked for hides one that somebody should read.
const libraryVersion = "2.5.4"

func main() {
	log.SetFlags(0)
	log.SetPrefix("seccompgen: ")
	out := flag.String("out", ".", "write the filters to `folder`")
	anyVersion := flag.Bool("any-version", false, "accept a libseccomp other than "+libraryVersion)
	flag.Parse()

	major, minor, micro := libseccomp.GetLibraryVersion()
	if v := fmt.Sprintf("%d.%d.%d", major, minor, micro); v != libraryVersion && !*anyVersion {
		log.Fatalf("libseccomp is %s; the committed filters are made with %s (Debian 12)", v, libraryVersion)
	}
	for arch, token := range map[string]libseccomp.ScmpArch{"amd64": libseccomp.ArchAMD64, "arm64": libseccomp.ArchARM64} {
		for _, variant := range []string{"native", "debug", "bare", "bare-offline"} {
			if err := generate(*out, target{arch, token, variant}); err != nil {
				log.Fatalf("%s %s: %v", arch, variant, err)
			}
		}
	}
}

type target struct {
	arch    string
	token   libseccomp.ScmpArch
	variant string
}

func (t target) name() string {
	if t.variant == "native" {
		return t.arch
	}
	return t.arch + "-" + t.variant
}

func generate(folder string, t target) error {
	filter, err := t.filter()
	if err != nil {
		return err
	}
	defer filter.Release()
	for suffix, export := range map[string]func(*os.File) error{".bpf": filter.ExportBPF, ".pfc": filter.ExportPFC} {
		f, err := os.Create(filepath.Join(folder, t.name()+suffix))
		if err != nil {
			return err
		}
		if err := export(f); err != nil {
			f.Close()
			return fmt.Errorf("export %s: %w", f.Name(), err)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// filter builds the whole filter: default ENOSYS, a foreign architecture kills the process.
func (t target) filter() (*libseccomp.ScmpFilter, error) {
	f, err := libseccomp.NewFilter(act(enosys))
	if err != nil {
		return nil, err
	}
	if err := t.prepare(f); err != nil {
		return nil, err
	}
	calls, err := t.calls()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(calls))
	for name := range calls {
		names = append(names, name)
	}
	sort.Strings(names) // the same input gives the same bytes
	for _, name := range names {
		if err := t.add(f, name, calls[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	numbers := numbered[t.arch]
	for name, nr := range numbers {
		if _, err := libseccomp.GetSyscallFromName(name); err == nil {
			return nil, fmt.Errorf("%s (%d) is known to libseccomp: list it by name", name, nr)
		}
	}
	for _, nr := range sortedValues(numbers) {
		if err := f.AddRuleExact(libseccomp.ScmpSyscall(nr), libseccomp.ActAllow); err != nil {
			return nil, fmt.Errorf("call %d: %w", nr, err)
		}
	}
	return f, nil
}

func (t target) prepare(f *libseccomp.ScmpFilter) error {
	native, err := libseccomp.GetNativeArch()
	if err != nil {
		return err
	}
	if native != t.token {
		if err := f.AddArch(t.token); err != nil {
			return err
		}
		if err := f.RemoveArch(native); err != nil {
			return err
		}
	}
	if err := f.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return err
	}
	return f.SetOptimize(2) // a binary tree by number instead of a chain
}

// calls merges the tables into one decision for each name and refuses a name that is listed twice.
func (t target) calls() (map[string]*node, error) {
	calls := conditional(t.variant)
	var twice []string
	put := func(a action, names ...string) {
		for _, name := range names {
			if _, ok := calls[name]; ok {
				twice = append(twice, name)
			}
			calls[name] = leaf(a)
		}
	}
	put(allow, allowed...)
	for a, names := range refused {
		put(a, names...)
	}
	if t.variant == "debug" {
		put(allow, tracing...)
	} else {
		put(eperm, tracing...)
	}
	if !ownNamespaces(t.variant) {
		put(eopnotsupp, "listen")
	} else {
		put(allow, "listen", "prlimit64")
		put(allow, ownIPC...)
	}
	if twice != nil {
		return nil, fmt.Errorf("listed twice: %q", twice)
	}
	return calls, nil
}

// add puts the rules of one call into the filter. libseccomp takes the number the call has on the machine that
// generates and translates it by name.
func (t target) add(f *libseccomp.ScmpFilter, name string, n *node) error {
	call, err := libseccomp.GetSyscallFromName(name)
	if err != nil {
		return err
	}
	there, err := libseccomp.GetSyscallFromNameByArch(name, t.token)
	if err != nil {
		return err
	}
	if there < 0 {
		if t.arch != "amd64" && slices.Contains(onlyAMD64, name) {
			return nil
		}
		return fmt.Errorf("not a call of %s", t.arch)
	}
	paths, err := n.flatten()
	if err != nil {
		return err
	}
	for _, p := range paths {
		if p.do == enosys {
			continue // the default
		}
		if err := addPath(f, call, p); err != nil {
			return err
		}
	}
	return nil
}

func addPath(f *libseccomp.ScmpFilter, call libseccomp.ScmpSyscall, p path) error {
	if len(p.conds) == 0 {
		return f.AddRuleExact(call, act(p.do))
	}
	var conds []libseccomp.ScmpCondition
	for _, c := range p.conds {
		made, err := libseccomp.MakeCondition(c.arg, libseccomp.CompareMaskedEqual, c.mask, c.value)
		if err != nil {
			return err
		}
		conds = append(conds, made)
	}
	return f.AddRuleConditionalExact(call, act(p.do), conds)
}

func act(a action) libseccomp.ScmpAction {
	if a == allow {
		return libseccomp.ActAllow
	}
	return libseccomp.ActErrno.SetReturnCode(int16(a))
}

func sortedValues(m map[string]int) []int {
	var vs []int
	for _, v := range m {
		vs = append(vs, v)
	}
	sort.Ints(vs)
	return vs
}
