// Package wallsd attacks the helper coworker-wallsd as an unprivileged user would, and runs sessions through it.
//
// It holds tests only. Attackers are this test binary, started again as another user; the helper is the program that a
// release has. Nothing imports it.
package wallsd
