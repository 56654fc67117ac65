package main

// int80 is getpid(2) by the gate and the number of i386.
func int80() int32
