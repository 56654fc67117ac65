package guard

// The objects are made with Debian 12's clang 14, llvm and libbpf-dev; CI makes them again and compares.
//
//go:generate go tool bpf2go -go-package guard -target amd64,arm64 -tags linux -cc clang-14 -strip llvm-strip-14 -cflags "-O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu" programs guard.bpf.c
