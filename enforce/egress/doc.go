// Package egress keeps a session from the network by kernel programs on its control group (eBPF).
//
// It is the second wall beside the network namespace, and does not rely on it: each program asks to which namespace the
// socket belongs. In that of the cell, loopback, the synthetic addresses and the addresses that rules consist of pass,
// because what is sent there ends at the proxy or at a server inside. Everything else is refused with EPERM and told: in
// any other namespace all of it, the making of sockets included, so a process that gets out of the cell's namespace, or
// whose namespace was never made, has no network.
//
// It needs root, or CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN, and a folder of control groups v2, without any
// controller. A socket keeps the group of its birth, so a process must be in the group before it opens one, and no inet
// socket is given to a cell.
//
// What the programs do not see: sockets of the families VSOCK, PACKET and NETLINK (the system-call filter refuses them),
// and what was received (recvmsg programs may not refuse). connect_unix and sendmsg_unix (Linux 6.7) say whose view of
// names a process has, not which socket a name leads to: a socket of the host inside a shared folder is not their business.
//
// It may be imported by runtime/ward and integration. What must not be added: rules about hosts. Where a connection may
// go is the proxy's to decide.
package egress
