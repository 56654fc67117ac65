//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0

// Programs on the kernel's security hooks, for the tasks of guarded sessions. What they keep is in doc.go. machine.go
// makes the tables that walk() runs, and does the same in Go for its tests.
//
// They read the kernel's structures by value, with probe reads: so a part may be a function of its own that the
// verifier looks at once (pointers cannot be handed to one before Linux 5.13), and the code of a path of 64 names stays
// small.

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

#define EPERM 1
#define EACCES 13
#define FMODE_WRITE 2
#define O_TRUNC 01000
#define S_IFMT 0170000
#define S_IFDIR 0040000
#define S_IFLNK 0120000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define AF_NETLINK 16
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define SOCK_RAW 3
#define SOCK_SEQPACKET 5

// Parts of kernel structures, found by name when the programs are loaded.
#define KERNEL __attribute__((preserve_access_index))
struct qstr {
	union {
		struct {
			__u32 hash;
			__u32 len;
		};
		__u64 hash_len;
	};
	const unsigned char *name;
} KERNEL;
struct super_block {
	__u32 s_dev;
} KERNEL;
struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
} KERNEL;
struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
} KERNEL;
struct path {
	struct dentry *dentry;
} KERNEL;
struct file {
	unsigned int f_flags;
	unsigned int f_mode;
	struct path f_path;
} KERNEL;
struct ns_common {
	unsigned int inum;
} KERNEL;
struct net {
	struct ns_common ns;
} KERNEL;
typedef struct {
	struct net *net;
} KERNEL possible_net_t;
struct sock_common {
	possible_net_t skc_net;
} KERNEL;
struct sock {
	struct sock_common __sk_common;
} KERNEL;
struct socket {
	struct sock *sk;
} KERNEL;
struct kernfs_node {
	__u64 id;
} KERNEL;
struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[1]; // since 6.1
} KERNEL;
struct cgroup___old {
	__u64 ancestor_ids[1];
} KERNEL;
struct css_set {
	struct cgroup *dfl_cgrp;
} KERNEL;
struct task_struct {
	struct css_set *cgroups;
} KERNEL;

// The numbers are those of hooks_linux.go.
enum hook { CREATE, MKDIR, MKNOD, SYMLINK, LINK, UNLINK, RMDIR, RENAME, SETATTR, SETXATTR, REMOVEXATTR, SET_ACL, REMOVE_ACL, TRUNCATE, OPEN, SOCKET, CONNECT, SEND };

// What an inode is to a session.
enum { ROOT = 1, HIDE = 2, KEEP = 4, PIN = 8 };

// What a name in a folder means, see machine.go.
enum { ALWAYS = 1, HONEST = 2, HOOKS = 4, HIDDEN = 8, PINNED = 16, REDIRECT = 32 };
#define RESET 1 // in step.flags: what the folders above mean does not count here

// What walk answers, and what an event says.
enum { OURS = 1, REFUSE = 2, HID = 4, PINS = 8, LINKS = 16, DEEP = 32, LEFT = 64 };

// What a session is.
enum { SEALED = 1, HIDES_FOLDERS = 2, OWN_NET = 4 };
#define FOLDER 8 // beside SEALED in the options of walk: the last name is a folder

#define LEVELS 4
#define CLASSES 64
#define BASES 16
#define DEPTH 64
#define OTHER 1	     // the class of a name that means nothing
#define UNREAD 65535 // the class of a name that could not be read
#define LEAVES 0x80000000u // state in which the classes of hidden names are found

struct session {
	__u32 id;
	__u32 flags;
	__u32 net; // inode of its network namespace
	__u32 pad;
	__u64 unheard;
};

struct mark_key {
	__u64 ino;
	__u32 dev;
	__u32 session;
};
struct mark {
	__u64 inode; // address of a ROOT, which the guard keeps open
	__u32 state;
	__u16 tree;
	__u8 base;
	__u8 kinds;
};

struct step {
	__u32 next;
	__u8 base;
	__u8 dir;
	__u8 file;
	__u8 flags;
};
struct edge {
	__u32 state;
	__u32 class;
};

struct settings {
	__u32 levels[LEVELS]; // depths in the control group tree at which sessions have their group; 0: unused
	__u32 teacher;	      // thread whose stat is answered in taught
	__u32 pad;
};
struct lesson {
	__u64 inode;
	__u64 ino;
	__u32 dev;
	__u32 seen;
};

#define NAMES 16
#define NAME 128
struct event {
	__u64 time; // CLOCK_MONOTONIC, ns
	__u32 session;
	__u32 pid;
	__u32 hook;
	__u32 why;
	__u32 tree;
	__u32 count; // of names, the last one of the path first
	__u32 family, type;
	char comm[16];
	char names[NAMES][NAME];
};
const struct event *unused_event __attribute__((unused));
const struct session *unused_session __attribute__((unused));
const struct settings *unused_settings __attribute__((unused));
const struct lesson *unused_lesson __attribute__((unused));
const struct mark_key *unused_mark_key __attribute__((unused));
const struct mark *unused_mark __attribute__((unused));
const struct step *unused_step __attribute__((unused));
const struct edge *unused_edge __attribute__((unused));

#define MAP(name, kind, k, v, n)                                                                                       \
	struct {                                                                                                       \
		__uint(type, kind);                                                                                    \
		__uint(max_entries, n);                                                                                \
		__type(key, k);                                                                                        \
		__type(value, v);                                                                                      \
	} name SEC(".maps")
MAP(groups, BPF_MAP_TYPE_HASH, __u64, struct session, 1024);
MAP(marks, BPF_MAP_TYPE_HASH, struct mark_key, struct mark, 1 << 17);
MAP(classes, BPF_MAP_TYPE_HASH, __u64, __u32, 1 << 15);
MAP(bases, BPF_MAP_TYPE_ARRAY, __u32, struct step, BASES *CLASSES);
MAP(edges, BPF_MAP_TYPE_HASH, struct edge, struct step, 1 << 18);
MAP(folds, BPF_MAP_TYPE_HASH, __u32, __u32, 4096);
MAP(setting, BPF_MAP_TYPE_ARRAY, __u32, struct settings, 1);
MAP(taught, BPF_MAP_TYPE_ARRAY, __u32, struct lesson, 1);
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

// Set by the loader before the programs are loaded.
volatile const __u64 seed, factor;   // secret, so that nobody inside can look for two names of one hash
volatile const __u32 setattr_dentry; // which argument is the dentry: the hooks got one more in front
volatile const __u32 xattr_dentry;

// STEP keeps the compiler from moving work between the steps of a loop, which would take more stack than there is.
#define STEP(v) asm volatile("" : "+r"(v) : : "memory")
#define READ(to, from) bpf_probe_read_kernel(&(to), sizeof(to), (const void *)(from))

static __always_inline __u64 argument(void *ctx, __u32 n)
{
	__u64 v = 0;
	READ(v, (__u64 *)ctx + n);
	return v;
}

__noinline __u64 parent_of(__u64 dentry)
{
	__u64 v = 0;
	READ(v, &((struct dentry *)dentry)->d_parent);
	return v;
}

__noinline __u64 inode_of(__u64 dentry)
{
	__u64 v = 0;
	READ(v, &((struct dentry *)dentry)->d_inode);
	return v;
}

static __always_inline __u32 kind_of(__u64 inode)
{
	unsigned short mode = 0;
	if (inode)
		READ(mode, &((struct inode *)inode)->i_mode);
	return mode & S_IFMT;
}

// guarded finds the session of the current task. Tasks of no session are the common case on the machine.
static __always_inline struct session *guarded(void)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&setting, &zero);
	if (!set || !set->levels[0])
		return 0;
	__u64 id = bpf_get_current_cgroup_id();
	struct session *s = bpf_map_lookup_elem(&groups, &id);
	if (s)
		return s;
	struct task_struct *task = (void *)bpf_get_current_task();
	struct cgroup *group = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	int level = BPF_CORE_READ(group, level);
#pragma unroll
	for (int i = 0; i < LEVELS; i++) {
		__u32 at = set->levels[i];
		if (!at || at > 512 || (int)at >= level)
			continue;
		id = 0;
		if (bpf_core_field_exists(struct cgroup___old, ancestor_ids)) {
			READ(id, (__u64)((struct cgroup___old *)group)->ancestor_ids + at * sizeof(__u64));
		} else {
			struct cgroup *above = 0;
			READ(above, (__u64)group->ancestors + at * sizeof(void *));
			id = BPF_CORE_READ(above, kn, id);
		}
		s = bpf_map_lookup_elem(&groups, &id);
		if (s)
			return s;
	}
	return 0;
}

static __always_inline __u64 mix(__u64 h, __u64 c)
{
	h = (h ^ c) * factor;
	return h ^ (h >> 29);
}

#define DROPPED 0x8000000000000000ull // of what fold_rune answers: the character is left out
#define FOREIGN 0x4000000000000000ull // it stays what it is

// fold_rune is what a character that is not ASCII becomes: nothing, up to three ASCII characters, or itself.
__noinline __u64 fold_rune(__u32 rune)
{
	if (rune >= 0xe0000 && rune <= 0xe0fff)
		return DROPPED;
	__u32 *to = bpf_map_lookup_elem(&folds, &rune);
	if (!to)
		return FOREIGN | 0x1000000 | rune;
	return *to ? *to : DROPPED;
}

// What decode answers beside a character that is not finished: its bits, and how many bytes are to come.
#define MORE 0x3000000ull
#define CHAR 0x100000000ull   // the byte is a character of ASCII
#define RUNE 0x200000000ull   // the character is finished
#define BYTE 0x400000000ull   // the byte begins no character
#define BROKEN 0x800000000ull // the character before it was not finished

// decode and absorb are functions of their own so that the verifier need not follow each way through each byte.
__noinline __u64 decode(__u64 state, __u32 c)
{
	__u64 more = state >> 24 & 3, rune = state & 0xffffff, broken = 0;
	if (more) {
		if ((c & 0xc0) == 0x80) {
			more--;
			rune = (rune << 6 | (c & 0x3f)) & 0xffffff;
			return rune | more << 24 | (more ? 0 : RUNE);
		}
		broken = BROKEN;
	}
	if (c < 0x80)
		return broken | CHAR;
	if (c < 0xc2)
		return broken | BYTE;
	more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
	rune = c & (c >= 0xf0 ? 7 : c >= 0xe0 ? 15 : 31);
	return broken | more << 24 | rune;
}

__noinline __u64 absorb(__u64 h, __u64 state, __u64 to)
{
	if (state & BROKEN)
		h = mix(h, 0x2000000);
	if (state & BYTE)
		return mix(h, 0x2000000 | to);
	if (state & CHAR)
		return mix(h, to >= 'A' && to <= 'Z' ? to + 32 : to);
	if (!(state & RUNE))
		return h;
	if (to & FOREIGN)
		return mix(h, to & ~FOREIGN);
	h = mix(h, to & 0xff);
	if (to & 0xff00)
		h = mix(h, to >> 8 & 0xff);
	if (to & 0xff0000)
		h = mix(h, to >> 16 & 0xff);
	return h;
}

// HEAD is how many bytes of a name are read in full. No name of enforce/protect has half as many.
#define HEAD 32

// hash_name is the hash of the folded name, see fold in enforce/protect; 0 if it cannot be told. Of a longer name it is
// that of its head if the head ends in what is trimmed, or else one that also counts length and end.
__noinline __u64 hash_name(__u64 dentry)
{
	__u64 at = 0, word = 0;
	__u32 len = 0;
	READ(len, &((struct dentry *)dentry)->d_name.len);
	READ(at, &((struct dentry *)dentry)->d_name.name);
	if (!at || len == 0)
		return 0;
	__u64 h = seed, kept = 0, seen = 0, state = 0; // kept: up to the last character that is not trimmed
#pragma unroll
	for (int i = 0; i < HEAD; i++) {
		if (i >= len)
			goto end;
		if ((i & 7) == 0) {
			if (READ(word, at + i)) // up to seven bytes behind the name, in the same object
				return 0;
		}
		__u32 c = word & 0xff;
		word >>= 8;
		state = decode(state, c);
		__u64 to = c;
		if (state & RUNE) {
			to = fold_rune(state & 0xffffff);
			seen |= to;
			if (to & DROPPED)
				continue;
		} else if (!(state & (CHAR | BYTE | BROKEN))) {
			continue;
		}
		if (state & CHAR && c == ':' && h != seed)
			return kept ? kept : h;
		h = absorb(h, state, to);
		if (!(state & CHAR) || (c != '.' && c != ' '))
			kept = h;
	}
	__u64 more = state & MORE;
	if (len > HEAD) {
		if (seen & DROPPED && !(seen & FOREIGN))
			return 0; // what is left out could fill the head
		if (kept == h || more) {
			READ(word, at + len - 8);
			return mix(mix(h, 0x4000000 | len), word);
		}
	}
end:
	if (state & MORE)
		kept = mix(h, 0x2000000);
	return kept ? kept : h;
}

static __always_inline struct mark *mark_of(__u64 inode, __u32 session)
{
	struct mark_key key = {.session = session};
	__u64 sb = 0;
	READ(key.ino, &((struct inode *)inode)->i_ino);
	READ(sb, &((struct inode *)inode)->i_sb);
	READ(key.dev, &((struct super_block *)sb)->s_dev);
	return bpf_map_lookup_elem(&marks, &key);
}

static __always_inline __u32 class_of(__u64 dentry)
{
	__u64 hash = hash_name(dentry);
	if (!hash)
		return UNREAD;
	__u32 *class = bpf_map_lookup_elem(&classes, &hash);
	return class ? *class : OTHER;
}

// kinds_of is what an inode is to a session.
__noinline __u64 kinds_of(__u64 inode, __u32 session)
{
	if (!inode)
		return 0;
	struct mark *m = mark_of(inode, session);
	if (!m)
		return 0;
	__u32 kinds = m->kinds;
	if (kinds & ROOT && m->inode != inode)
		kinds &= ~ROOT;
	return kinds;
}

// look is kinds_of and, for what is no root, the class of the name.
__noinline __u64 look(__u64 dentry, __u32 session)
{
	__u64 kinds = kinds_of(inode_of(dentry), session);
	if (kinds & ROOT)
		return kinds << 16;
	return kinds << 16 | (class_of(dentry) & 0xffff);
}

// root_of is state, base << 32, tree << 40 of a root.
__noinline __u64 root_of(__u64 dentry, __u32 session)
{
	struct mark *m = mark_of(inode_of(dentry), session);
	if (!m)
		return 0;
	return m->state | (__u64)(m->base & 15) << 32 | (__u64)m->tree << 40;
}

// enter is what a name in a folder of a state means: next, base << 32, dir << 40, file << 48, flags << 56.
__noinline __u64 enter(__u32 state, __u32 base, __u32 class)
{
	struct step *s = 0;
	if (state >= BASES) {
		struct edge e = {.state = state, .class = class};
		s = bpf_map_lookup_elem(&edges, &e);
	}
	if (!s) {
		__u32 at = (base & (BASES - 1)) * CLASSES + (class < CLASSES ? class : OTHER);
		s = bpf_map_lookup_elem(&bases, &at);
	}
	if (!s)
		return (__u64)ALWAYS << 40 | (__u64)ALWAYS << 48;
	return s->next | (__u64)s->base << 32 | (__u64)s->dir << 40 | (__u64)s->file << 48 | (__u64)s->flags << 56;
}

// is_sample tells whether git only shows the file: its name ends in .sample.
__noinline __u64 is_sample(__u64 dentry)
{
	char end[8] = {};
	__u64 at = 0;
	__u32 len = 0;
	READ(len, &((struct dentry *)dentry)->d_name.len);
	READ(at, &((struct dentry *)dentry)->d_name.name);
	if (len < 8 || bpf_probe_read_kernel(end, 7, (void *)(at + len - 7)))
		return 0;
	return end[0] == '.' && end[1] == 's' && end[2] == 'a' && end[3] == 'm' && end[4] == 'p' && end[5] == 'l' && end[6] == 'e';
}

// verdict turns what the names on the way mean into an answer.
static __always_inline __u64 verdict(__u64 above, __u64 last, __u64 dentry, __u32 options)
{
	__u64 answer = OURS;
	if ((above | last) & ALWAYS)
		answer |= REFUSE;
	if ((above | last) & HIDDEN)
		answer |= HID | REFUSE;
	if (last & PINNED)
		answer |= PINS;
	if (last & REDIRECT)
		answer |= LINKS;
	if ((above | last) & (HONEST | HOOKS)) {
		if (options & SEALED)
			answer |= REFUSE | LEFT;
		else if (above & HOOKS && (options & FOLDER || !is_sample(dentry)))
			answer |= REFUSE;
	}
	return answer;
}

// walk goes up to the root of the tree that a path is in, and runs the machine on the names from there. The answer has
// the base state of the last name << 8 and the tree << 16.
__noinline __u64 walk(__u64 dentry, __u32 session, __u32 options)
{
	__u16 class[DEPTH];
	__u64 found = 0, at = dentry, root = 0;
	// Zeros, of which the verifier knows nothing: else it would look at the way down once for each length of the way up.
	bpf_probe_read_kernel(class, sizeof(class), 0);
#pragma unroll
	for (int i = 0; i < DEPTH; i++) {
		__u64 seen = look(at, session);
		__u64 kinds = seen >> 16;
		if (kinds & HIDE)
			found |= HID | REFUSE;
		if (kinds & KEEP)
			found |= REFUSE;
		if (i == 0 && kinds & PIN)
			found |= PINS;
		if (kinds & ROOT) {
			root = at;
			goto down;
		}
		class[i] = seen;
		STEP(found);
		__u64 up = parent_of(at);
		if (up == at || !up)
			return found;
		at = up;
	}
	return found | DEEP;
down:;
	__u64 info = root_of(root, session);
	__u64 state = info & 0xffffffff, base = info >> 32 & 15, above = 0, last = 0;
#pragma unroll
	for (int i = DEPTH - 1; i >= 0; i--) {
		STEP(found);
		STEP(above);
		__u32 c = class[i];
		if (c == UNREAD)
			found |= REFUSE;
		if (c) {
			__u64 s = enter(state, base, c);
			state = s & 0xffffffff;
			base = s >> 32 & 15;
			if (s >> 56 & RESET)
				above = 0;
			if (i == 0) {
				last = options & FOLDER ? s >> 40 & 0xff : s >> 48 & 0xff;
			} else {
				__u64 dir = s >> 40 & 0xff;
				above |= dir;
				if (i > 1 && dir & HOOKS)
					above |= ALWAYS;
			}
		}
	}
	return found | verdict(above, last, dentry, options) | base << 8 | (info >> 40 & 0xffff) << 16;
}

// tell reports a refusal. The path is that of the dentry; 0 for a socket.
__noinline __u64 tell(__u64 dentry, __u32 session, __u32 hook, __u64 answer)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		struct session *s = guarded();
		if (s)
			__sync_fetch_and_add(&s->unheard, 1);
		return 0;
	}
	e->time = bpf_ktime_get_ns();
	e->session = session;
	e->pid = bpf_get_current_pid_tgid() >> 32;
	e->hook = hook;
	e->why = answer & 0xff;
	e->tree = 0xffffffff;
	e->count = 0;
	e->family = answer >> 32 & 0xffff;
	e->type = answer >> 48;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
#pragma unroll
	for (int i = 0; i < NAMES; i++) {
		__u64 name = 0, up;
		e->names[i][0] = 0;
		if (dentry) {
			__u64 kinds = kinds_of(inode_of(dentry), session);
			if (kinds & ROOT) {
				e->tree = root_of(dentry, session) >> 40;
				dentry = 0;
			}
		}
		if (dentry) {
			READ(name, &((struct dentry *)dentry)->d_name.name);
			bpf_probe_read_kernel_str(e->names[i], NAME, (void *)name);
			e->count = i + 1;
			up = parent_of(dentry);
			dentry = up == dentry ? 0 : up;
		}
	}
	if (dentry && kinds_of(inode_of(dentry), session) & ROOT)
		e->tree = root_of(dentry, session) >> 40;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

#define REFUSED(dentry, hook, answer)                                                                                  \
	do {                                                                                                           \
		tell(dentry, s->id, hook, answer);                                                                     \
		return -EACCES;                                                                                        \
	} while (0)

// made decides on a name that is to appear; mask has what else refuses.
static __always_inline int made(__u64 dentry, __u32 hook, __u32 folder, __u64 mask)
{
	struct session *s = guarded();
	if (!s)
		return 0;
	__u64 answer = walk(dentry, s->id, (s->flags & SEALED) | folder);
	if (answer & (REFUSE | DEEP | mask))
		REFUSED(dentry, hook, answer);
	return 0;
}

SEC("lsm/inode_create")
int guard_create(void *ctx) { return made(argument(ctx, 1), CREATE, 0, 0); }

SEC("lsm/inode_mkdir")
int guard_mkdir(void *ctx) { return made(argument(ctx, 1), MKDIR, FOLDER, 0); }

SEC("lsm/inode_mknod")
int guard_mknod(void *ctx) { return made(argument(ctx, 1), MKNOD, 0, 0); }

SEC("lsm/inode_symlink")
int guard_symlink(void *ctx) { return made(argument(ctx, 1), SYMLINK, 0, LINKS); }

SEC("lsm/inode_unlink")
int guard_unlink(void *ctx) { return made(argument(ctx, 1), UNLINK, 0, PINS); }

SEC("lsm/inode_rmdir")
int guard_rmdir(void *ctx) { return made(argument(ctx, 1), RMDIR, FOLDER, PINS); }

SEC("lsm/inode_link")
int guard_link(void *ctx)
{
	struct session *s = guarded();
	if (!s)
		return 0;
	__u64 old = argument(ctx, 0), name = argument(ctx, 2);
	__u64 mask = kind_of(inode_of(old)) == S_IFLNK ? LINKS : 0;
	__u64 answer = walk(old, s->id, s->flags & SEALED);
	// What honest work made under a protected name may not get a second one, through which it could be written later.
	if (answer & (REFUSE | DEEP))
		REFUSED(old, LINK, answer);
	answer = walk(name, s->id, s->flags & SEALED);
	if (answer & (REFUSE | DEEP | mask))
		REFUSED(name, LINK, answer);
	return 0;
}

SEC("lsm/inode_rename")
int guard_rename(void *ctx)
{
	struct session *s = guarded();
	if (!s)
		return 0;
	__u64 old = argument(ctx, 1), name = argument(ctx, 3);
	__u64 over = inode_of(name);
	__u32 kind = kind_of(inode_of(old)), options = s->flags & SEALED;
	if (kind == S_IFDIR)
		options |= FOLDER;
	__u64 away = walk(old, s->id, options);
	if (away & (REFUSE | DEEP | PINS))
		REFUSED(old, RENAME, away);
	__u64 to = walk(name, s->id, options);
	__u64 mask = over ? PINS : 0;
	if (kind == S_IFLNK)
		mask |= LINKS;
	if (to & (REFUSE | DEEP | mask))
		REFUSED(name, RENAME, to);
	// A folder takes along what is in it: under a name with rules of its own these would be protected names, made
	// while they were none.
	__u64 was = away >> 8 & 15, is = to >> 8 & 15;
	if (kind == S_IFDIR && to & OURS && is != 0 && (is != was || !(away & OURS)))
		REFUSED(name, RENAME, to | REFUSE);
	return 0;
}

// changed decides on what is done to a file that is there.
static __always_inline int changed(__u64 dentry, __u32 hook)
{
	struct session *s = guarded();
	if (!s)
		return 0;
	__u32 folder = kind_of(inode_of(dentry)) == S_IFDIR ? FOLDER : 0;
	__u64 answer = walk(dentry, s->id, (s->flags & SEALED) | folder);
	if (answer & REFUSE)
		REFUSED(dentry, hook, answer);
	return 0;
}

SEC("lsm/inode_setattr")
int guard_setattr(void *ctx) { return changed(argument(ctx, setattr_dentry), SETATTR); }

SEC("lsm/inode_setxattr")
int guard_setxattr(void *ctx) { return changed(argument(ctx, xattr_dentry), SETXATTR); }

SEC("lsm/inode_removexattr")
int guard_removexattr(void *ctx) { return changed(argument(ctx, xattr_dentry), REMOVEXATTR); }

SEC("lsm/inode_set_acl")
int guard_set_acl(void *ctx) { return changed(argument(ctx, 1), SET_ACL); }

SEC("lsm/inode_remove_acl")
int guard_remove_acl(void *ctx) { return changed(argument(ctx, 1), REMOVE_ACL); }

SEC("lsm/path_truncate")
int guard_truncate(void *ctx)
{
	__u64 dentry = 0;
	READ(dentry, &((struct path *)argument(ctx, 0))->dentry);
	return changed(dentry, TRUNCATE);
}

SEC("lsm/file_open")
int guard_open(void *ctx)
{
	struct session *s = guarded();
	if (!s)
		return 0;
	__u64 file = argument(ctx, 0), dentry = 0;
	__u32 mode = 0, flags = 0;
	READ(dentry, &((struct file *)file)->f_path.dentry);
	READ(mode, &((struct file *)file)->f_mode);
	READ(flags, &((struct file *)file)->f_flags);
	__u64 inode = inode_of(dentry), mask = HID;
	__u32 folder = kind_of(inode) == S_IFDIR ? FOLDER : 0;
	if (mode & FMODE_WRITE || flags & O_TRUNC) {
		mask |= REFUSE | DEEP;
	} else if (kinds_of(inode, s->id) & HIDE) {
		REFUSED(dentry, OPEN, HID);
	} else if (!(s->flags & HIDES_FOLDERS)) {
		struct edge e = {.state = LEAVES | s->id, .class = class_of(dentry)};
		if (!bpf_map_lookup_elem(&edges, &e))
			return 0;
	}
	__u64 answer = walk(dentry, s->id, (s->flags & SEALED) | folder);
	if (answer & mask)
		REFUSED(dentry, OPEN, answer);
	return 0;
}

SEC("lsm/socket_create")
int guard_socket(void *ctx)
{
	struct session *s = guarded();
	if (!s || (int)argument(ctx, 3))
		return 0;
	__u32 family = argument(ctx, 0), type = argument(ctx, 1) & 15, protocol = argument(ctx, 2);
	if (family == AF_UNIX && (type == SOCK_STREAM || type == SOCK_DGRAM || type == SOCK_SEQPACKET))
		return 0;
	if ((family == AF_INET || family == AF_INET6) && (type == SOCK_STREAM || type == SOCK_DGRAM))
		return 0;
	if (family == AF_NETLINK && (type == SOCK_RAW || type == SOCK_DGRAM) && protocol == 0)
		return 0;
	tell(0, s->id, SOCKET, (__u64)(family & 0xffff) << 32 | (__u64)type << 48);
	return -EPERM;
}

static __always_inline int reached(__u64 peer, __u32 hook)
{
	struct session *s = guarded();
	if (!s || !(s->flags & OWN_NET))
		return 0;
	__u64 net = 0;
	__u32 inum = 0;
	READ(net, &((struct sock *)peer)->__sk_common.skc_net.net);
	READ(inum, &((struct net *)net)->ns.inum);
	if (inum == s->net)
		return 0;
	tell(0, s->id, hook, (__u64)AF_UNIX << 32);
	return -EPERM;
}

SEC("lsm/unix_stream_connect")
int guard_connect(void *ctx) { return reached(argument(ctx, 1), CONNECT); }

SEC("lsm/unix_may_send")
int guard_send(void *ctx)
{
	__u64 sk = 0;
	READ(sk, &((struct socket *)argument(ctx, 1))->sk);
	return reached(sk, SEND);
}

// guard_teach tells the guard how the kernel numbers a file: device numbers of some file systems (btrfs, overlay) are
// others than those that stat shows.
SEC("lsm/inode_getattr")
int guard_teach(void *ctx)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&setting, &zero);
	if (!set || !set->teacher || set->teacher != (__u32)bpf_get_current_pid_tgid())
		return 0;
	struct lesson *l = bpf_map_lookup_elem(&taught, &zero);
	if (!l || l->seen)
		return 0;
	__u64 dentry = 0, sb = 0;
	READ(dentry, &((struct path *)argument(ctx, 0))->dentry);
	__u64 inode = inode_of(dentry);
	l->inode = inode;
	READ(l->ino, &((struct inode *)inode)->i_ino);
	READ(sb, &((struct inode *)inode)->i_sb);
	READ(l->dev, &((struct super_block *)sb)->s_dev);
	l->seen = 1;
	return 0;
}
