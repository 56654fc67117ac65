package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"coworker/netproxy/control"
	"coworker/runtime/session"
)

// openTerminal finds the person. The input of the command is another matter: it may be a pipe.
func openTerminal() (*os.File, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, &approvalError{text: fmt.Sprintf("there is no terminal to ask on: %v", err), hint: "leave --ask out: what was refused is listed at the end, with the flag that allows it"}
	}
	return tty, nil
}

// plainScreen ends what a program inside may have begun so that the question is not seen: a control string (CAN), colours
// like the background (SGR 0), another character set (ECMA-48 sections 8.2.13 and 8.3.117, ECMA-35).
const plainScreen = "\x18\x1b[0m\x1b(B\x0f"

// ask puts one question of the proxy to the person, while everything inside stands still.
func (x *execution) ask(ctx context.Context, q control.Ask) bool {
	ctx, cancel := context.WithTimeout(ctx, askLimit())
	defer cancel()
	defer context.AfterFunc(x.stop.ctx, cancel)() // Ctrl-C is no answer, and what is frozen could not end
	x.mu.Lock()
	s := x.session
	x.mu.Unlock()
	if s == nil {
		return false // nothing of the person's runs yet
	}
	prompt := plainScreen + fmt.Sprintf("\r\ncoworker: a program inside wants to reach %s\r\n          %s\r\n          yes allows %s until this command ends\r\nallow? [y/N] ",
		visible(hostPort(q.Host, q.Port)), visible(q.Reason), visible(q.Needed))
	answer, asked := "", fmt.Errorf("not asked")
	paused := s.WhilePaused(func() {
		x.talk.Lock() // what the command wrote before stays in its pipe
		defer x.talk.Unlock()
		answer, asked = session.AskLine(ctx, x.tty, prompt)
	})
	yes := paused == nil && asked == nil && (strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"))
	status, reason := "deny", "the person said no"
	switch {
	case yes:
		status, reason = "allow", "the person said yes"
	case paused != nil:
		reason = "not asked: " + paused.Error()
	case asked != nil:
		reason = "no answer: " + asked.Error()
		fmt.Fprint(x.tty, "no answer, refused\r\n")
	}
	a, id := s.Attestation()
	err := x.record.Record(context.WithoutCancel(ctx), id, session.Event{
		Stage: "ask", Status: status, Reason: reason, Rule: q.Needed, Resource: hostPort(q.Host, q.Port), Level: a.Level, Walls: a.Walls,
	})
	return yes && err == nil // what is not on record is not allowed
}

// turn writes when no question stands.
type turn struct {
	io.Writer
	talk *sync.Mutex
}

func (t turn) Write(p []byte) (int, error) {
	t.talk.Lock()
	defer t.talk.Unlock()
	return t.Writer.Write(p)
}

// inTurn keeps the command's output from a terminal while a question stands there. A file or a pipe shows no question.
func (x *execution) inTurn(w io.Writer) io.Writer {
	if x.tty == nil || !isTerminal(w) {
		return w
	}
	return turn{w, &x.talk}
}
