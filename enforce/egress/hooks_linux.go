package egress

import (
	"github.com/cilium/ebpf"

	"coworker/enforce"
)

// hook is one place in the kernel where a program sits.
type hook struct {
	name     string
	wall     enforce.Wall
	attach   ebpf.AttachType // 0: not on the control group
	programs []string        // in the object; the first that the kernel takes
	optional bool            // some kernels do not have it
	places   bool            // it reads kernel structures, see places_linux.go
}

// hooks stand in the order of the numbers that the programs send (enum hook in egress.bpf.c).
var hooks = []hook{
	{"connect4", enforce.NetEgress, ebpf.AttachCGroupInet4Connect, []string{"connect4"}, false, false},
	{"connect6", enforce.NetEgress, ebpf.AttachCGroupInet6Connect, []string{"connect6"}, false, false},
	{"sendmsg4", enforce.NetEgress, ebpf.AttachCGroupUDP4Sendmsg, []string{"sendmsg4"}, false, false},
	{"sendmsg6", enforce.NetEgress, ebpf.AttachCGroupUDP6Sendmsg, []string{"sendmsg6"}, false, false},
	{"bind4", enforce.NetEgress, ebpf.AttachCGroupInet4Bind, []string{"bind4"}, false, false},
	{"bind6", enforce.NetEgress, ebpf.AttachCGroupInet6Bind, []string{"bind6"}, false, false},
	{"sock_create", enforce.NetEgress, ebpf.AttachCGroupInetSockCreate, []string{"sock_create"}, false, false},
	{"skb", enforce.NetEgress, ebpf.AttachCGroupInetEgress, []string{"skb_egress", "skb_egress_old"}, false, false},
	{"connect_unix", enforce.NetLocal, ebpf.AttachCgroupUnixConnect, []string{"connect_unix"}, true, true},
	{"sendmsg_unix", enforce.NetLocal, ebpf.AttachCgroupUnixSendmsg, []string{"sendmsg_unix"}, true, true},
	{enforce.HookExec, "", 0, []string{"exec"}, true, true},
}
