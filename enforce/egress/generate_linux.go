package egress

// The headers of the architecture lie apart on Debian; both objects are made from the same ones, which have nothing in
// them that depends on it.
//go:generate go tool bpf2go -go-package egress -target amd64,arm64 -tags linux -cc clang-14 -strip llvm-strip-14 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" programs egress.bpf.c
