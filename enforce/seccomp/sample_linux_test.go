package seccomp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
)

// sample is a call that does no harm whatever the filter says: its descriptors do not exist (or its pointers lead
// nowhere), so the kernel itself refuses it too, with an errno the filter does not use for it.
type sample struct {
	name string
	args func(r *rand.Rand) [6]uint64
}

const (
	noFD      = ^uint64(0)
	noPointer = uint64(8) // below mmap_min_addr
)

// word is a random int argument: near one of the interesting values, or anything; the high half is noise, which the
// kernel does not read.
func word(r *rand.Rand, interesting ...uint32) uint64 {
	v := r.Uint32()
	if r.IntN(4) > 0 {
		v = interesting[r.IntN(len(interesting))]
	}
	if r.IntN(4) == 0 {
		v ^= 1 << r.IntN(32)
	}
	return uint64(r.Uint32())<<32 | uint64(v)
}

var samples = []sample{
	{"socket", func(r *rand.Rand) [6]uint64 {
		return [6]uint64{word(r, 1, 2, 10, 16, 17, 38, 40), word(r, 1, 2, 3, 5, 0x80001), word(r, 0, 1, 6, 17, 132, 255, 262)}
	}},
	{"socketpair", func(r *rand.Rand) [6]uint64 {
		return [6]uint64{word(r, 1, 2, 40), word(r, 1, 2, 3, 5), 0, noPointer}
	}},
	{"ioctl", func(r *rand.Rand) [6]uint64 {
		return [6]uint64{noFD, word(r, 0x5401, 0x5412, 0x541c, 0x5423, 0x5413)}
	}},
	{"setsockopt", func(r *rand.Rand) [6]uint64 {
		return [6]uint64{noFD, word(r, 1, 6, 17, 41), word(r, 1, 23, 30, 31)}
	}},
	{"sendto", func(r *rand.Rand) [6]uint64 { return [6]uint64{noFD, noPointer, 1, word(r, 0, 0x4000, 0x20000000)} }},
	{"sendmsg", func(r *rand.Rand) [6]uint64 { return [6]uint64{noFD, noPointer, word(r, 0, 0x4000, 0x20000000)} }},
	{"fchmod", func(r *rand.Rand) [6]uint64 { return [6]uint64{noFD, word(r, 0o644, 0o2755, 0o4755, 0o6755)} }},
	{"fchmodat", func(r *rand.Rand) [6]uint64 { return [6]uint64{noFD, noPointer, word(r, 0o644, 0o4755)} }},
	{"mknodat", func(r *rand.Rand) [6]uint64 {
		return [6]uint64{noFD, noPointer, word(r, 0o644, 0o10600, 0o20600, 0o60600, 0o100644, 0o104755, 0o140600)}
	}},
	{"openat", func(r *rand.Rand) [6]uint64 {
		return [6]uint64{noFD, noPointer, word(r, 0, 2, 0o101, 0o20200002), word(r, 0o644, 0o4755, 0o2755)}
	}},
	{"renameat2", func(r *rand.Rand) [6]uint64 { return [6]uint64{noFD, noPointer, noFD, noPointer, word(r, 0, 1, 2, 4)} }},
	{"seccomp", func(r *rand.Rand) [6]uint64 { return [6]uint64{word(r, 1, 2, 3), word(r, 8, 9, 24), noPointer} }},
}

type sampled struct {
	Name  string
	Args  [6]uint64
	Errno int
}

func takeSamples(numbers map[string]uint32) []sampled {
	random := rand.New(rand.NewPCG(20, 26))
	var got []sampled
	for _, s := range samples {
		for range 400 {
			args := s.args(random)
			if s.name == "seccomp" && uint32(args[0]) == 0 {
				continue // strict mode, for good
			}
			errno := raw(uintptr(numbers[s.name]), uintptr(args[0]), uintptr(args[1]), uintptr(args[2]), uintptr(args[3]), uintptr(args[4]), uintptr(args[5]))
			got = append(got, sampled{s.name, args, errno})
		}
	}
	return got
}

// elsewhere tells the errnos the kernel gives for a sample the filter lets through, if they could be mistaken.
func elsewhere(s sampled, errno int) bool {
	switch s.Name {
	case "socket", "socketpair":
		// The kernel knows these errnos too: type flags it does not take, a protocol that does not fit the type.
		return errno != ePERM && errno != eNOSYS
	case "seccomp", "renameat2":
		return errno == eINVAL || errno == int(syscall.EFAULT) || errno == int(syscall.EBADF) || errno == eOPNOTSUPP
	}
	return errno == int(syscall.EBADF) || errno == int(syscall.EFAULT) || errno == eINVAL
}

// TestKernelAgreesOnArguments runs random arguments through the kernel, with the filter loaded, and through the
// interpreter.
func TestKernelAgreesOnArguments(t *testing.T) {
	calls := numbers(t, runtime.GOARCH)
	for _, v := range Variants() {
		prog := program(t, v, runtime.GOARCH)
		var got []sampled
		answer(t, rerun(t, "samples", v), &got)
		allowed, refused := 0, 0
		for _, s := range got {
			a := verdict(t, prog, Data{Nr: calls[s.Name], Arch: auditArch[runtime.GOARCH], Args: s.Args})
			want, isRefusal := a.Errno()
			agrees := isRefusal && s.Errno == int(want) || a == Allow && elsewhere(s, s.Errno)
			if isRefusal {
				refused++
			} else {
				allowed++
			}
			if !agrees {
				t.Errorf("%s: %s%#x: kernel %v, interpreter %v", v, s.Name, s.Args, syscall.Errno(s.Errno), a)
			}
		}
		if allowed < 300 || refused < 300 {
			t.Errorf("%s: %s", v, fmt.Sprintf("%d allowed and %d refused: the sample is one-sided", allowed, refused))
		}
	}
}
