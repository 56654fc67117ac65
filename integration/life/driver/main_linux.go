// Driver is a small supervisor for the tests of integration/life: it opens sessions as one line of
// JSON says, tells on standard output how far it is, and can be killed at any point.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"coworker/enforce"
	"coworker/integration/life/plan"
	"coworker/runtime/session"
)

// job is what one driver does.
type job struct {
	plan.Place
	Fault    enforce.Wall
	Named    []string
	Argv     []string
	Sessions int  // at once; 0 means 1
	Repeat   int  // commands in each session; 0 means 1
	Graceful bool // SIGTERM, SIGINT and SIGHUP cancel instead of killing
	Timeout  time.Duration
}

// said is a line of the driver's output.
type said struct {
	Event   string // "open", "end", "refused", "failed"
	Level   string
	Missing []string
	Text    string
	Code    int
	Limits  []enforce.Limit
}

func main() {
	var j job
	if err := json.Unmarshal([]byte(os.Args[1]), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	d := &driver{job: j, out: json.NewEncoder(os.Stdout)}
	if err := d.run(); err != nil {
		d.say(describe(err))
		os.Exit(1)
	}
}

type driver struct {
	job
	mu  sync.Mutex
	out *json.Encoder
}

func (d *driver) say(s said) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.Encode(s)
}

func describe(err error) said {
	s := said{Event: "failed", Text: err.Error()}
	var refused *session.RefusedError
	if errors.As(err, &refused) {
		s.Event, s.Level, s.Missing = "refused", refused.Level.String(), refused.Missing
	}
	return s
}

func (d *driver) run() error {
	ctx := context.Background()
	if d.Graceful {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		defer stop()
	}
	program, err := session.OpenProgram()
	if err != nil {
		return err
	}
	defer program.Close()
	results := make(chan error)
	n := max(d.Sessions, 1)
	for range n {
		go func() { results <- d.one(ctx, program) }()
	}
	var errs []error
	for range n {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

func (d *driver) one(ctx context.Context, program *os.File) (err error) {
	o, err := d.Options(program)
	if err != nil {
		return err
	}
	if o.Egress != nil {
		if o.Egress.Program, err = session.OpenProxy(); err != nil {
			return err
		}
		defer o.Egress.Program.Close()
	}
	o.Spec.Fault = d.Fault
	o.Spec.Limits.Named = d.Named
	s, err := session.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	a, _ := s.Attestation()
	d.say(said{Event: "open", Level: a.Level.String(), Limits: a.Limits})
	for range max(d.Repeat, 1) {
		r, err := s.Run(ctx, session.Command{Argv: d.Argv, Stdout: io.Discard, Stderr: os.Stderr, Timeout: d.Timeout})
		if err != nil {
			return err
		}
		d.say(said{Event: "end", Code: r.Code})
	}
	return nil
}
