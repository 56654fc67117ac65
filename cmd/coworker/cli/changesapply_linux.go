package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"coworker/platform/audit"
	"coworker/platform/redact"
	"coworker/runtime/changes"
	"coworker/runtime/held"
	"coworker/runtime/session"
)

// askChanges puts one question to the person.
func (e *environment) askChanges(ctx context.Context, prompt, instead string) (string, error) {
	nobody := func(err error) error {
		return &approvalError{text: fmt.Sprintf("there is nobody to ask: %v", err), hint: instead}
	}
	if !isTerminal(e.in) || !isTerminal(e.err) {
		return "", nobody(errors.New("no terminal"))
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", nobody(err)
	}
	defer tty.Close()
	answer, err := session.AskLine(ctx, tty, plainScreen+prompt)
	return strings.ToLower(strings.TrimSpace(answer)), err
}

func (e *environment) agree(ctx context.Context, prompt string) error {
	answer, err := e.askChanges(ctx, prompt+" [y/N] ", "--yes does it without a question")
	if err != nil {
		return err
	}
	if answer != "y" && answer != "yes" {
		return &failedError{text: "the person said no", hint: "nothing was changed"}
	}
	return nil
}

// changesRecord writes what a person did to staged changes. Nothing is done that is not on record first.
type changesRecord struct {
	rec    *record
	fields audit.Row
}

func (e *environment) recordChanges(ctx context.Context, st *changes.Stage) (*changesRecord, error) {
	d, err := e.dirs()
	if err != nil {
		return nil, err
	}
	rec, err := openRecord(ctx, d, redact.New(), e.now)
	if err != nil {
		return nil, err
	}
	actor := ""
	if u, err := user.Current(); err == nil {
		actor = u.Username
	}
	return &changesRecord{rec, audit.Row{
		Session: st.Session(), Workspace: st.Workspace(), Resource: st.Workspace(), Actor: actor, Approver: actor,
		Tool: "changes", VerdictSource: "person", Level: "outside",
	}}, nil
}

func (r *changesRecord) add(ctx context.Context, rows ...audit.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := r.rec.log.Append(context.WithoutCancel(ctx), rows...); err != nil {
		return fmt.Errorf("%w: %w", audit.ErrNotRecorded, err)
	}
	return nil
}

func (r *changesRecord) row(stage, status, reason string) audit.Row {
	row := r.fields
	row.Time, row.Stage, row.Status, row.Reason = time.Now(), stage, status, reason
	return row
}

// outcome is the rows of an apply or undo that was done.
func (r *changesRecord) outcome(stage string, res *changes.Result, err error) []audit.Row {
	status, reason := "ok", ""
	switch {
	case err != nil:
		status, reason = "error", err.Error()
	case len(res.Conflicts) > 0:
		status = "partly"
	}
	var rows []audit.Row
	if res != nil {
		for _, h := range res.HeldItems {
			row := r.row("held", "ok", h.Reason)
			row.Resource, row.CallID = h.Rel, h.ID
			rows = append(rows, row)
		}
	}
	row := r.row(stage, status, reason)
	if res != nil {
		row.CallID = res.Apply
		row.Args = map[string]any{"done": len(res.Done), "conflicts": len(res.Conflicts), "kept": len(res.Kept), "held": len(res.HeldItems), "left_out": len(res.LeftOut)}
	}
	return append(rows, row)
}

func changesApply(e *environment, c *cli.Context, f changesFlags) error {
	return e.withChanges(c.Context, f, func(st *changes.Stage, set *changes.Set) error {
		if len(set.Changes) == 0 {
			if f.json {
				return e.printJSON(resultJSON(&changes.Result{}))
			}
			_, err := fmt.Fprintln(e.out, "nothing to apply")
			return resultError(err)
		}
		resolve, err := e.beforeApply(c.Context, f, set)
		if err != nil {
			return err
		}
		return e.applyRecorded(c.Context, f, st, resolve)
	})
}

// beforeApply shows what would be done and gets the person's word for it.
func (e *environment) beforeApply(ctx context.Context, f changesFlags, set *changes.Set) (func(changes.Change) changes.Resolution, error) {
	if !f.yes {
		shown := *set
		shown.Changes = set.Changes[:min(len(set.Changes), 50)]
		for _, one := range shown.Changes {
			e.say("%-14s %-9s %s", one.Kind, one.Verdict, visible(shownPath(one)))
		}
		if more := len(set.Changes) - len(shown.Changes); more > 0 {
			e.say("… and %d more: coworker changes list %s", more, set.Session)
		}
	}
	e.say("%s into %s", summaryLine(set), visible(set.Workspace))
	conflicts := set.Count(changes.Conflict)
	if conflicts > 0 && f.take == "" && (!isTerminal(e.in) || !isTerminal(e.err)) {
		return nil, &approvalError{
			text: fmt.Sprintf("%d files were edited in the folder since the session began, and there is nobody to ask", conflicts),
			hint: "--take host keeps them, --take staged replaces them (undo brings them back), --take leave applies the rest",
		}
	}
	if !f.yes {
		if err := e.agree(ctx, "apply?"); err != nil {
			return nil, err
		}
	}
	switch f.take {
	case "host":
		return func(changes.Change) changes.Resolution { return changes.KeepHost }, nil
	case "staged":
		return func(changes.Change) changes.Resolution { return changes.TakeStaged }, nil
	case "leave":
		return nil, nil
	}
	return func(c changes.Change) changes.Resolution { return e.askConflict(ctx, c) }, nil
}

func (e *environment) say(format string, args ...any) { fmt.Fprintf(e.err, format+"\n", args...) }

func (e *environment) askConflict(ctx context.Context, c changes.Change) changes.Resolution {
	prompt := fmt.Sprintf("%s: %s (the session: %s)\nkeep yours (h), take the session's (s), leave it for later (Enter)? ", visible(c.Rel), visible(c.Reason), c.Kind)
	answer, err := e.askChanges(ctx, prompt, "")
	switch {
	case err != nil:
		return changes.Leave
	case answer == "h":
		return changes.KeepHost
	case answer == "s":
		return changes.TakeStaged
	}
	return changes.Leave
}

func (e *environment) applyRecorded(ctx context.Context, f changesFlags, st *changes.Stage, resolve func(changes.Change) changes.Resolution) error {
	d, err := e.dirs()
	if err != nil {
		return err
	}
	hold, err := held.Open(d.State)
	if err != nil {
		return err
	}
	defer hold.Close()
	r, err := e.recordChanges(ctx, st)
	if err != nil {
		return err
	}
	defer r.rec.db.Close()
	if err := r.add(ctx, r.row("apply", "started", "")); err != nil {
		return err
	}
	res, err := st.Apply(ctx, changes.Options{Resolve: resolve, Hold: hold, Now: e.now()})
	err = errors.Join(err, r.add(ctx, r.outcome("apply", res, err)...))
	if err != nil {
		return changesProblem(err)
	}
	return e.afterApply(f, "applied", res)
}

// afterApply says what was done and what was not.
func (e *environment) afterApply(f changesFlags, done string, res *changes.Result) error {
	if f.json {
		if err := e.printJSON(resultJSON(res)); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintf(e.out, "%s %d changes\n", done, len(res.Done)); err != nil {
		return resultError(err)
	}
	if res.Finished != "" {
		e.note("note", "an interrupted apply was finished first", "")
	}
	for _, h := range res.HeldItems {
		e.note("held", fmt.Sprintf("%s: %s", visible(h.Rel), visible(h.Reason)), fmt.Sprintf("coworker held keep %s puts it there, drop deletes it", h.ID))
	}
	for _, c := range res.LeftOut[:min(len(res.LeftOut), 50)] {
		e.note("left out", fmt.Sprintf("%s: %s", visible(c.Rel), visible(c.Reason)), "")
	}
	if len(res.Conflicts) == 0 {
		return nil
	}
	var names []string
	for _, c := range res.Conflicts[:min(len(res.Conflicts), 10)] {
		names = append(names, fmt.Sprintf("%s (%s)", visible(c.Rel), visible(c.Reason)))
	}
	return &failedError{
		text: fmt.Sprintf("%d paths were left as they are:\n%s", len(res.Conflicts), strings.Join(names, "\n")),
		hint: "coworker changes diff shows them; coworker changes apply asks again",
	}
}

func resultJSON(res *changes.Result) map[string]any {
	list := func(in []changes.Change) []any {
		out := []any{}
		for _, c := range in {
			out = append(out, changeJSON(c))
		}
		return out
	}
	items := res.HeldItems
	if items == nil {
		items = []changes.HeldItem{}
	}
	return map[string]any{
		"apply": res.Apply, "done": list(res.Done), "conflicts": list(res.Conflicts), "kept": list(res.Kept),
		"left_out": list(res.LeftOut), "held": items,
	}
}

func changesUndo(e *environment, c *cli.Context, f changesFlags) error {
	return e.changeStage(c.Context, f, "undo", func(st *changes.Stage, r *changesRecord) error {
		res, err := st.Undo(c.Context, changes.Options{Now: e.now()})
		err = errors.Join(err, r.add(c.Context, r.outcome("undo", res, err)...))
		if err != nil {
			return changesProblem(err)
		}
		return e.afterApply(f, "took back", res)
	})
}

func changesDiscard(e *environment, c *cli.Context, f changesFlags) error {
	if !f.yes {
		if err := e.agree(c.Context, "delete what the session changed, and what could be undone?"); err != nil {
			return err
		}
	}
	return e.changeStage(c.Context, f, "discard", func(st *changes.Stage, r *changesRecord) error {
		name := st.Session()
		err := st.Discard(c.Context)
		status, reason := "ok", ""
		if err != nil {
			status, reason = "error", err.Error()
		}
		if err := errors.Join(err, r.add(c.Context, r.row("discard", status, reason))); err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.out, "discarded %s\n", visible(name))
		return resultError(err)
	})
}

// changeStage opens a stage and the record, and notes the beginning before anything is done.
func (e *environment) changeStage(ctx context.Context, f changesFlags, stage string, do func(*changes.Stage, *changesRecord) error) error {
	st, err := e.openStage(f.session)
	if err != nil {
		return err
	}
	r, err := e.recordChanges(ctx, st)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	err = r.add(ctx, r.row(stage, "started", ""))
	if err == nil {
		err = do(st, r)
	}
	return errors.Join(err, r.rec.db.Close(), st.Close())
}
