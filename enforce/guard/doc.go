// Package guard keeps protected names, hidden files and host sockets from the tasks of a session by programs on the
// kernel's security hooks (BPF-LSM): names that do not exist yet cannot be made either, without a stub and without a sweep.
//
// It may be imported by runtime/ward. It imports enforce, enforce/protect and github.com/cilium/ebpf. What must not be
// added: what is to be protected (enforce/protect) or hidden (enforce/hide), and anything about the contents of files.
//
// Where: Linux from 5.10 with BTF and with bpf among its security modules (lsm= of the kernel command line), for root or
// CAP_BPF, CAP_PERFMON and CAP_SYS_RESOURCE. Load proves that the hooks are called and else says why not.
//
// How: the programs of one Guard serve all its sessions. A session is known by its control group. For a path the
// programs go up from the name to the root of the tree, which is known by its inode, and from there run the machine of
// enforce/protect, as tables, on the names. A path that leads to no tree is not theirs. What is there when the session
// starts is known by inode and by name, so neither a hard link nor a new file of the host under the old name leads
// around it.
//
// A name that honest git writes in a repository it makes (config, hooks/*.sample, the .git file of a worktree) is
// refused in a repository that was there before, and in a tree that is Sealed; else it is left to the sweep, which
// reads what is in it.
package guard
