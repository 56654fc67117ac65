package landlock

import "slices"

// right is one bit of the kernel's access masks and the ABI that brought it (linux/landlock.h).
type right struct {
	bit  uint64
	name string
	abi  int
}

// File rights.
const (
	execute uint64 = 1 << iota
	writeFile
	readFile
	readDir
	removeDir
	removeFile
	makeChar
	makeDir
	makeReg
	makeSock
	makeFifo
	makeBlock
	makeSym
	refer
	truncate
	ioctlDev
	resolveUnix
)

// newestABI is the newest one whose rights are listed here; a newer kernel takes an older ABI's masks.
const newestABI = 11

// The first ABI with network rights, with scopes, and with flags about the audit log (linux/landlock.h).
const (
	tcpABI   = 4
	scopeABI = 6
	logABI   = 7
)

var (
	fsRights = []right{
		{execute, "execute", 1}, {writeFile, "write_file", 1}, {readFile, "read_file", 1}, {readDir, "read_dir", 1},
		{removeDir, "remove_dir", 1}, {removeFile, "remove_file", 1}, {makeChar, "make_char", 1}, {makeDir, "make_dir", 1},
		{makeReg, "make_reg", 1}, {makeSock, "make_sock", 1}, {makeFifo, "make_fifo", 1}, {makeBlock, "make_block", 1},
		{makeSym, "make_sym", 1}, {refer, "refer", 2}, {truncate, "truncate", 3}, {ioctlDev, "ioctl_dev", 5},
		{resolveUnix, "resolve_unix", 9},
	}
	netRights = []right{
		{1 << 0, "bind_tcp", tcpABI}, {1 << 1, "connect_tcp", tcpABI}, {1 << 2, "bind_udp", 10}, {1 << 3, "connect_send_udp", 10},
	}
	scopes = []right{{1 << 0, "abstract_unix_socket", scopeABI}, {1 << 1, "signal", scopeABI}}
)

// What each kind of rule grants. makeChar and makeBlock are granted nowhere.
const (
	fileOnly   = execute | writeFile | readFile | truncate | ioctlDev | resolveUnix // applicable to what is no folder
	readRights = execute | readFile | readDir
	// refer is among the rights of writable folders only: a rename or link needs it on both sides.
	writeRights  = readRights | writeFile | truncate | removeDir | removeFile | makeDir | makeReg | makeSock | makeFifo | makeSym | refer
	deviceRights = readFile | writeFile | readDir | truncate | ioctlDev
)

// upTo returns the mask and the names of the rights an ABI has.
func upTo(table []right, abi int) (mask uint64, names []string) {
	for _, r := range table {
		if r.abi <= abi {
			mask |= r.bit
			names = append(names, r.name)
		}
	}
	return mask, slices.Clip(names)
}
