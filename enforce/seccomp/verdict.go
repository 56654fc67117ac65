package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Instruction is struct sock_filter of linux/filter.h.
type Instruction struct {
	Code   uint16
	JT, JF uint8
	K      uint32
}

// instructionSize is the size of an Instruction in a .bpf file, little endian as on both architectures.
const instructionSize = 8

// maxInstructions is BPF_MAXINSNS: the kernel takes no longer program.
const maxInstructions = 4096

func decode(raw []byte) ([]Instruction, error) {
	if len(raw) == 0 || len(raw)%instructionSize != 0 || len(raw) > maxInstructions*instructionSize {
		return nil, fmt.Errorf("filter of %d bytes: want 1 to %d instructions of %d bytes", len(raw), maxInstructions, instructionSize)
	}
	prog := make([]Instruction, 0, len(raw)/instructionSize)
	for ; len(raw) > 0; raw = raw[instructionSize:] {
		prog = append(prog, Instruction{
			Code: binary.LittleEndian.Uint16(raw),
			JT:   raw[2],
			JF:   raw[3],
			K:    binary.LittleEndian.Uint32(raw[4:]),
		})
	}
	return prog, nil
}

// Data is struct seccomp_data: what a filter sees of a call.
type Data struct {
	Nr   uint32
	Arch uint32 // AUDIT_ARCH_*
	IP   uint64
	Args [6]uint64
}

// AuditArch values of linux/audit.h.
const (
	AuditArchAMD64 uint32 = 0xc000003e
	AuditArchI386  uint32 = 0x40000003
	AuditArchARM64 uint32 = 0xc00000b7
	AuditArchARM   uint32 = 0x40000028
)

// dataSize is sizeof(struct seccomp_data).
const dataSize = 64

// word returns the 32-bit word at an offset of the little-endian struct seccomp_data.
func (d *Data) word(offset uint32) (uint32, bool) {
	if offset%4 != 0 || offset >= dataSize {
		return 0, false
	}
	half := func(v uint64) uint32 { return uint32(v >> (8 * (offset % 8))) }
	switch {
	case offset == 0:
		return d.Nr, true
	case offset == 4:
		return d.Arch, true
	case offset < 16:
		return half(d.IP), true
	}
	return half(d.Args[(offset-16)/8]), true
}

// Action is the value a filter returns: SECCOMP_RET_* with data in the low 16 bits.
type Action uint32

// Actions of linux/seccomp.h that the filters use.
const (
	KillProcess Action = 0x80000000
	KillThread  Action = 0x00000000
	Refuse      Action = 0x00050000 // SECCOMP_RET_ERRNO, without its errno
	Allow       Action = 0x7fff0000
)

// Errno returns the errno a refusal carries.
func (a Action) Errno() (uint16, bool) { return uint16(a), a&0xffff0000 == Refuse }

func (a Action) String() string {
	errno, refused := a.Errno()
	switch {
	case refused:
		return fmt.Sprintf("errno %d", errno)
	case a == Allow:
		return "allow"
	case a == KillProcess:
		return "kill process"
	}
	return fmt.Sprintf("action %#x", uint32(a))
}

// ErrProgram is wrapped for a program that the kernel would not accept, or that uses instructions libseccomp does not
// generate.
var ErrProgram = errors.New("bad filter program")

// Classic BPF opcodes as libseccomp writes them; the names in linux/bpf_common.h are BPF_LD|BPF_W|BPF_ABS and so on.
const (
	opLoad   = 0x20
	opAnd    = 0x54
	opJump   = 0x05
	opEqual  = 0x15
	opAbove  = 0x25
	opAtMin  = 0x35
	opAnySet = 0x45
	opReturn = 0x06
)

// Verdict runs a filter over a call, as the kernel would, without loading it. Jumps go forward only, so it ends after
// at most len(prog) steps.
func Verdict(prog []Instruction, d Data) (Action, error) {
	var acc uint32
	for pc := 0; pc < len(prog); pc++ {
		in := prog[pc]
		switch in.Code {
		case opReturn:
			return Action(in.K), nil
		case opLoad:
			word, ok := d.word(in.K)
			if !ok {
				return KillProcess, fmt.Errorf("%w: instruction %d loads offset %d", ErrProgram, pc, in.K)
			}
			acc = word
		case opAnd:
			acc &= in.K
		case opJump:
			if in.K >= uint32(len(prog)) {
				return KillProcess, fmt.Errorf("%w: instruction %d jumps %d ahead", ErrProgram, pc, in.K)
			}
			pc += int(in.K)
		case opEqual, opAbove, opAtMin, opAnySet:
			pc += in.branch(acc)
		default:
			return KillProcess, fmt.Errorf("%w: instruction %d has opcode %#x", ErrProgram, pc, in.Code)
		}
	}
	return KillProcess, fmt.Errorf("%w: it ends without a verdict", ErrProgram)
}

// branch returns how many instructions a conditional jump leaves out.
func (in Instruction) branch(acc uint32) int {
	taken := false
	switch in.Code {
	case opEqual:
		taken = acc == in.K
	case opAbove:
		taken = acc > in.K
	case opAtMin:
		taken = acc >= in.K
	case opAnySet:
		taken = acc&in.K != 0
	}
	if taken {
		return int(in.JT)
	}
	return int(in.JF)
}
