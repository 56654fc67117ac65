//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0

// Kernel programs of one session, on its control group. What they allow is in doc.go; the loader that gives them their
// variables is in load_linux.go. Every program that decides returns 1 to let pass and 0 to refuse with EPERM.

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// The kernel calls some of the helpers only for programs that say this.
char _license[] SEC("license") = "GPL";

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define LOOPBACK_INDEX 1 // of lo, in every network namespace (LOOPBACK_IFINDEX, include/net/flow.h)

// Which program says something. The numbers are those of the table in hooks_linux.go.
enum hook { CONNECT4, CONNECT6, SENDMSG4, SENDMSG6, BIND4, BIND6, SOCK_CREATE, SKB, CONNECT_UNIX, SENDMSG_UNIX, EXEC };

// news is what the ring buffer carries: an attempt that was refused, or a program that started.
struct news {
	__u64 time; // CLOCK_MONOTONIC, ns
	__u32 hook;
	__u32 pid; // 0 for a packet: it may have no process
	__u32 family, type, protocol;
	__u32 port;
	__u8 addr[16]; // of IPv4 the first four bytes
	char comm[16];
};

#define NAME_LEN 256
struct exec_news {
	struct news news;
	char name[NAME_LEN]; // of the file that was executed, as it was named
};

// Set by the loader before the programs are loaded.
volatile const __u64 group;	 // id of the session's control group
volatile const __u32 synthetic4, synthetic4_mask; // network byte order
volatile const __u32 synthetic6[4], synthetic6_mask[4];
// Where this kernel keeps what we read of its structures.
volatile const __u32 task_nsproxy, nsproxy_mounts, mounts_number, binprm_filename;

// Set by Permit, once; 0 is no namespace.
__u64 cell_net;	  // cookie of the cell's network namespace
__u32 cell_mounts; // inode of its mount namespace
__u32 settled;	  // Permit was called: what has no namespace in cell_net gets none

__u64 unheard; // what did not fit into the ring buffer
__u64 packets; // refused by the skb program

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17);
} ring SEC(".maps");

// The addresses that rules consist of; IPv4 as ::ffff:a.b.c.d.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32[4]);
	__type(value, __u8);
} literals SEC(".maps");

#define MAPPED bpf_htonl(0xffff)

static __noinline bool literal(const __u32 a[4])
{
	return bpf_map_lookup_elem(&literals, a) != NULL;
}

// inside4 says whether an IPv4 address in network byte order stays in the cell. connect(2) takes 0.0.0.0 for this host.
static __noinline bool inside4(__u32 a)
{
	__u32 mapped[4] = {0, 0, MAPPED, a};

	return (a & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) || a == 0 || (a & synthetic4_mask) == synthetic4 || literal(mapped);
}

static __noinline bool inside6(const __u32 a[4])
{
	bool synthetic = true;

	if (a[0] == 0 && a[1] == 0 && a[2] == MAPPED)
		return inside4(a[3]);
	if (a[0] == 0 && a[1] == 0 && a[2] == 0 && (a[3] == bpf_htonl(1) || a[3] == 0))
		return true;
#pragma unroll
	for (int i = 0; i < 4; i++)
		synthetic = synthetic && (a[i] & synthetic6_mask[i]) == synthetic6[i];
	return synthetic || literal(a);
}

static __always_inline struct news *reserve(__u32 hook)
{
	struct news *n = bpf_ringbuf_reserve(&ring, sizeof(*n), 0);

	if (!n) {
		__sync_fetch_and_add(&unheard, 1);
		return NULL;
	}
	__builtin_memset(n, 0, sizeof(*n));
	n->time = bpf_ktime_get_ns();
	n->hook = hook;
	return n;
}

// refuse tells about an address that a process gave, and refuses it.
static __always_inline int refuse(struct bpf_sock_addr *ctx, __u32 hook, __u32 port, const __u32 a[4])
{
	struct news *n = reserve(hook);

	if (!n)
		return 0;
	n->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(n->comm, sizeof(n->comm));
	n->family = ctx->family;
	n->type = ctx->type;
	n->protocol = ctx->protocol;
	n->port = port;
	__builtin_memcpy(n->addr, a, sizeof(n->addr));
	bpf_ringbuf_submit(n, 0);
	return 0;
}

// own says whether a socket belongs to the cell's network namespace.
#define own(ctx) (cell_net && bpf_get_netns_cookie(ctx) == cell_net)

static __always_inline int address4(struct bpf_sock_addr *ctx, __u32 hook)
{
	__u32 a[4] = {ctx->user_ip4, 0, 0, 0};

	if (own(ctx) && inside4(a[0]))
		return 1;
	return refuse(ctx, hook, bpf_ntohs(ctx->user_port), a);
}

static __always_inline int address6(struct bpf_sock_addr *ctx, __u32 hook)
{
	__u32 a[4] = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]};

	if (own(ctx) && inside6(a))
		return 1;
	return refuse(ctx, hook, bpf_ntohs(ctx->user_port), a);
}

SEC("cgroup/connect4") int connect4(struct bpf_sock_addr *ctx) { return address4(ctx, CONNECT4); }
SEC("cgroup/connect6") int connect6(struct bpf_sock_addr *ctx) { return address6(ctx, CONNECT6); }
SEC("cgroup/sendmsg4") int sendmsg4(struct bpf_sock_addr *ctx) { return address4(ctx, SENDMSG4); }
SEC("cgroup/sendmsg6") int sendmsg6(struct bpf_sock_addr *ctx) { return address6(ctx, SENDMSG6); }

// Before Permit only coworker's own keeper is in the group, and makes the sockets that the proxy serves.
SEC("cgroup/bind4") int bind4(struct bpf_sock_addr *ctx)
{
	__u32 a[4] = {ctx->user_ip4, 0, 0, 0};

	if ((!settled || own(ctx)) && inside4(a[0]))
		return 1;
	return refuse(ctx, BIND4, bpf_ntohs(ctx->user_port), a);
}

SEC("cgroup/bind6") int bind6(struct bpf_sock_addr *ctx)
{
	__u32 a[4] = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]};

	if ((!settled || own(ctx)) && inside6(a))
		return 1;
	return refuse(ctx, BIND6, bpf_ntohs(ctx->user_port), a);
}

SEC("cgroup/sock_create") int sock_create(struct bpf_sock *ctx)
{
	__u32 family = ctx->family, type = ctx->type, protocol = ctx->protocol;
	struct news *n;

	if ((!settled || own(ctx)) && (family == AF_INET || family == AF_INET6) &&
	    ((type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) ||
	     (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP))))
		return 1;
	n = reserve(SOCK_CREATE);
	if (!n)
		return 0;
	n->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(n->comm, sizeof(n->comm));
	n->family = family;
	n->type = type;
	n->protocol = protocol;
	bpf_ringbuf_submit(n, 0);
	return 0;
}

// follow reads the pointer at an offset of a kernel structure; 0 if it cannot be read.
static __always_inline __u64 follow(__u64 base, __u32 offset)
{
	__u64 p = 0;

	bpf_probe_read_kernel(&p, sizeof(p), (void *)(base + offset));
	return p;
}

// mounts is the inode of the mount namespace of the running process; 0 if it has none any more.
static __always_inline __u32 mounts(void)
{
	__u64 nsproxy = follow(bpf_get_current_task(), task_nsproxy), ns = nsproxy ? follow(nsproxy, nsproxy_mounts) : 0;
	__u32 number = 0;

	if (ns)
		bpf_probe_read_kernel(&number, sizeof(number), (void *)(ns + mounts_number));
	return number;
}

// Names of sockets are looked up in the network namespace of the socket (abstract ones) and the mount namespace of the
// process (paths): where both are the cell's, what is found is what the other walls show.
static __always_inline int local(struct bpf_sock_addr *ctx, __u32 hook)
{
	const __u32 none[4] = {};

	if (own(ctx) && cell_mounts && mounts() == cell_mounts)
		return 1;
	return refuse(ctx, hook, 0, none);
}

SEC("cgroup/connect_unix") int connect_unix(struct bpf_sock_addr *ctx) { return local(ctx, CONNECT_UNIX); }
SEC("cgroup/sendmsg_unix") int sendmsg_unix(struct bpf_sock_addr *ctx) { return local(ctx, SENDMSG_UNIX); }

// packet lets pass what goes out on lo to an address inside.
static __always_inline int packet(struct __sk_buff *skb, bool here)
{
	struct news *n;
	__u32 a[4] = {};
	bool ok = false, v6 = skb->protocol == bpf_htons(ETH_P_IPV6);

	if (v6) {
		if (bpf_skb_load_bytes(skb, 24, a, 16) == 0) // destination in the header, RFC 8200 section 3
			ok = inside6(a);
	} else if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, 16, a, 4) == 0) // RFC 791 section 3.1
			ok = inside4(a[0]);
	}
	if (ok && here && cell_net && skb->ifindex == LOOPBACK_INDEX)
		return 1;
	__sync_fetch_and_add(&packets, 1);
	n = reserve(SKB);
	if (!n)
		return 0;
	n->family = v6 ? AF_INET6 : AF_INET;
	__builtin_memcpy(n->addr, a, sizeof(n->addr));
	bpf_ringbuf_submit(n, 0);
	return 0;
}

// Only newer kernels tell a packet's network namespace (6.15). On the others the interface must do: lo of another
// namespace is no better than lo of this one, and the other programs have asked for the namespace of its socket.
SEC("cgroup_skb/egress") int skb_egress(struct __sk_buff *skb) { return packet(skb, bpf_get_netns_cookie(skb) == cell_net); }
SEC("cgroup_skb/egress") int skb_egress_old(struct __sk_buff *skb) { return packet(skb, true); }

// Not a wall: tells which programs were started in the session.
SEC("raw_tp/sched_process_exec") int exec(struct bpf_raw_tracepoint_args *ctx)
{
	struct exec_news *n; // the third argument is the struct linux_binprm (include/trace/events/sched.h)

	if (bpf_get_current_cgroup_id() != group)
		return 0;
	n = bpf_ringbuf_reserve(&ring, sizeof(*n), 0);
	if (!n) {
		__sync_fetch_and_add(&unheard, 1);
		return 0;
	}
	__builtin_memset(n, 0, sizeof(*n));
	n->news.time = bpf_ktime_get_ns();
	n->news.hook = EXEC;
	n->news.pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(n->news.comm, sizeof(n->news.comm));
	bpf_probe_read_kernel_str(n->name, sizeof(n->name), (void *)follow(ctx->args[2], binprm_filename));
	bpf_ringbuf_submit(n, 0);
	return 0;
}
