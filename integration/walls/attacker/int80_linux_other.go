//go:build linux && !amd64

package main

// int80 has no counterpart here.
func int80() int32 { return -1 }
