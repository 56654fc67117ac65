package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"coworker/enforce"
	"coworker/runtime/session"
)

type rec struct{}

func (rec) Attest(ctx context.Context, d []byte) (string, error) { return "att", nil }
func (rec) Record(ctx context.Context, a string, ev ...session.Event) error {
	for _, e := range ev {
		fmt.Fprintf(os.Stderr, "ROW %s %s %s %s %v\n", e.Stage, e.Status, e.Resource, e.Reason, e.Args)
	}
	return nil
}

func main() {
	t0 := time.Now()
	p, err := session.OpenProgram()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	t1 := time.Now()
	ws := os.Args[1]
	var st syscall.Stat_t
	syscall.Lstat(ws, &st)
	home := os.Getenv("HOME")
	state := home + "/.local/state/coworker-try"
	os.MkdirAll(state, 0o700)
	spec := enforce.Spec{Workspace: ws, Trees: []enforce.Tree{{Path: ws, Writable: true, Device: st.Dev, Inode: st.Ino}},
		Identity: enforce.Identity{UID: os.Geteuid(), GID: os.Getegid(), Name: "me", Home: home}, Net: enforce.NetNone,
		Env: []string{"PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "TERM=xterm"},
		HomeStore: home + "/.cache/coworker-try", HomeDirs: []string{".cache"},
		Limits: enforce.Limits{Processes: 4096, OpenFiles: 65536, FileSize: 1 << 34, Tmp: 2 << 30, Memory: 8 << 30},
		EtcAllow: []string{"ld.so.cache", "alternatives", "ssl/certs", "localtime"},
		Etc: []enforce.File{{Path: "passwd", Data: []byte(fmt.Sprintf("me:x:%d:%d::%s:/bin/bash\n", os.Geteuid(), os.Getegid(), home)), Mode: 0o644}},
	}
	be := session.Backends()[0]
	if os.Getenv("BARE") != "" {
		be = session.Backends()[1]
	}
	lvl := enforce.Enforced
	if os.Getenv("PARTIAL") != "" {
		lvl = enforce.Partial
	}
	s, err := session.Open(context.Background(), session.Options{Spec: spec, Backend: be, Program: p, StateDir: state, MinLevel: lvl, Recorder: rec{}, Notify: func(n session.Notice) { fmt.Println("NOTE", n) }, Now: time.Now, OneCommand: os.Getenv("WARM") == ""})
	if err != nil {
		fmt.Println("OPEN:", err)
		os.Exit(120)
	}
	t2 := time.Now()
	a, _ := s.Attestation()
	if os.Getenv("PH") != "" {
		fmt.Fprintln(os.Stderr, s.Phases())
	}
	if os.Getenv("SHOW") != "" {
		b, _ := json.MarshalIndent(a, "", " ")
		fmt.Println(string(b))
	}
	r, err := s.Run(context.Background(), session.Command{Argv: os.Args[2:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	t3 := time.Now()
	fmt.Fprintln(os.Stderr, "RESULT", r, err)
	n := 200
	if os.Getenv("WARM") == "" {
		n = 1
	}
	tt := time.Now()
	for i := 0; i < n; i++ {
		s.Run(context.Background(), session.Command{Argv: []string{"/bin/true"}})
	}
	warm := time.Since(tt) / time.Duration(n)
	t4 := time.Now()
	err = s.Close()
	fmt.Fprintln(os.Stderr, "close", err, "program", t1.Sub(t0), "open", t2.Sub(t1), "run", t3.Sub(t2), "close", time.Since(t4), "warm", warm, a.Level)
}
