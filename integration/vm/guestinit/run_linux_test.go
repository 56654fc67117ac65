package main

import (
	"bytes"
	"slices"
	"testing"

	"coworker/integration/vm/guest"
)

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		line, name string
		alive      bool
	}{
		{"7 (sleep) S 1 7 7 0 -1 4194304 90", "sleep", true},
		{"7 (a) b (c) R 1 7 7 0 -1 0 90", "a) b (c", true},
		{"2 (kthreadd) S 0 0 0 0 -1 2129984 0", "kthreadd", false},
		{"9 (dead) Z 1 9 9 0 -1 4227084 0", "", false},
		{"9 (dead) X 1 9 9 0 -1 0 0", "", false},
		{"9 (short) S 1", "", false},
		{"9 )( S 1 9 9 0 -1 0 0", "", false},
		{"", "", false},
	} {
		if name, alive := parseStat(c.line); name != c.name || alive != c.alive {
			t.Errorf("parseStat(%q) = %q, %t; want %q, %t", c.line, name, alive, c.name, c.alive)
		}
	}
}

func TestCapped(t *testing.T) {
	var c capped
	chunk := bytes.Repeat([]byte("x"), guest.MaxOutput-1)
	for i, cut := range []bool{false, true, true} {
		if n, err := c.Write(chunk); n != len(chunk) || err != nil || c.cut != cut {
			t.Errorf("write %d: %d bytes, error %v, cut %t", i, n, err, c.cut)
		}
	}
	if c.buf.Len() != guest.MaxOutput {
		t.Errorf("kept %d bytes, want %d", c.buf.Len(), guest.MaxOutput)
	}
}

func TestCommand(t *testing.T) {
	cmd, err := command(t.Context(), guest.Case{Argv: []string{"/bin/true"}, User: guest.Worker, Env: []string{"A=b"}})
	if err != nil {
		t.Fatal(err)
	}
	cred := cmd.SysProcAttr.Credential
	if cred.Uid != guest.WorkerUID || cred.Gid != guest.WorkerUID || len(cred.Groups) != 0 || cred.NoSetGroups {
		t.Errorf("credential %+v keeps something of root", cred)
	}
	if cmd.Dir != "/home/worker" || !slices.Contains(cmd.Env, "HOME=/home/worker") || !slices.Contains(cmd.Env, "A=b") {
		t.Errorf("folder %s, environment %q", cmd.Dir, cmd.Env)
	}
	for _, bad := range []guest.Case{{}, {Argv: []string{"x"}, User: "mallory"}} {
		if _, err := command(t.Context(), bad); err == nil {
			t.Errorf("case %+v was accepted", bad)
		}
	}
}
