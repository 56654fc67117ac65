package egress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cilium/ebpf"
)

// place is where a member of a kernel structure lies. The library could find it too, and would read all types of the
// kernel for that, 30 ms of each session; these few take one walk over them.
type place struct{ structure, member string }

// places are the variables of the programs, each a sum of offsets.
var places = map[string][]place{
	programsVarTaskNsproxy:    {{"task_struct", "nsproxy"}},
	programsVarNsproxyMounts:  {{"nsproxy", "mnt_ns"}},
	programsVarMountsNumber:   {{"mnt_namespace", "ns"}, {"ns_common", "inum"}},
	programsVarBinprmFilename: {{"linux_binprm", "filename"}},
}

// kernelTypes is where the kernel describes its own types (CONFIG_DEBUG_INFO_BTF).
const kernelTypes = "/sys/kernel/btf/vmlinux"

// maxTypes bounds what is read of it; kernels with everything built in have some 10 MB.
const maxTypes = 64 << 20

func setPlaces(spec *ebpf.CollectionSpec) error {
	raw, err := readTypes(kernelTypes)
	if err != nil {
		return err
	}
	found, err := findPlaces(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", kernelTypes, err)
	}
	for name, sum := range places {
		var offset uint32
		for _, p := range sum {
			o, ok := found[p]
			if !ok {
				return fmt.Errorf("%s does not tell where %s is in struct %s", kernelTypes, p.member, p.structure)
			}
			offset += o
		}
		if err := spec.Variables[name].Set(offset); err != nil {
			return err
		}
	}
	return nil
}

func readTypes(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxTypes {
		return nil, fmt.Errorf("%s has %d bytes", name, info.Size())
	}
	raw := make([]byte, info.Size())
	_, err = io.ReadFull(f, raw)
	return raw, err
}

// Kinds of types and what follows the three words of each (Documentation/bpf/btf.rst in the kernel).
const (
	kindArray     = 3
	kindStruct    = 4
	kindUnion     = 5
	kindEnum      = 6
	kindFuncProto = 13
	kindVar       = 14
	kindDatasec   = 15
	kindDeclTag   = 17
	kindEnum64    = 19
	kindInt       = 1
	maxKind       = 19
)

var errTypes = errors.New("it is not in the format that is known here")

// findPlaces gives the offsets, in bytes, of the members that places names.
func findPlaces(raw []byte) (map[place]uint32, error) {
	const header = 24
	order := binary.NativeEndian
	if len(raw) < header || order.Uint16(raw) != 0xeb9f {
		return nil, errTypes
	}
	start := uint64(order.Uint32(raw[4:]))
	cut := func(at int) ([]byte, bool) {
		from := start + uint64(order.Uint32(raw[at:]))
		to := from + uint64(order.Uint32(raw[at+4:]))
		if from > to || to > uint64(len(raw)) {
			return nil, false
		}
		return raw[from:to], true
	}
	types, ok1 := cut(8)
	texts, ok2 := cut(16)
	if !ok1 || !ok2 {
		return nil, errTypes
	}
	wanted := map[uint32][]place{}
	for _, sum := range places {
		for _, p := range sum {
			if at := bytes.Index(texts, []byte("\x00"+p.structure+"\x00")); at >= 0 {
				wanted[uint32(at+1)] = append(wanted[uint32(at+1)], p)
			}
		}
	}
	return walkTypes(types, texts, wanted)
}

// walkTypes goes over all types and looks into those whose name is wanted.
func walkTypes(types, texts []byte, wanted map[uint32][]place) (map[place]uint32, error) {
	order := binary.NativeEndian
	found := map[place]uint32{}
	for len(types) > 0 {
		if len(types) < 12 {
			return nil, errTypes
		}
		info := order.Uint32(types[4:])
		kind, count := info>>24&0x1f, int(info&0xffff)
		length := 12 + extra(kind, count)
		if kind == 0 || kind > maxKind || length > len(types) {
			return nil, errTypes
		}
		if kind == kindStruct {
			for _, p := range wanted[order.Uint32(types)] {
				if offset, ok := memberOffset(types[12:length], texts, p.member, info>>31 != 0); ok {
					found[p] = offset
				}
			}
		}
		types = types[length:]
	}
	return found, nil
}

// extra is how many bytes follow the three words of a type.
func extra(kind uint32, count int) int {
	switch kind {
	case kindInt, kindVar, kindDeclTag:
		return 4
	case kindArray:
		return 12
	case kindStruct, kindUnion, kindDatasec, kindEnum64:
		return 12 * count
	case kindEnum, kindFuncProto:
		return 8 * count
	}
	return 0
}

// memberOffset finds a member of a structure. With bit fields the offset has their size in its highest byte.
func memberOffset(members, texts []byte, name string, fields bool) (uint32, bool) {
	for ; len(members) >= 12; members = members[12:] {
		at, bits := binary.NativeEndian.Uint32(members), binary.NativeEndian.Uint32(members[8:])
		if uint64(at) >= uint64(len(texts)) || !bytes.HasPrefix(texts[at:], []byte(name+"\x00")) {
			continue
		}
		if fields {
			bits &= 1<<24 - 1
		}
		return bits / 8, bits%8 == 0
	}
	return 0, false
}
