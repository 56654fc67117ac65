package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// xfrmFlush is XFRM_MSG_FLUSHSA (include/uapi/linux/xfrm.h).
const xfrmFlush = 0x1c

// netlinks ask the kernel to open a way, and then send. Asking is refused first; where it is not, the effect decides.
func netlinks() []attempt {
	after := func(name string, protocol int, message []byte) attempt {
		return attempt{"netlink-" + name, func(t *target, mark string) error {
			err := netlink(protocol, message)
			if sent := sendTo(t.Net["udp-far4"], []byte(mark)); sent == nil {
				return nil
			}
			return err
		}}
	}
	u16, u32 := binary.NativeEndian.AppendUint16, binary.NativeEndian.AppendUint32
	attribute := func(kind uint16, data ...byte) []byte {
		b := u16(u16(nil, uint16(4+len(data))), kind)
		return append(append(b, data...), make([]byte, (4-len(data)%4)%4)...)
	}
	create := uint16(unix.NLM_F_REQUEST | unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	lo := u32(nil, 1)
	route := append([]byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}, attribute(unix.RTA_OIF, lo...)...)
	toUs := append([]byte{unix.AF_INET, 24, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0},
		append(attribute(unix.RTA_DST, 203, 0, 113, 0), attribute(unix.RTA_OIF, lo...)...)...)
	address := append(append([]byte{unix.AF_INET, 24, 0, 0}, lo...), attribute(unix.IFA_LOCAL, 203, 0, 113, 78)...)
	dummy := append(make([]byte, 16), attribute(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte("dummy")...)...)...)
	veth := append(make([]byte, 16), append(attribute(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte("veth")...)...), attribute(unix.IFLA_NET_NS_PID, lo...)...)...)
	rule := append([]byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, 0, 0, unix.RTN_UNICAST, 0, 0, 0, 0}, []byte{}...)
	flush := []byte{unix.AF_UNSPEC, 0, 0, 0}
	nft := func(kind int) []byte {
		return nlmsg(uint16(unix.NFNL_SUBSYS_NFTABLES<<8|kind), unix.NLM_F_REQUEST|unix.NLM_F_ACK, flush)
	}
	return []attempt{
		after("route", unix.NETLINK_ROUTE, nlmsg(unix.RTM_NEWROUTE, create, route)),
		after("route-local", unix.NETLINK_ROUTE, nlmsg(unix.RTM_NEWROUTE, create, toUs)),
		after("route-delete", unix.NETLINK_ROUTE, nlmsg(unix.RTM_DELROUTE, unix.NLM_F_REQUEST|unix.NLM_F_ACK, toUs)),
		after("address", unix.NETLINK_ROUTE, nlmsg(unix.RTM_NEWADDR, create, address)),
		after("link-dummy", unix.NETLINK_ROUTE, nlmsg(unix.RTM_NEWLINK, create, dummy)),
		after("link-veth", unix.NETLINK_ROUTE, nlmsg(unix.RTM_NEWLINK, create, veth)),
		after("rule", unix.NETLINK_ROUTE, nlmsg(unix.RTM_NEWRULE, create, rule)),
		after("netfilter", unix.NETLINK_NETFILTER, nft(unix.NFT_MSG_DELTABLE)),
		after("netfilter-get", unix.NETLINK_NETFILTER, nft(unix.NFT_MSG_GETTABLE)),
		after("generic", unix.NETLINK_GENERIC, nlmsg(unix.GENL_ID_CTRL, unix.NLM_F_REQUEST|unix.NLM_F_ACK, []byte{unix.CTRL_CMD_GETFAMILY, 1, 0, 0})),
		after("sock-diag", unix.NETLINK_SOCK_DIAG, nlmsg(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_REQUEST|unix.NLM_F_ACK, make([]byte, 56))),
		after("xfrm", unix.NETLINK_XFRM, nlmsg(xfrmFlush, unix.NLM_F_REQUEST|unix.NLM_F_ACK, make([]byte, 4))),
	}
}

func nlmsg(kind, flags uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, 1)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(b, body...)
}

// netlink sends one message and reads the acknowledgement (netlink(7)).
func netlink(protocol int, message []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return err
	}
	if n < 20 || binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR {
		return nil // data, which is an answer
	}
	if code := int32(binary.NativeEndian.Uint32(buf[16:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// interfaces make or change interfaces by the older calls and by files.
func interfaces() []attempt {
	tun := func(name string, flags uint16) attempt {
		return attempt{name, func(*target, string) error {
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			req, err := unix.NewIfreq("smuggler0")
			if err != nil {
				return err
			}
			req.SetUint16(flags)
			return unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
		}}
	}
	change := func(name string, request uint, set func(*unix.Ifreq) error) attempt {
		return attempt{name, func(t *target, mark string) error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			req, err := unix.NewIfreq("lo")
			if err != nil {
				return err
			}
			if err := set(req); err != nil {
				return err
			}
			if err := unix.IoctlIfreq(fd, request, req); err != nil {
				return err
			}
			return sendTo(t.Net["udp-far4"], []byte(mark))
		}}
	}
	return []attempt{
		tun("tun", unix.IFF_TUN|unix.IFF_NO_PI), tun("tap", unix.IFF_TAP|unix.IFF_NO_PI),
		change("ioctl-address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{203, 0, 113, 79}) }),
		change("ioctl-down", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(0); return nil }),
		{"sysctl", func(t *target, mark string) error {
			errs := []error{}
			for _, name := range []string{"ipv4/ip_forward", "ipv4/conf/all/route_localnet", "ipv4/ip_nonlocal_bind", "ipv4/ping_group_range", "ipv4/ip_unprivileged_port_start", "ipv6/conf/all/disable_ipv6"} {
				f, err := os.OpenFile("/proc/sys/net/"+name, os.O_WRONLY, 0)
				if err == nil {
					f.Close()
					return nil
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		}},
		{"proc-net", func(*target, string) error {
			for _, name := range []string{"arp", "dev", "route", "tcp", "ip_tables_names", "nf_conntrack", "pktgen/pgctrl"} {
				if f, err := os.OpenFile("/proc/net/"+name, os.O_WRONLY, 0); err == nil {
					f.Close()
					return nil
				}
			}
			return fmt.Errorf("no file of /proc/net can be written: %w", unix.EACCES)
		}},
	}
}
