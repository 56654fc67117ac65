package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"coworker/runtime/held"
)

func withHeld(e *environment, f func(store *held.Store, folder string) error) error {
	d, err := e.dirs()
	if err != nil {
		return err
	}
	if err := d.Make(); err != nil {
		return err
	}
	store, err := held.Open(d.State)
	if err != nil {
		return err
	}
	return errors.Join(f(store, filepath.Join(d.State, "held")), store.Close())
}

func heldList(e *environment, asJSON bool) error {
	return withHeld(e, func(store *held.Store, folder string) error {
		items, broken, err := store.List()
		if err != nil {
			return err
		}
		for _, id := range broken {
			e.note("warning", fmt.Sprintf("held item %q has no readable record", id), fmt.Sprintf("look at %s", filepath.Join(folder, id)))
		}
		if asJSON {
			if items == nil {
				items = []held.Item{}
			}
			return e.printJSON(items)
		}
		if len(items) == 0 {
			_, err := fmt.Fprintln(e.out, "nothing is held")
			return resultError(err)
		}
		t := table{}
		t.add("ID", "HELD", "PATH", "WHY")
		for _, it := range items {
			t.add(it.ID, it.HeldAt.Local().Format(time.DateTime), visible(filepath.Join(it.Workspace, it.Rel)), visible(it.Reason))
		}
		t.write(e.out)
		fmt.Fprintf(e.out, "\nThe files lie in %s/ID/item.\n", visible(folder))
		return nil
	})
}

func heldKeep(ctx context.Context, e *environment, id string, force bool) error {
	return withHeld(e, func(store *held.Store, _ string) error {
		item, err := store.Get(id)
		if err != nil {
			return heldProblem(err, id)
		}
		displaced, err := store.Keep(ctx, id, force)
		if err != nil {
			return heldProblem(err, id)
		}
		if displaced != nil {
			e.note("note", fmt.Sprintf("what stood there is held as %s", displaced.ID), "")
		}
		_, err = fmt.Fprintf(e.out, "put back %s\n", visible(filepath.Join(item.Workspace, item.Rel)))
		return resultError(err)
	})
}

func heldDrop(e *environment, id string) error {
	return withHeld(e, func(store *held.Store, _ string) error {
		if err := store.Drop(id); err != nil {
			return heldProblem(err, id)
		}
		_, err := fmt.Fprintf(e.out, "deleted %s\n", visible(id))
		return resultError(err)
	})
}

// heldProblem turns the answers that a person can act on into a plain no.
func heldProblem(err error, id string) error {
	switch {
	case errors.Is(err, held.ErrNoItem):
		return &failedError{text: err.Error(), hint: "coworker held list shows the ids"}
	case errors.Is(err, held.ErrExists):
		return &failedError{text: err.Error(), hint: fmt.Sprintf("coworker held keep --force %s holds what stands there in its turn", id)}
	case errors.Is(err, held.ErrChanged):
		return &failedError{text: err.Error(), hint: fmt.Sprintf("look at it again; coworker held keep --force %s puts it back as it is now", id)}
	}
	return err
}
