package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"coworker/enforce"
	"coworker/platform/audit"
	"coworker/runtime/held"
	"coworker/runtime/session"
	"coworker/runtime/wallspec"
)

// demo is one run: a made-up person with a project, a session, and what the attacker achieved.
type demo struct {
	*environment
	scene   *scene
	planned *planned
	record  *recorder
	session *session.Session
	style   style
	escapes int
	tried   int
}

// demoProcesses bounds the fork bomb: enough for the attacker, few enough to be quick.
const demoProcesses = 200

// demoTimeout ends an attacker that hangs.
const demoTimeout = 60 * time.Second

func runDemo(ctx context.Context, e *environment) (err error) {
	sc, err := newScene()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sc.close()) }()
	d := &demo{environment: e, scene: sc, style: styleFor(e.out, e.getenv)}
	host, err := demoHost(sc)
	if err != nil {
		return err
	}
	if d.planned, err = e.decide(ctx, execFlags{workspace: sc.project, write: true, read: []string{sc.program}}, host); err != nil {
		return err
	}
	defer d.planned.close()
	d.planned.plan.Spec.Limits.Processes = demoProcesses
	defer func() { err = errors.Join(err, removeHome(d.planned.plan.Spec.HomeStore)) }()
	stop := followSignals(ctx)
	defer stop.end()
	d.record = e.recorder(context.WithoutCancel(ctx), d.planned, "demo")
	defer d.record.close()
	err = d.run(stop.ctx)
	if code := stop.code(); code != 0 {
		return &statusError{code}
	}
	return err
}

// demoHost is this machine as the made-up person sees it.
func demoHost(sc *scene) (wallspec.Host, error) {
	host, err := localHost()
	if err != nil {
		return host, err
	}
	lookup := host.LookupUID
	host.LookupUID = func(uid int) (wallspec.User, bool) {
		u, ok := lookup(uid)
		u.UID, u.Home = uid, sc.home
		if !ok {
			u.GID = host.GID
		}
		return u, true
	}
	var environ []string
	for _, entry := range host.Environ {
		if !strings.HasPrefix(entry, "HOME=") && !strings.HasPrefix(entry, "SSH_AUTH_SOCK=") {
			environ = append(environ, entry)
		}
	}
	host.Environ = append(environ, "HOME="+sc.home, "SSH_AUTH_SOCK="+sc.targets.AgentSocket, "AWS_SECRET_ACCESS_KEY="+sc.secret)
	sc.targets.State = host.Dirs.State
	return host, nil
}

func (d *demo) run(ctx context.Context) error {
	finish := d.progress("starting a session and proving its walls")
	s, err := d.open(ctx, d.planned, d.record, func(session.Notice) {})
	finish()
	if err != nil {
		return err
	}
	d.session = s
	d.record.name(s.ID())
	a, _ := s.Attestation()
	fmt.Fprintf(d.out, "An agent under somebody else's control works in a made-up project.\nLevel %s, proved by %d attacks before it started.\n\n", a.Level, len(a.Probes))
	results, err := d.attack(ctx)
	if err == nil {
		err = d.forkBomb(ctx)
	}
	items := s.Held
	err = errors.Join(err, s.Close())
	if err != nil {
		return err
	}
	d.judge(results, a)
	if err := d.finish(ctx, items()); err != nil {
		return err
	}
	if d.escapes > 0 {
		return &wallsError{err: fmt.Errorf("%d of %d attempts got out", d.escapes, d.tried), hint: "coworker sandbox verify shows which wall does not hold; please report this"}
	}
	_, err = fmt.Fprintf(d.out, "\n%s %d attempts, none got out. The agent's ordinary edit of main.go is there.\n", d.style.good("All stopped."), d.tried)
	return resultError(err)
}

// attack runs the attacker and collects what it says.
func (d *demo) attack(ctx context.Context) (map[string]attempt, error) {
	argument, err := json.Marshal(d.scene.targets)
	if err != nil {
		return nil, err
	}
	out, err := d.inside(ctx, d.scene.program, demoAgent, "attack", string(argument))
	if err != nil {
		return nil, err
	}
	results := map[string]attempt{}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var a attempt
		if err := dec.Decode(&a); err == io.EOF {
			return results, nil
		} else if err != nil {
			return nil, fmt.Errorf("the attacker's answer: %w", err)
		}
		results[a.ID] = a
	}
}

// inside runs one command in the session, with a row before and after.
func (d *demo) inside(ctx context.Context, argv ...string) ([]byte, error) {
	a, id := d.session.Attestation()
	row := session.Event{Stage: "exec", Status: "started", Args: argv, Level: a.Level, Walls: a.Walls}
	if err := d.record.Record(ctx, id, row); err != nil {
		return nil, err
	}
	out := &boundedBuffer{most: 1 << 20}
	result, err := d.session.Run(ctx, session.Command{Argv: argv, Stdout: out, Stderr: out, Timeout: demoTimeout})
	row.Status, row.Result = "ended", fmt.Sprintf("exit code %d", result.Code)
	if err = errors.Join(err, d.record.Record(context.WithoutCancel(ctx), id, row)); err != nil {
		return nil, err
	}
	if !result.Started || result.TimedOut {
		return nil, fmt.Errorf("the attacker did not run to its end: %s (exit code %d)", result.Reason, result.Code)
	}
	return out.data.Bytes(), nil
}

// forkBomb starts processes until the limit stops it. It has a command of its own: what hits the limit may die.
func (d *demo) forkBomb(ctx context.Context) error {
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do sleep 60 & i=$((i+1)); done; echo unbounded`, 2*demoProcesses)
	out, err := d.inside(ctx, "/bin/sh", "-c", script)
	if err != nil {
		return err
	}
	d.scene.bounded = !bytes.Contains(out, []byte("unbounded"))
	return nil
}

// judge prints one line for each try: what was tried, which wall stopped it, and how.
func (d *demo) judge(results map[string]attempt, a session.Attestation) {
	t := table{paint: func(row, column int, cell string) string {
		switch {
		case row == 0:
			return d.style.faint(cell)
		case column == 2 && strings.HasPrefix(cell, "stopped"):
			return d.style.good(cell)
		case column == 2:
			return d.style.bad(cell)
		}
		return cell
	}}
	t.add("", "THE AGENT TRIES TO", "", "WALL", "WHAT IT MET")
	line := func(text string, wall enforce.Wall, met, problem string) {
		d.tried++
		verdict := "stopped"
		if problem != "" {
			d.escapes++
			verdict, met = "GOT OUT", problem
		}
		t.add(fmt.Sprintf("%2d", d.tried), text, verdict, string(wall), visible(met))
	}
	for _, one := range tries() {
		result, said := results[one.id]
		met, problem := d.scene.check(one, result)
		if !said {
			problem = "it was not tried"
		}
		line(one.text, one.wall, met, problem)
	}
	problem := ""
	if !d.scene.bounded {
		problem = fmt.Sprintf("%d processes were started", 2*demoProcesses)
	}
	line("start processes without end", enforce.Res, fmt.Sprintf("no more than %d at a time", demoProcesses), problem)
	if problem := d.scene.checkWork(); problem != "" {
		line("do its ordinary work", enforce.FSWrite, "", problem)
	}
	t.write(d.out)
}

// finish shows the rows of this run and deletes what was held: it belongs to a project that is about to vanish.
func (d *demo) finish(ctx context.Context, items []held.Item) error {
	store, err := held.Open(d.planned.host.Dirs.State)
	if err != nil {
		return err
	}
	for _, it := range items {
		err = errors.Join(err, store.Drop(it.ID))
	}
	if err = errors.Join(err, store.Close()); err != nil {
		return err
	}
	rec, err := d.record.open()
	if err != nil {
		return err
	}
	rows, err := rec.log.List(ctx, audit.Filter{Session: d.session.ID(), Oldest: true})
	if err != nil {
		return err
	}
	fmt.Fprint(d.out, "\nThe record of it (coworker audit show ROW tells more):\n")
	printRows(d.out, d.style, rows)
	return nil
}

// boundedBuffer keeps the beginning of what is written.
type boundedBuffer struct {
	data bytes.Buffer
	most int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if room := b.most - b.data.Len(); room > 0 {
		b.data.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// listener counts who comes by.
type listener struct {
	net.Listener
	came chan struct{} // one for each visitor, as far as there is room
	done chan struct{}
}

func newListener(network, address string) (*listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	c := &listener{Listener: l, came: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
			select {
			case c.came <- struct{}{}:
			default:
			}
		}
	}()
	return c, nil
}

func (c *listener) visited() bool {
	select {
	case <-c.came:
		return true
	default:
		return false
	}
}

func (c *listener) close() error {
	err := c.Close()
	<-c.done
	return err
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func writeFiles(root string, files map[string]string) error {
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
