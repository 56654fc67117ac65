package guard

import (
	"cmp"
	"slices"

	"coworker/enforce"

	"github.com/cilium/ebpf"
)

// hook is one security hook with its program; its number is that of the programs' enum hook.
type hook struct {
	name    string
	wall    enforce.Wall
	newer   bool // not in every supported kernel
	program func(*programsPrograms) *ebpf.Program
}

var hookTable = []hook{
	{name: "inode_create", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardCreate }},
	{name: "inode_mkdir", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardMkdir }},
	{name: "inode_mknod", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardMknod }},
	{name: "inode_symlink", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardSymlink }},
	{name: "inode_link", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardLink }},
	{name: "inode_unlink", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardUnlink }},
	{name: "inode_rmdir", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardRmdir }},
	{name: "inode_rename", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardRename }},
	{name: "inode_setattr", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardSetattr }},
	{name: "inode_setxattr", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardSetxattr }},
	{name: "inode_removexattr", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardRemovexattr }},
	{name: "inode_set_acl", wall: enforce.FSProtect, newer: true, program: func(p *programsPrograms) *ebpf.Program { return p.GuardSetAcl }},
	{name: "inode_remove_acl", wall: enforce.FSProtect, newer: true, program: func(p *programsPrograms) *ebpf.Program { return p.GuardRemoveAcl }},
	{name: "path_truncate", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardTruncate }},
	{name: "file_open", wall: enforce.FSProtect, program: func(p *programsPrograms) *ebpf.Program { return p.GuardOpen }},
	{name: "socket_create", wall: enforce.NetEgress, program: func(p *programsPrograms) *ebpf.Program { return p.GuardSocket }},
	{name: "unix_stream_connect", wall: enforce.NetLocal, program: func(p *programsPrograms) *ebpf.Program { return p.GuardConnect }},
	{name: "unix_may_send", wall: enforce.NetLocal, program: func(p *programsPrograms) *ebpf.Program { return p.GuardSend }},
}

// teach is on the hook of stat; it refuses nothing.
var teach = hook{name: "inode_getattr", program: func(p *programsPrograms) *ebpf.Program { return p.GuardTeach }}

// byName sorts the names of hooks for people.
func byName(hooks []string) []string {
	slices.SortFunc(hooks, cmp.Compare[string])
	return hooks
}
