package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"coworker/platform/sqlite"
)

// The test binary is also the other processes of these tests: childEnv names
// what it does, childDir where.
const (
	childEnv = "COWORKER_AUDIT_TEST"
	childDir = "COWORKER_AUDIT_TEST_DIR"
)

func TestMain(m *testing.M) {
	what := os.Getenv(childEnv)
	if what == "" {
		os.Exit(m.Run())
	}
	if err := child(what, os.Getenv(childDir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(what, dir string) error {
	switch what {
	case "full":
		return fillDisk(dir)
	case "nothing":
		return nil
	case "close", "leave":
		return once(what, dir)
	}
	ctx := context.Background()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "coworker.db"), Schema1)
	if err != nil {
		return err
	}
	l, err := Open(ctx, db, config(dir))
	if err != nil {
		return err
	}
	if what == "forever" {
		// Each number printed is a row that Append has promised.
		for {
			first, err := l.Append(ctx, Row{Stage: "a"}, Row{Stage: "b"}, Row{Stage: "c"})
			if err != nil {
				return err
			}
			fmt.Println(first + 2)
		}
	}
	n, err := strconv.Atoi(what)
	if err != nil {
		return err
	}
	for i := range n {
		if _, err := l.Append(ctx, Row{Session: strconv.Itoa(os.Getpid()), CallID: strconv.Itoa(i)}); err != nil {
			return err
		}
	}
	return db.Close()
}

// once is what one short command does, and prints how long it took.
func once(end, dir string) error {
	ctx := context.Background()
	start := time.Now()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "coworker.db"), Schema1)
	if err != nil {
		return err
	}
	l, err := Open(ctx, db, config(dir))
	if err != nil {
		return err
	}
	opened := time.Now()
	if _, err := l.Append(ctx, exampleRow(1)); err != nil {
		return err
	}
	appended := time.Now()
	if end == "leave" {
		db.Leave()
	} else if err := db.Close(); err != nil {
		return err
	}
	_, err = fmt.Println(opened.Sub(start).Nanoseconds(), appended.Sub(opened).Nanoseconds(), time.Since(appended).Nanoseconds())
	return err
}

func startChild(t testing.TB, what, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+what, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// Six processes meet in an empty folder: they race for the file, the schema,
// the key and every sequence number.
func TestProcessesShareOneLog(t *testing.T) {
	ctx := context.Background()
	for range 3 {
		dir := t.TempDir()
		const processes, rows = 6, 25
		var children []*exec.Cmd
		for range processes {
			c := startChild(t, strconv.Itoa(rows), dir)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			children = append(children, c)
		}
		for _, c := range children {
			if err := c.Wait(); err != nil {
				t.Errorf("child: %v", err)
			}
		}
		l, _ := openIn(t, dir)
		v, err := l.Verify(ctx)
		if err != nil || v.Rows != processes*rows {
			t.Fatalf("Verify = %+v, %v; want %d rows", v, err, processes*rows)
		}
	}
}

// A writer that is killed at any point leaves a log that verifies and holds
// every row it was promised, and whole commits only.
func TestKilledWriter(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	var promised int64
	for round := range 25 {
		c := startChild(t, "forever", dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// A different number of commits each time, then no mercy.
		lines := bufio.NewScanner(out)
		commits := round*3%17 + 1
		if round%6 == 5 {
			commits += 150 // far enough for a checkpoint of the database
		}
		for range commits {
			if !lines.Scan() {
				t.Fatalf("round %d: the writer stopped: %v", round, lines.Err())
			}
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err == nil {
				promised = max(promised, n)
			}
			if !lines.Scan() {
				break
			}
		}
		if _, err := io.Copy(io.Discard, out); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
		_ = c.Wait() // it reports the kill
		verifyAfterCrash(ctx, t, dir, promised)
	}
}

func verifyAfterCrash(ctx context.Context, t *testing.T, dir string, promised int64) {
	t.Helper()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "coworker.db"), Schema1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l, err := Open(ctx, db, config(dir))
	if err != nil {
		t.Fatal(err)
	}
	v, err := l.Verify(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if v.Rows < promised || v.Rows%3 != 0 {
		t.Fatalf("%d rows after the crash, %d were promised", v.Rows, promised)
	}
}
