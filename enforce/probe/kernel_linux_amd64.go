package probe

import "golang.org/x/sys/unix"

// archCalls exist on this architecture only.
var archCalls = []call{
	{name: "iopl", nr: unix.SYS_IOPL, past: wrong, args: [6]uintptr{4}}, // above 3 is EINVAL before the capability
	{name: "ioperm", nr: unix.SYS_IOPERM, past: wrong, args: [6]uintptr{1 << 20, 1, 1}},
	{name: "modify-ldt", nr: unix.SYS_MODIFY_LDT, past: wrong, args: [6]uintptr{1, badPointer, 1}},
	{name: "kexec-file", nr: unix.SYS_KEXEC_FILE_LOAD, past: wrong, args: [6]uintptr{noFD, noFD, 0, 0, noFlag}},
}
