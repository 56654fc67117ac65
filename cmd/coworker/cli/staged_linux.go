package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"coworker/runtime/changes"
	"coworker/runtime/session"
)

// stagedShown bounds the changes that are listed before the question; "look" shows all.
const stagedShown = 20

// settle decides what becomes of a staged session's changes, with everything inside dead.
func (x *execution) settle(result session.Result, failed error) error {
	if !x.flags.staged {
		return nil
	}
	r := &stagedReport{Session: x.session.ID()}
	x.report.Staged = r
	stage := x.session.Staged()
	if stage == nil {
		return nil // nothing was changed
	}
	ctx := context.WithoutCancel(x.stop.ctx)
	set, err := stage.Changes(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("changes of the staged session %s: %w", x.session.ID(), err), stage.Close())
	}
	r.Changes, r.Held, r.Conflicts = len(set.Changes), set.Count(changes.Held), set.Count(changes.Conflict)
	if len(set.Changes) == 0 {
		return errors.Join(stage.Discard(ctx), stage.Close())
	}
	switch x.choose(result, failed, set) {
	case 'a':
		err = x.apply(ctx, stage, r)
	case 'd':
		err = errors.Join(stage.Discard(ctx), x.recordStaged(ctx, "discarded", fmt.Sprintf("%d changes", len(set.Changes))))
	default:
		err = x.recordStaged(ctx, "kept", fmt.Sprintf("%d changes", len(set.Changes)))
		x.note("staged", sumUp(set)+" kept: nothing in the real folder changed", x.changesHint("diff")+", then apply or discard")
	}
	return errors.Join(err, stage.Close())
}

// choose answers a (apply), d (discard) or k (keep).
func (x *execution) choose(result session.Result, failed error, set *changes.Set) rune {
	ended := failed == nil && result.Started && !result.TimedOut && x.stop.code() == 0
	switch {
	case x.flags.apply == applyAuto && ended && result.Code == 0:
		return 'a'
	case x.flags.apply == applyAuto:
		x.note("note", "the command did not succeed, so its changes are not applied by themselves", "")
		return 'k'
	case x.flags.apply == applyNever || !ended || !isTerminal(x.environment.err):
		return 'k'
	}
	tty, err := openTerminal()
	if err != nil {
		return 'k'
	}
	defer tty.Close()
	return x.askStaged(tty, set)
}

// askStaged puts the question until there is an answer. No answer keeps the changes.
func (x *execution) askStaged(tty *os.File, set *changes.Set) rune {
	fmt.Fprint(tty, plainScreen+"\r\n")
	printChanges(tty, set, stagedShown)
	for {
		answer, err := session.AskLine(x.stop.ctx, tty, "apply them to the real folder? [a]pply, [l]ook, [d]iscard, [k]eep: ")
		if err != nil {
			return 'k'
		}
		switch strings.ToLower(answer) {
		case "a", "apply":
			return 'a'
		case "d", "discard":
			return 'd'
		case "k", "keep":
			return 'k'
		case "l", "look":
			x.look(tty, set)
		}
	}
}

// look shows every change with its lines.
func (x *execution) look(tty *os.File, set *changes.Set) {
	list, err := diffs(x.stop.ctx, x.session.Staged(), set)
	if err != nil {
		fmt.Fprintf(tty, "%s\n", visible(err.Error()))
		return
	}
	findMoves(list)
	e := environment{out: tty}
	for _, d := range list {
		e.printDiff(d, false) // a terminal that takes no text takes no answer either
	}
}

// printChanges lists what an apply would do.
func printChanges(w io.Writer, set *changes.Set, most int) {
	fmt.Fprintf(w, "%s in %s\n", sumUp(set), visible(set.Workspace))
	for i, c := range set.Changes {
		if i == most {
			fmt.Fprintf(w, "  and %d more\n", len(set.Changes)-i)
			break
		}
		line := fmt.Sprintf("  %-14s %s", c.Kind, visible(path.Join(c.Root, c.Rel)))
		if c.Verdict != changes.Clean {
			line += fmt.Sprintf("  (%s: %s)", c.Verdict, visible(c.Reason))
		}
		fmt.Fprintln(w, line)
	}
}

// sumUp sums a set up in one clause.
func sumUp(set *changes.Set) string {
	text := fmt.Sprintf("%d changes", len(set.Changes))
	var apart []string
	for _, v := range []changes.Verdict{changes.Held, changes.Conflict, changes.LeftOut} {
		if n := set.Count(v); n > 0 {
			apart = append(apart, fmt.Sprintf("%d %s", n, v))
		}
	}
	if apart == nil {
		return text
	}
	return text + " (" + strings.Join(apart, ", ") + ")"
}

// apply brings the changes into the real folders. What is in conflict stays in the stage.
func (x *execution) apply(ctx context.Context, stage *changes.Stage, r *stagedReport) error {
	store, err := x.session.HeldStore()
	if err != nil {
		return fmt.Errorf("open the folder of held files: %w", err)
	}
	result, err := stage.Apply(ctx, changes.Options{Hold: store, Now: x.now()})
	err = errors.Join(err, store.Close())
	if result == nil {
		return errors.Join(err, x.recordStaged(ctx, "failed", fmt.Sprint(err)))
	}
	r.Applied, r.Held, r.Conflicts = len(result.Done), len(result.HeldItems), len(result.Conflicts)
	for _, item := range result.HeldItems {
		x.report.Held = append(x.report.Held, heldReport{ID: item.ID, Path: jsonText(item.Rel), Reason: item.Reason})
		x.note("held", fmt.Sprintf("%s: %s", visible(item.Rel), visible(item.Reason)), "coworker held keep "+item.ID+" puts it into the folder; coworker held drop "+item.ID+" deletes it")
	}
	for _, c := range result.LeftOut {
		x.note("left out", fmt.Sprintf("%s: %s", visible(path.Join(c.Root, c.Rel)), visible(c.Reason)), "")
	}
	if n := len(result.Conflicts); n > 0 {
		x.note("conflict", fmt.Sprintf("%d paths were edited outside since the session began, and stay as they are there: %s",
			n, visible(path.Join(result.Conflicts[0].Root, result.Conflicts[0].Rel))), x.changesHint("apply")+" asks about each")
	}
	if r.Applied > 0 {
		x.note("staged", fmt.Sprintf("%d changes applied", r.Applied), x.changesHint("undo")+" takes them back")
	}
	return errors.Join(err, x.recordStaged(ctx, "applied", fmt.Sprintf("%s: %d applied, %d held, %d in conflict, %d left out",
		result.Apply, r.Applied, r.Held, r.Conflicts, len(result.LeftOut))))
}

func (x *execution) changesHint(verb string) string {
	return "coworker changes " + verb + " " + x.session.ID()
}

// recordStaged writes the row of what became of the changes.
func (x *execution) recordStaged(ctx context.Context, status, text string) error {
	a, id := x.session.Attestation()
	return x.record.Record(ctx, id, session.Event{
		Stage: "changes", Status: status, Reason: text, Resource: x.plan.Spec.Workspace, CallID: x.session.ID() + "/1",
		Level: a.Level, Walls: a.Walls,
	})
}
