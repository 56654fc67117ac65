package seccomp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Linux errnos, the same on both architectures; package syscall has those of the machine that runs the test.
const (
	ePERM, eIO, eACCES, eINVAL, eNOTTY, eNOSYS           = 1, 5, 13, 22, 25, 38
	eNOPROTOOPT, ePROTONOSUPPORT, eSOCKTNOSUPPORT        = 92, 93, 94
	eOPNOTSUPP, eAFNOSUPPORT                             = 95, 97
	garbage                                       uint64 = 0xdeadbeef << 32 // high half of an int argument
)

func refuse(errno uint16) Action { return Refuse | Action(errno) }

var auditArch = map[string]uint32{"amd64": AuditArchAMD64, "arm64": AuditArchARM64}

// callNumbers reads the tables of golang.org/x/sys, which know more calls than the libseccomp that made the filters.
var callNumbers = sync.OnceValues(func() (map[string]map[string]uint32, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		return nil, fmt.Errorf("go list golang.org/x/sys: %w", err)
	}
	line := regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+= (\d+)$`)
	tables := map[string]map[string]uint32{}
	for _, arch := range Architectures() {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "unix", "zsysnum_linux_"+arch+".go"))
		if err != nil {
			return nil, err
		}
		tables[arch] = map[string]uint32{}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			nr, err := strconv.ParseUint(m[2], 10, 32)
			if err != nil {
				return nil, err
			}
			tables[arch][strings.ToLower(m[1])] = uint32(nr)
		}
	}
	return tables, nil
})

func numbers(t testing.TB, arch string) map[string]uint32 {
	t.Helper()
	tables, err := callNumbers()
	if err != nil {
		t.Fatal(err)
	}
	if len(tables[arch]) < 300 {
		t.Fatalf("%d system calls for %s in x/sys: the table was not read", len(tables[arch]), arch)
	}
	return tables[arch]
}

func program(t testing.TB, v Variant, arch string) []Instruction {
	t.Helper()
	prog, err := Program(v, arch)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

func verdict(t testing.TB, prog []Instruction, d Data) Action {
	t.Helper()
	a, err := Verdict(prog, d)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func everyFilter(t *testing.T, f func(t *testing.T, v Variant, arch string, prog []Instruction)) {
	for _, v := range Variants() {
		for _, arch := range Architectures() {
			t.Run(string(v)+"/"+arch, func(t *testing.T) { f(t, v, arch, program(t, v, arch)) })
		}
	}
}

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// The expectations are written down here a second time, on purpose not shared with the generator.
var (
	wantPerm = set(`acct adjtimex bpf chroot clock_adjtime clock_settime delete_module fanotify_init fanotify_mark
		finit_module fsconfig fsmount fsopen fspick init_module ioperm iopl kcmp kexec_file_load kexec_load mount
		mount_setattr move_mount name_to_handle_at open_by_handle_at open_tree pidfd_getfd pivot_root process_madvise
		quotactl quotactl_fd reboot setdomainname sethostname setns settimeofday swapoff swapon syslog umount2
		userfaultfd vhangup`)
	wantTracing = set(`ptrace process_vm_readv process_vm_writev`)
	wantAbsent  = set(`_sysctl add_key afs_syscall arch_specific_syscall clone3 create_module epoll_ctl_old
		epoll_wait_old file_getattr file_setattr get_kernel_syms get_mempolicy get_thread_area getpmsg io_uring_enter
		io_uring_register io_uring_setup keyctl listmount listns lookup_dcookie lsm_get_self_attr lsm_list_modules
		lsm_set_self_attr mbind memfd_secret migrate_pages modify_ldt move_pages nfsservctl open_tree_attr openat2
		process_mrelease putpmsg query_module remap_file_pages request_key rseq_slice_yield security set_mempolicy
		set_mempolicy_home_node set_thread_area statmount sysfs tuxcall uselib ustat vserver`)
	wantConditional = set(`renameat2 chmod fchmod fchmodat fchmodat2 creat open openat mknod mknodat clone unshare sendto sendmsg
		sendmmsg ioctl personality seccomp setsockopt socket socketpair`)
	// Unknown to the library that makes the filters, and so left at ENOSYS on arm64.
	wantNewer = set(`uretprobe uprobe mseal setxattrat getxattrat listxattrat removexattrat`)
	wantIPC   = set(`mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd
		semctl semget semop semtimedop shmat shmctl shmdt shmget`)
)

func isBare(v Variant) bool { return v == Bare || v == BareOffline }

// expected returns the verdict on a call whose arguments do not matter.
func expected(v Variant, arch, name string) Action {
	switch {
	case wantAbsent[name], wantNewer[name] && arch == "arm64", wantIPC[name] && isBare(v):
		return refuse(eNOSYS)
	case name == "perf_event_open":
		return refuse(eACCES)
	case wantPerm[name], wantTracing[name] && v != Debug:
		return refuse(ePERM)
	case name == "truncate" && v == BareOffline:
		return refuse(eACCES)
	case name == "listen" && isBare(v):
		return refuse(eOPNOTSUPP)
	}
	return Allow
}

// misclassified compares a filter with the tables, for every call of an architecture and for numbers without a name.
func misclassified(t *testing.T, v Variant, arch string, prog []Instruction) []string {
	ones := [6]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	named := map[uint32]bool{}
	var wrong []string
	for name, nr := range numbers(t, arch) {
		named[nr] = true
		if wantConditional[name] || name == "prlimit64" && isBare(v) {
			continue
		}
		for _, args := range [][6]uint64{{}, ones} {
			got := verdict(t, prog, Data{Nr: nr, Arch: auditArch[arch], Args: args})
			if want := expected(v, arch, name); got != want {
				wrong = append(wrong, fmt.Sprintf("%s (%d) args %#x: %v, want %v", name, nr, args[0], got, want))
			}
		}
	}
	for nr := uint32(0); nr < 1<<14; nr++ {
		if named[nr] {
			continue
		}
		if got := verdict(t, prog, Data{Nr: nr, Arch: auditArch[arch]}); got != refuse(eNOSYS) {
			wrong = append(wrong, fmt.Sprintf("unnamed call %d: %v, want ENOSYS", nr, got))
		}
	}
	return wrong
}

func TestEveryCallIsClassified(t *testing.T) {
	everyFilter(t, func(t *testing.T, v Variant, arch string, prog []Instruction) {
		for _, wrong := range misclassified(t, v, arch, prog) {
			t.Error(wrong)
		}
	})
}

// TestClassificationNotices shows that the comparison fails: a filter that allows one errno's calls, one of another
// variant, and one that refuses everything.
func TestClassificationNotices(t *testing.T) {
	everyFilter(t, func(t *testing.T, v Variant, arch string, prog []Instruction) {
		for _, errno := range []uint16{ePERM, eACCES, eNOSYS} {
			open := slices.Clone(prog)
			for i := range open {
				if open[i].Code == opReturn && open[i].K == uint32(refuse(errno)) {
					open[i].K = uint32(Allow)
				}
			}
			if misclassified(t, v, arch, open) == nil {
				t.Errorf("nobody noticed that errno %d is allowed", errno)
			}
		}
		if misclassified(t, v, arch, []Instruction{{Code: opReturn, K: uint32(refuse(ePERM))}}) == nil {
			t.Error("nobody noticed a filter that refuses everything")
		}
	})
	if misclassified(t, Native, "amd64", program(t, Debug, "amd64")) == nil || misclassified(t, Bare, "arm64", program(t, Native, "arm64")) == nil {
		t.Error("nobody noticed the filter of another variant")
	}
}

func TestNoOtherWayIn(t *testing.T) {
	everyFilter(t, func(t *testing.T, v Variant, arch string, prog []Instruction) {
		foreign := []uint32{AuditArchI386, AuditArchARM, 0, ^uint32(0), auditArch[arch] ^ 0x80000000, auditArch[arch] ^ 0x40000000}
		for other, id := range auditArch {
			if other != arch {
				foreign = append(foreign, id)
			}
		}
		for nr := uint32(0); nr < 1024; nr++ {
			for _, id := range foreign {
				if got := verdict(t, prog, Data{Nr: nr, Arch: id}); got != KillProcess {
					t.Errorf("call %d of architecture %#x: %v, want kill", nr, id, got)
				}
			}
			for _, high := range []uint32{0x40000000, 0x80000000, 0xc0000000} {
				if got := verdict(t, prog, Data{Nr: nr | high, Arch: auditArch[arch]}); got == Allow {
					t.Errorf("call %#x: allowed", nr|high)
				}
			}
		}
	})
}

// call is one row: a call by name, its arguments, and what must come of it.
type call struct {
	name string
	args [6]uint64
	want Action
}

// rowsOfEvery hold in every variant.
var rowsOfEvery = []call{
	{"clone", [6]uint64{0x01200011}, Allow},          // fork by glibc
	{"clone", [6]uint64{0x003d0f00}, Allow},          // pthread_create
	{"clone", [6]uint64{0x00004111 | 0x1000}, Allow}, // posix_spawn, Go with CLONE_PIDFD
	{"unshare", [6]uint64{0x200}, Allow},
	{"unshare", [6]uint64{0x80}, refuse(ePERM)},
	{"ioctl", [6]uint64{0, 0x5401}, Allow},
	{"ioctl", [6]uint64{0, 0x5412}, refuse(eIO)},
	{"ioctl", [6]uint64{0, 0x541c}, refuse(eNOTTY)},
	{"ioctl", [6]uint64{0, 0x5423}, refuse(eINVAL)},
	{"ioctl", [6]uint64{0, 0x5413}, Allow},
	{"ioctl", [6]uint64{0, 0x80045430}, Allow},
	{"personality", [6]uint64{0}, Allow},
	{"personality", [6]uint64{0xffffffff}, Allow},
	{"personality", [6]uint64{0x0040000}, Allow},
	{"personality", [6]uint64{0x0400000}, refuse(eINVAL)}, // READ_IMPLIES_EXEC
	{"personality", [6]uint64{0x0440000}, refuse(eINVAL)}, // with ADDR_NO_RANDOMIZE
	{"personality", [6]uint64{8}, refuse(eINVAL)},         // PER_LINUX32
	{"seccomp", [6]uint64{0}, Allow},                      // strict mode
	{"seccomp", [6]uint64{1, 1}, Allow},                   // filter, TSYNC
	{"seccomp", [6]uint64{1, 8}, refuse(eINVAL)},          // listener
	{"seccomp", [6]uint64{1, 8 | 1 | 16}, refuse(eINVAL)}, // listener with other flags
	{"seccomp", [6]uint64{2}, Allow},                      // which actions exist
	{"seccomp", [6]uint64{3}, refuse(eINVAL)},             // sizes of notifications
	{"sendto", [6]uint64{3, 0, 0, 0x4000}, Allow},         // MSG_NOSIGNAL
	{"sendto", [6]uint64{3, 0, 0, 0x20000000}, refuse(eOPNOTSUPP)},
	{"sendto", [6]uint64{3, 0, 0, 0x20004000}, refuse(eOPNOTSUPP)},
	{"sendmsg", [6]uint64{3, 0, 0x20000000}, refuse(eOPNOTSUPP)},
	{"sendmsg", [6]uint64{3, 0, 0x40}, Allow},
	{"sendmmsg", [6]uint64{3, 0, 1, 0x20000000}, refuse(eOPNOTSUPP)},
	{"sendmmsg", [6]uint64{3, 0, 1, 0}, Allow},
	{"setsockopt", [6]uint64{3, 6, 30}, refuse(eNOPROTOOPT)},
	{"setsockopt", [6]uint64{3, 6, 31}, refuse(eNOPROTOOPT)},
	{"setsockopt", [6]uint64{3, 6, 1}, Allow},
	{"setsockopt", [6]uint64{3, 1, 30}, Allow},
	{"mknodat", [6]uint64{0, 0, 0o100644}, Allow},
	{"mknodat", [6]uint64{0, 0, 0o644}, Allow},
	{"mknodat", [6]uint64{0, 0, 0o010600}, Allow},
	{"mknodat", [6]uint64{0, 0, 0o140600}, Allow},
	{"mknodat", [6]uint64{0, 0, 0o020600}, refuse(ePERM)},
	{"mknodat", [6]uint64{0, 0, 0o060600}, refuse(ePERM)},
	{"mknodat", [6]uint64{0, 0, 0o104755}, refuse(ePERM)},
	{"mknodat", [6]uint64{0, 0, 0o102755}, refuse(ePERM)},
	{"renameat2", [6]uint64{0, 0, 0, 0, 1}, Allow},
	{"renameat2", [6]uint64{0, 0, 0, 0, 2}, Allow},
	{"renameat2", [6]uint64{0, 0, 0, 0, 4}, refuse(eINVAL)},
	{"mknod", [6]uint64{0, 0o060600}, refuse(ePERM)},
	{"mknod", [6]uint64{0, 0o010600}, Allow},
	{"fchmod", [6]uint64{0, 0o755}, Allow},
	{"fchmod", [6]uint64{0, 0o2755}, Allow},
	{"fchmod", [6]uint64{0, 0o4755}, refuse(ePERM)},
	{"chmod", [6]uint64{0, 0o4000}, refuse(ePERM)},
	{"fchmodat", [6]uint64{0, 0, 0o6755}, refuse(ePERM)},
	{"fchmodat", [6]uint64{0, 0, 0o1777}, Allow},
	{"fchmodat2", [6]uint64{0, 0, 0o4755}, refuse(ePERM)},
	{"creat", [6]uint64{0, 0o4755}, refuse(ePERM)},
	{"creat", [6]uint64{0, 0o644}, Allow},
	{"openat", [6]uint64{0, 0, 0o2, 0o7777}, Allow}, // nothing is created, the mode is garbage
	{"openat", [6]uint64{0, 0, 0o101, 0o644}, Allow},
	{"openat", [6]uint64{0, 0, 0o101, 0o4755}, refuse(ePERM)},
	{"openat", [6]uint64{0, 0, 0o101, 0o2755}, refuse(ePERM)},
	{"openat", [6]uint64{0, 0, 0o20200002, 0o600}, Allow},
	{"openat", [6]uint64{0, 0, 0o20200002, 0o4600}, refuse(ePERM)},
	{"openat", [6]uint64{0, 0, 0o20200102, 0o4600}, refuse(ePERM)},
	{"open", [6]uint64{0, 0o101, 0o4755}, refuse(ePERM)},
	{"open", [6]uint64{0, 0o1, 0o4755}, Allow},
	{"socketpair", [6]uint64{1, 1}, Allow},
	{"socketpair", [6]uint64{2, 1}, refuse(eOPNOTSUPP)},
	{"socketpair", [6]uint64{40, 1}, refuse(eOPNOTSUPP)},
}

func argumentRows(v Variant) []call {
	rows := slices.Clone(rowsOfEvery)
	for _, namespace := range []uint64{0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000} {
		for _, name := range []string{"clone", "unshare"} {
			rows = append(rows, call{name, [6]uint64{namespace}, refuse(ePERM)}, call{name, [6]uint64{namespace | 0x11 | 0x100}, refuse(ePERM)})
		}
	}
	other := Allow
	if isBare(v) {
		other = refuse(ePERM)
	}
	blind := Allow // truncation that asks for no write access
	if v == BareOffline {
		blind = refuse(eACCES)
	}
	for flags, want := range map[uint64]Action{
		0o1000: blind, 0o1003: blind, 0o1100: blind, 0o1103: blind, 0o1001: Allow, 0o1002: Allow, 0o1101: Allow, 0o1102: Allow, 0o3: Allow,
	} {
		rows = append(rows, call{"openat", [6]uint64{0, 0, flags, 0o644}, want}, call{"open", [6]uint64{0, flags, 0o644}, want})
	}
	return append(rows, call{"prlimit64", [6]uint64{0, 7}, Allow}, call{"prlimit64", [6]uint64{4711, 7}, other})
}

// TestArguments also runs each row with noise in the high halves of the registers, which the kernel does not read:
// the verdict must stay the same, in both directions.
func TestArguments(t *testing.T) {
	everyFilter(t, func(t *testing.T, v Variant, arch string, prog []Instruction) {
		calls := numbers(t, arch)
		for _, row := range argumentRows(v) {
			nr, ok := calls[row.name]
			if !ok {
				if arch == "amd64" {
					t.Errorf("%s: no such call", row.name)
				}
				continue
			}
			for _, noise := range []uint64{0, garbage, 1 << 32} {
				d := Data{Nr: nr, Arch: auditArch[arch], Args: row.args}
				for i := range d.Args {
					d.Args[i] |= noise
				}
				if got := verdict(t, prog, d); got != row.want {
					t.Errorf("%s%#x with %#x: %v, want %v", row.name, row.args, noise, got, row.want)
				}
			}
		}
	})
}

func wantSocket(v Variant, family, kind, protocol uint32) bool {
	switch family {
	case 1:
		return !isBare(v) && (kind&15 == 1 || kind&15 == 2 || kind&15 == 5)
	case 2, 10:
		return kind&15 == 1 && v != BareOffline && (protocol == 0 || protocol == 6) ||
			kind&15 == 2 && !isBare(v) && (protocol == 0 || protocol == 17)
	case 16:
		return (kind&15 == 2 || kind&15 == 3) && protocol == 0
	}
	return false
}

func TestSockets(t *testing.T) {
	everyFilter(t, func(t *testing.T, v Variant, arch string, prog []Instruction) {
		nr := numbers(t, arch)["socket"]
		check := func(family, kind, protocol uint32, noise uint64) {
			d := Data{Nr: nr, Arch: auditArch[arch], Args: [6]uint64{uint64(family) | noise, uint64(kind) | noise, uint64(protocol) | noise}}
			got, want := verdict(t, prog, d), wantSocket(v, family, kind, protocol)
			if (got == Allow) != want || got == KillProcess {
				t.Errorf("socket(%d, %#x, %d): %v, allowed is %v", family, kind, protocol, got, want)
			}
		}
		for family := uint32(0); family < 64; family++ {
			for kind := uint32(0); kind < 16; kind++ {
				for _, protocol := range []uint32{0, 1, 2, 6, 7, 16, 17, 33, 58, 132, 136, 255, 256, 262, 1<<16 + 6, 1<<31 | 17} {
					check(family, kind|0x80800, protocol, 0)
				}
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 200_000 {
			family := []uint32{1, 2, 10, 16, random.Uint32()}[random.IntN(5)] ^ 1<<random.IntN(32)*uint32(random.IntN(2))
			protocol := []uint32{0, 6, 17, random.Uint32()}[random.IntN(4)] ^ 1<<random.IntN(32)*uint32(random.IntN(2))
			check(family, random.Uint32(), protocol, uint64(random.Uint32())<<32)
		}
	})
}

// TestErrnos pins the refusals that callers have a way round for.
func TestErrnos(t *testing.T) {
	rows := []struct {
		args [3]uint64
		want uint16
	}{
		{[3]uint64{40, 1, 0}, eAFNOSUPPORT},      // VSOCK
		{[3]uint64{17, 3, 0x300}, eAFNOSUPPORT},  // PACKET
		{[3]uint64{38, 5, 0}, eAFNOSUPPORT},      // ALG
		{[3]uint64{2, 1, 262}, ePROTONOSUPPORT},  // MPTCP: Go falls back on this one
		{[3]uint64{10, 1, 132}, ePROTONOSUPPORT}, // SCTP
		{[3]uint64{2, 3, 255}, ePERM},            // RAW
		{[3]uint64{10, 5, 132}, eSOCKTNOSUPPORT}, // SCTP, SEQPACKET
		{[3]uint64{2, 6, 33}, eSOCKTNOSUPPORT},   // DCCP
		{[3]uint64{16, 3, 9}, ePROTONOSUPPORT},   // NETLINK AUDIT
		{[3]uint64{16, 3, 12}, ePROTONOSUPPORT},  // NETLINK NETFILTER
	}
	everyFilter(t, func(t *testing.T, v Variant, arch string, prog []Instruction) {
		nr := numbers(t, arch)["socket"]
		for _, row := range rows {
			want := row.want
			if internet := row.args[0] == 2 || row.args[0] == 10; internet && v == BareOffline {
				want = eAFNOSUPPORT
			}
			got := verdict(t, prog, Data{Nr: nr, Arch: auditArch[arch], Args: [6]uint64{row.args[0], row.args[1], row.args[2]}})
			if got != refuse(want) {
				t.Errorf("socket%d: %v, want errno %d", row.args, got, want)
			}
		}
		ping := verdict(t, prog, Data{Nr: nr, Arch: auditArch[arch], Args: [6]uint64{2, 2, 1}})
		want := map[Variant]uint16{Native: ePROTONOSUPPORT, Debug: ePROTONOSUPPORT, Bare: eACCES, BareOffline: eAFNOSUPPORT}
		if ping != refuse(want[v]) {
			t.Errorf("ping socket: %v, want errno %d", ping, want[v])
		}
	})
}

func TestProgramRefusesUnknown(t *testing.T) {
	for _, row := range []struct {
		v    Variant
		arch string
	}{{"", "amd64"}, {"Native", "amd64"}, {Native, "riscv64"}, {Native, ""}, {"../x", "amd64"}} {
		if prog, err := Program(row.v, row.arch); !errors.Is(err, ErrUnsupported) || prog != nil {
			t.Errorf("Program(%q, %q) = %d instructions, %v", row.v, row.arch, len(prog), err)
		}
	}
}

func TestVerdictRefusesBadPrograms(t *testing.T) {
	rows := map[string][]Instruction{
		"empty":          {},
		"no verdict":     {{Code: opLoad}},
		"load past data": {{Code: opLoad, K: 64}, {Code: opReturn, K: uint32(Allow)}},
		"odd load":       {{Code: opLoad, K: 3}, {Code: opReturn, K: uint32(Allow)}},
		"far jump":       {{Code: opJump, K: ^uint32(0)}, {Code: opReturn, K: uint32(Allow)}},
		"jump over end":  {{Code: opEqual, JT: 255}, {Code: opReturn, K: uint32(Allow)}},
		"opcode":         {{Code: 0x16}, {Code: opReturn, K: uint32(Allow)}},
	}
	for name, prog := range rows {
		if a, err := Verdict(prog, Data{}); !errors.Is(err, ErrProgram) || a != KillProcess {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
}

func FuzzVerdict(f *testing.F) {
	raw, err := programs.ReadFile("amd64.bpf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, uint32(1), AuditArchAMD64, uint64(0))
	f.Add([]byte{0x06, 0, 0, 0, 0, 0, 0xff, 0x7f}, uint32(1), AuditArchAMD64, uint64(0))
	f.Add([]byte{0x05, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, uint32(1), AuditArchARM64, uint64(1))
	f.Fuzz(func(t *testing.T, raw []byte, nr, arch uint32, arg uint64) {
		prog, err := decode(raw)
		if err != nil {
			return
		}
		a, err := Verdict(prog, Data{Nr: nr, Arch: arch, Args: [6]uint64{arg, arg, arg, arg, arg, arg}})
		if err != nil && a != KillProcess {
			t.Fatalf("an error came with %v", a)
		}
	})
}

func BenchmarkVerdict(b *testing.B) {
	prog := program(b, Native, "amd64")
	for b.Loop() {
		if _, err := Verdict(prog, Data{Nr: 257, Arch: AuditArchAMD64}); err != nil {
			b.Fatal(err)
		}
	}
}
